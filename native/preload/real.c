#include "real.h"

#include "internal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>

static const char *const names[REAL_COUNT] = {
#define CALL(type, name, parameters, arguments) [REAL_##name] = #name,
#include "calls.def"
};

static _Atomic(void *) addresses[REAL_COUNT];

void *real_address(enum real_call call)
{
    void *address = atomic_load_explicit(&addresses[call], memory_order_relaxed);
    if (!address) {
        address = dlsym(RTLD_NEXT, names[call]);
        atomic_store_explicit(&addresses[call], address, memory_order_relaxed);
    }
    return address;
}

/* The device core in this library is linked with --wrap for every interposed name, so that its own open(), mmap(),
 * close() reach libc and never come back to the wrappers above it. */
#define CORE(type, name, parameters)                                                                                   \
    type core_##name parameters __asm__("__wrap_" #name);                                                              \
    type core_##name parameters

#define CALL(type, name, parameters, arguments)                                                                        \
    CORE(type, name, parameters)                                                                                       \
    {                                                                                                                  \
        return REAL(name) arguments;                                                                                   \
    }
#define CALL_KEPT(type, name, parameters, arguments)
#include "calls.def"

CORE(int, close, (int fd))
{
    internal_remove(fd);
    return REAL(close)(fd);
}

static int kept(int command, const void *argument, int result)
{
    if (command == F_DUPFD_CLOEXEC && (intptr_t)argument > 0)
        internal_add(result);
    return result;
}

CORE(int, fcntl, (int fd, int command, void *argument))
{
    return kept(command, argument, REAL(fcntl)(fd, command, argument));
}

CORE(int, fcntl64, (int fd, int command, void *argument))
{
    return kept(command, argument, REAL(fcntl64)(fd, command, argument));
}
