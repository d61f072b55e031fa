"""The real user-space stack, loader to runtimes, in a Debian sid root on mock devices."""
