#include "fds.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A child that was forked while another thread streamed may open a device of its own. */
static void unlock_in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, unlock_in_child);
}

void fds_close(const int32_t *fds, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

void fds_lock(void)
{
    pthread_mutex_lock(&lock);
}

bool fds_trylock(void)
{
    return pthread_mutex_trylock(&lock) == 0;
}

void fds_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

uint32_t fds_free(uint32_t wanted)
{
    enum { MOST = 512 };
    struct pollfd set[MOST];
    /* Most processes have few open: a little more than is wanted will do at first. */
    uint64_t step = wanted + 32 < MOST ? wanted + 32 : MOST;
    struct rlimit limit;
    uint32_t unused = 0;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    /* One poll() without events says of many numbers which are closed (POLLNVAL). */
    for (uint64_t base = 0; base < limit.rlim_cur && base < INT32_MAX && unused < wanted; base += step, step = MOST) {
        uint64_t left = limit.rlim_cur - base;
        nfds_t n = left < step ? (nfds_t)left : (nfds_t)step;
        int rc;

        for (nfds_t i = 0; i < n; i++)
            set[i] = (struct pollfd){.fd = (int)(base + i)};
        do {
            rc = poll(set, n, 0);
        } while (rc < 0 && errno == EINTR);
        for (nfds_t i = 0; rc > 0 && i < n; i++)
            unused += (set[i].revents & POLLNVAL) != 0;
    }
    return unused < wanted ? unused : wanted;
}
