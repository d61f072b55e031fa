#pragma once
/* Exec queues and the jobs in them. A queue with work has one thread, which ends after a while without.

   queue_lock is a leaf: nothing is locked, waited for or signalled under it. A fork takes it. */
#include "core.h"
#include "streamer.h"

#define QUEUE_WIDTH_MAX 9
#define QUEUE_JOBS_MAX 1000

struct job {
    struct job *next;
    uint64_t batches[QUEUE_WIDTH_MAX];
    uint32_t num_batches;
    struct sync_list syncs;
    struct fence *done;
    struct fence *after; /* jobs of others that must be over first; NULL: none */
};

enum queue_state {
    QUEUE_OPEN,
    QUEUE_BANNED, /* by what its batch did: takes no more jobs */
    QUEUE_KILLED, /* destroyed */
};

struct exec_queue {
    atomic_uint refs;
    struct exec_queue *next_live, **link_live; /* of all, for fork */
    struct device *dev;
    struct vm *vm; /* a reference */
    uint32_t id;
    uint16_t engine_class, instance, gt, width;
    atomic_int state; /* enum queue_state */
    /* The thread sleeps on it: kicked by new jobs, signalled in-fences and a change of state. */
    struct waiter waiter;
    struct waiter gone; /* kicked when the thread ends */

    /* queue_lock */
    struct job *jobs, **jobs_tail;
    uint32_t num_jobs;
    bool running;       /* there is a thread */
    struct fence *last; /* of the job pushed last; NULL: none yet */

    /* Engine clock: what finished batches took; when the running one began, 0: none. */
    atomic_ullong ticks, batch_began;

    /* The thread's. */
    struct streamer *streamer;
    int64_t deadline;
    struct gpu_span held[4]; /* spans a command uses at the moment; the oldest goes first */
    unsigned next_held;
};

extern pthread_mutex_t queue_lock;
extern struct exec_queue *live_queues; /* queue_lock */
extern atomic_uint dma_jobs;           /* of VMs that are not long-running, in all queues */

struct exec_queue *queue_new(struct device *dev, struct vm *vm);
/* Ends its job and all pending ones, and waits for its thread. */
void queue_kill(struct exec_queue *queue);
/* The job and everything it holds are the queue's from now on. -ECANCELED, -EAGAIN, -ENOMEM: they are not. */
int queue_push(struct exec_queue *queue, struct job *job);
/* The fence of the job pushed last, or a signalled one; a reference. */
struct fence *queue_last_fence(struct exec_queue *queue);
void job_free(struct job *job);

/* queue_order.c. A fence of the unfinished jobs of dma-fence VMs that hold up one of a fault-mode VM on this queue, as
   the kernel switches the engines between the two; NULL: none. */
struct fence *queue_older_dma_jobs(const struct exec_queue *queue);

/* queue_run.c: what the thread does with a job. */
void queue_run_job(struct exec_queue *queue, struct job *job);

/* A thread that no signal handler of the program runs in. 0 or -errno. */
int thread_start(pthread_t *thread, void *(*main)(void *), void *argument);
