#pragma once
/* Descriptors that the device core keeps for itself. The core moves those out of the program's way by F_DUPFD_CLOEXEC
 * to numbers from INTERNAL_MIN on; that is how they are known here (real.c). The program can neither close nor replace
 * them. Where the limit on descriptors is below that, they are anywhere and unprotected. */
#include <limits.h>
#include <stdbool.h>

#define INTERNAL_MIN 600

void internal_add(int fd);
void internal_remove(int fd);
bool internal_fd(int fd);
bool internal_any(void);
/* The lowest one in [first, last], UINT_MAX if there is none. */
unsigned int internal_next(unsigned int first, unsigned int last);
