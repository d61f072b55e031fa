#pragma once
/* Descriptors of the device's memory objects, and what /proc says about them. */
#include <stdbool.h>
#include <stddef.h>

/* Cheap for every other file: one fstat. */
bool fd_is_dma_buf(int fd);
/* The text of a /proc/self/fd link in place of a path into the device's store; the new length. */
size_t dma_buf_link(char *path, size_t length, size_t room);
