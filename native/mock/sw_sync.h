#pragma once
/* The kernel's software timelines, debugfs sync/sw_sync: each open of the file is one, and programs move it by hand.
   Closing the file does not signal what is left, as it would in the kernel: nobody here sees it closed. */

/* An ioctl on an open of that file; -ENOTTY for unknown ones. */
int sw_sync_ioctl(int fd, unsigned long request, void *argument);
