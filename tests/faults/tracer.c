/* The tracing side: see tracer.h. */
#include "tracer.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <stddef.h>
#elif defined(__aarch64__)
#include <elf.h>
#endif

#define MAX_THREADS 256

struct thread {
    pid_t tid;
    struct call last;
    bool gone, begun, in_call, paused, inside, chosen;
    long answer; /* what the call shall return, when answered */
    bool answered;
};

struct run {
    pid_t pid;
    const struct plan *plan;
    struct call *log;
    size_t capacity;
    struct outcome *out;
    uint64_t matches;
    bool ended; /* the job is over: let it run */
    int num_threads;
    struct thread threads[MAX_THREADS];
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct thread *thread_of(struct run *run, pid_t tid)
{
    for (int i = 0; i < run->num_threads; i++)
        if (run->threads[i].tid == tid && !run->threads[i].gone)
            return &run->threads[i];
    if (run->num_threads == MAX_THREADS)
        return NULL;
    struct thread *thread = &run->threads[run->num_threads];
    *thread = (struct thread){.tid = tid, .last.thread = run->num_threads};
    run->num_threads++;
    return thread;
}

/* The number of the call that a thread is about to make: none, so that it is not made. */
static int skip_call(pid_t tid)
{
#if defined(__x86_64__)
    return ptrace(PTRACE_POKEUSER, tid, offsetof(struct user_regs_struct, orig_rax), -1L) ? -errno : 0;
#elif defined(__aarch64__)
    int none = -1;
    struct iovec part = {&none, sizeof(none)};
    return ptrace(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &part) ? -errno : 0;
#else
#error "no tracer for this architecture"
#endif
}

static int set_result(pid_t tid, long result)
{
#if defined(__x86_64__)
    return ptrace(PTRACE_POKEUSER, tid, offsetof(struct user_regs_struct, rax), result) ? -errno : 0;
#else
    struct user_regs_struct registers;
    struct iovec all = {&registers, sizeof(registers)};
    if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &all))
        return -errno;
    registers.regs[0] = (unsigned long)result;
    return ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &all) ? -errno : 0;
#endif
}

/* What kind of file a descriptor is, where that decides how a call on it can fail. */
static uint32_t kind_of_fd(pid_t tid, int fd)
{
    char path[64], target[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", tid, fd);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = 0;
    if (!strncmp(target, "socket:", 7))
        return KIND_SOCKET;
    if (!strncmp(target, "anon_inode:", 11))
        return KIND_ANONYMOUS;
    return strncmp(target, "/proc/", 6) ? KIND_FILE : KIND_PROC;
}

static uint32_t detail_of(pid_t tid, uint64_t number, const uint64_t *arguments)
{
    switch (number) {
    case SYS_read:
    case SYS_write:
    case SYS_close:
        return kind_of_fd(tid, (int)arguments[0]);
    case SYS_ioctl:
    case SYS_fcntl:
    case SYS_epoll_ctl:
        return (uint32_t)arguments[1];
    case SYS_futex:
        return (uint32_t)arguments[1] & 0x7f;
    case SYS_getsockopt:
    case SYS_setsockopt:
        return (uint32_t)arguments[2];
    case SYS_prctl:
        return (uint32_t)arguments[0];
    default:
        return 0;
    }
}

static void note(struct run *run, const struct call *call)
{
    if (run->out->calls < run->capacity)
        run->log[run->out->calls] = *call;
    run->out->calls++;
}

/* Whether this is the call of the plan. */
static bool is_due(struct run *run, const struct call *call)
{
    const struct plan *plan = run->plan;
    if (!plan->action || run->out->fired || memcmp(call, &plan->call, sizeof(*call)))
        return false;
    return run->matches++ == plan->occurrence;
}

static void die(struct run *run, bool before, pid_t tid)
{
    if (before)
        skip_call(tid);
    run->out->fired = 1;
    run->ended = true;
    kill(run->pid, SIGKILL);
}

static void enter_call(struct run *run, struct thread *thread, uint64_t number, const uint64_t *arguments)
{
    struct call *call = &thread->last;
    int thread_number = call->thread;
    bool device = number == MARK_CALL && arguments[0] == MARK_ENTER;
    thread->answered = thread->chosen = false;
    if (number == MARK_CALL && !device) {
        thread->answered = true;
        thread->answer = GO_ON;
        switch ((enum mark)arguments[0]) {
        case MARK_LEAVE:
            thread->inside = false;
            if (run->plan->action == ACT_KILL_AFTER && call->number == DEVICE_CALL && call->inside == 2)
                die(run, true, thread->tid);
            break;
        case MARK_PAUSE:
            thread->paused = true;
            break;
        case MARK_RESUME:
            thread->paused = false;
            break;
        case MARK_END:
            run->ended = true;
            break;
        case MARK_ENTER:
            break;
        }
        return;
    }
    if (thread->inside && call->number == DEVICE_CALL && call->inside == 2)
        return; /* in the ioctl after which it dies */
    *call = device ? (struct call){thread_number, DEVICE_CALL, (uint32_t)arguments[1], 0}
                   : (struct call){thread_number, (int32_t)number, detail_of(thread->tid, number, arguments),
                                   thread->inside};
    if (device) {
        thread->answered = true;
        thread->answer = GO_ON;
    }
    bool counted = !thread->paused && !run->ended && number != SYS_exit && number != SYS_exit_group;
    if (counted) {
        note(run, call);
        thread->chosen = is_due(run, call);
    }
    if (device)
        thread->inside = true;
    if (!thread->chosen)
        return;
    const struct plan *plan = run->plan;
    if (plan->action == ACT_KILL_BEFORE) {
        die(run, true, thread->tid);
    } else if (plan->action == ACT_FAIL) {
        run->out->fired = 1;
        run->ended = true;
        thread->answered = true;
        thread->answer = device ? GO_ON + plan->error : -plan->error;
        thread->inside = device ? false : thread->inside;
        if (!device)
            skip_call(thread->tid);
    } else if (device) {
        call->inside = 2; /* the mark of its end comes */
    }
}

static void leave_call(struct run *run, struct thread *thread)
{
    if (thread->chosen && run->plan->action == ACT_KILL_AFTER && thread->last.number != DEVICE_CALL) {
        die(run, false, thread->tid);
        return;
    }
    if (thread->chosen && run->plan->action == ACT_FAIL_AFTER) {
        run->out->fired = 1;
        run->ended = true;
        set_result(thread->tid, -run->plan->error);
    } else if (thread->answered) {
        set_result(thread->tid, thread->answer);
    }
}

/* One stop of one thread; the signal to hand on. */
static int look(struct run *run, struct thread *thread, int status)
{
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
        struct __ptrace_syscall_info info;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->tid, sizeof(info), &info) <= 0)
            return 0;
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
            thread->in_call = true;
            uint64_t arguments[6];
            memcpy(arguments, info.entry.args, sizeof(arguments));
            enter_call(run, thread, info.entry.nr, arguments);
        } else if (thread->in_call) {
            thread->in_call = false;
            leave_call(run, thread);
        }
        return 0;
    }
    if (status >> 16)
        return 0; /* a thread was made: it shows itself */
    if (signal == SIGSTOP && !thread->begun)
        return 0; /* how a new thread shows itself */
    return signal;
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void go_on(struct run *run, struct thread *thread, int signal)
{
    thread->begun = true;
    /* A thread that must still be told the result of its call stops once more. */
    bool stop = !run->ended || thread->in_call;
    ptrace(stop ? PTRACE_SYSCALL : PTRACE_CONT, thread->tid, 0, (long)signal);
}

static int follow(struct run *run, double deadline)
{
    for (;;) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno != EINTR)
            return -errno;
        if (tid < 0) {
            if (now() > deadline && !run->out->timed_out) {
                run->out->timed_out = 1;
                run->out->stuck = run->threads[0].last;
                kill(run->pid, SIGKILL);
            }
            continue;
        }
        if (tid == run->pid && !WIFSTOPPED(status)) {
            run->out->status = status;
            return 0;
        }
        if (!WIFSTOPPED(status)) {
            bool known = false;
            for (int i = 0; i < run->num_threads; i++) {
                if (run->threads[i].tid == tid && !run->threads[i].gone)
                    known = run->threads[i].gone = true;
            }
            if (!known)
                run->out->stranger = tid;
            continue;
        }
        struct thread *thread = thread_of(run, tid);
        if (!thread) {
            kill(run->pid, SIGKILL);
            ptrace(PTRACE_CONT, tid, 0, 0L);
            continue;
        }
        int signal = look(run, thread, status);
        go_on(run, thread, signal);
    }
}

int trace(pid_t pid, const struct plan *plan, struct call *log, size_t capacity, double seconds,
          struct outcome *outcome)
{
    memset(outcome, 0, sizeof(*outcome));
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, __WALL)) < 0 && errno == EINTR)
        ;
    if (got < 0)
        return -errno;
    if (!WIFSTOPPED(status)) {
        outcome->status = status;
        return 0;
    }
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, pid, 0, options))
        return -errno;
    struct run run = {.pid = pid, .plan = plan, .log = log, .capacity = capacity, .out = outcome};
    struct thread *first = thread_of(&run, pid);
    go_on(&run, first, 0);

    struct sigaction action = {.sa_handler = on_alarm}, before;
    struct itimerval often = {{0, 100000}, {0, 100000}}, timer_before;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, &timer_before);
    int r = follow(&run, now() + seconds);
    setitimer(ITIMER_REAL, &timer_before, NULL);
    sigaction(SIGALRM, &before, NULL);
    return r;
}
