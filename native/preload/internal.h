#pragma once
/* Descriptors that the device core keeps for itself. The core moves those out of the program's way by F_DUPFD_CLOEXEC
 * with a minimum; that is how they are known here (real.c). The program can neither close nor replace them. */
#include <limits.h>
#include <stdbool.h>

void internal_add(int fd);
void internal_remove(int fd);
bool internal_fd(int fd);
bool internal_any(void);
/* The lowest one in [first, last], UINT_MAX if there is none. */
unsigned int internal_next(unsigned int first, unsigned int last);
