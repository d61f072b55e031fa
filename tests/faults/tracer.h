#pragma once
/* One run of a process under ptrace: which system calls it makes, and one of them made to fail or to be its last.

   The process marks what only it knows by a system call that no kernel has: where a device's ioctl begins and ends
   (on the mock that is a C function), and what of a thread is not part of the job. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MARK_CALL 0x5eed0
/* As the number of a call: an ioctl of the device, its request in detail. */
#define DEVICE_CALL (-1)

enum mark { MARK_ENTER = 1, MARK_LEAVE, MARK_PAUSE, MARK_RESUME, MARK_END };
/* What the mark of an ioctl's begin returns: go on, or GO_ON + errno. Anything else: nobody traces. */
enum { GO_ON = 1 };

/* The detail of read, write and close. */
enum { KIND_FILE, KIND_SOCKET, KIND_ANONYMOUS, KIND_PROC };

enum action { ACT_NONE, ACT_FAIL, ACT_KILL_BEFORE, ACT_KILL_AFTER, ACT_FAIL_AFTER };

struct call {
    int32_t thread; /* in the order in which they were seen; 0 is the main thread */
    int32_t number;
    uint32_t detail; /* what a call is asked for, where one number stands for many: an ioctl's request, a futex's op */
    int32_t inside;  /* made by the device while it served an ioctl */
};

struct plan {
    struct call call;
    uint64_t occurrence; /* of exactly this call, from 0 */
    int32_t action;
    int32_t error;
};

struct outcome {
    uint64_t calls; /* how many there were, also where the log was too short for them */
    int32_t fired;
    int32_t timed_out;
    int32_t status;    /* of waitpid() */
    int32_t stranger;  /* another process that ended meanwhile, or 0: a child, or a thread that was never seen */
    struct call stuck; /* on time-out: what the main thread was in */
};

/* In the process to be traced, by its only thread: stop until trace() of the parent goes on. */
int trace_me(void);
long mark(int what, unsigned long value);
const void *marked_ops(const void *ops);

/* In the parent, until the process has ended. 0, or -errno when it could not be traced. */
int trace(pid_t pid, const struct plan *plan, struct call *log, size_t capacity, double seconds,
          struct outcome *outcome);
