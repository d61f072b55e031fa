/* The PCI barrier page. A device drops what is written there and answers every read with 0xdeadbeef. Plain memory
   cannot without taking the program's SIGSEGV, so a thread puts the page back to that value soon after it was
   written. Programs that use the page as it is meant (they write, to order their writes) see no difference. */
#include "barrier.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core.h"
#include "queue.h"

#define NOTHING_THERE UINT32_C(0xdeadbeef)
/* Nanoseconds between looks, at least and at most. */
#define BUSY_NS 20000
#define IDLE_NS 500000000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Shared memory, so that it can be mapped again; never unmapped, its thread looks at it for ever. */
static uint32_t *page;
static pid_t owner; /* whose thread looks after it; a forked child needs one of its own */

/* The word that was written, the first if several were; -1: none. */
static int restore(uint32_t *words)
{
    int written = -1;
    for (int i = PAGE_SIZE / sizeof(*words) - 1; i >= 0; i--) {
        if (__atomic_load_n(&words[i], __ATOMIC_RELAXED) != NOTHING_THERE) {
            __atomic_store_n(&words[i], NOTHING_THERE, __ATOMIC_RELAXED);
            written = i;
        }
    }
    return written;
}

/* Who writes one word again and again uses the page as a barrier and never reads it: that is not worth the time. */
static void *look_after(void *words)
{
    long wait = BUSY_NS;
    for (int last = -1;;) {
        int written = restore(words);
        if (written >= 0 && written != last) {
            last = written;
            wait = BUSY_NS;
        } else if (wait < IDLE_NS) {
            wait *= 2;
        }
        struct timespec pause = {0, wait};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static int start(void)
{
    if (page && owner == getpid())
        return 0;
    uint32_t *words = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED)
        return ENOMEM;
    restore(words);
    pthread_t thread;
    if (thread_start(&thread, look_after, words)) {
        munmap(words, PAGE_SIZE);
        return ENOMEM;
    }
    pthread_detach(thread);
    page = words;
    owner = getpid();
    return 0;
}

void *barrier_map(void *address, int fixed)
{
    pthread_mutex_lock(&lock);
    int error = start();
    pthread_mutex_unlock(&lock);
    if (error) {
        errno = error;
        return MAP_FAILED;
    }
    /* Nothing of a shared mapping is moved: one more mapping of it appears. */
    return fixed ? mremap(page, 0, PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, address)
                 : mremap(page, 0, PAGE_SIZE, MREMAP_MAYMOVE);
}
