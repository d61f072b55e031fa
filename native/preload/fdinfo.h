#pragma once
/* /proc/self/fdinfo/N of DRM files and dma-bufs: a memfd with what the kernel would print. */

/* A readable descriptor, or -1 if N is neither (then /proc has the answer). flags: O_CLOEXEC counts. */
int fdinfo_open(int fd, int flags);
