#pragma once
/* libc behind the interposed names: REAL(open)(path, flags, mode) is the next definition after this library's. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/types.h>

/* struct stat64 and off64_t are struct stat and off_t here; the wrappers of the "64" names rely on it. */
_Static_assert(sizeof(long) == 8 && sizeof(off_t) == 8, "the preload library is for LP64");

enum real_call {
#define CALL(type, name, parameters, arguments) REAL_##name,
#include "calls.def"
    REAL_COUNT
};

/* The address of a libc function, looked up at its first use: a wrapper may run before any constructor. */
void *real_address(enum real_call call);

#define CALL(type, name, parameters, arguments) typedef type(real_##name##_fn) parameters;
#include "calls.def"

#define REAL(name) ((real_##name##_fn *)real_address(REAL_##name))

/* What a program sees. The C name differs from the symbol so that libc's own prototypes do not get in the way. */
#define CALL(type, name, parameters, arguments)                                                                        \
    __attribute__((visibility("default"))) type wrap_##name parameters __asm__(#name);
#include "calls.def"
