"""Every system call and ioctl of export and open, failed and made the last one, on either side."""
