/* Verbs of the client with several threads: the device in use while descriptors, processes and memory come and go. */
#include "preload_client.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

static void *worker(void *unused)
{
    for (int i = 0; i < 200; i++) {
        int fd = open_node(), copy = dup(fd);
        uint32_t handle = create(fd);
        CHECK(handle == 1);
        close(fd);
        CHECK(close_handle(copy, handle) == 0);
        close(copy);
    }
    return unused;
}

void threads(void)
{
    pthread_t ids[8];
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&ids[i], NULL, worker, NULL) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    /* Async-signal-safe calls that the library interposes, on top of whatever the thread was doing. */
    int copy = dup(number == SIGALRM ? 0 : 1);
    close(copy);
    alarms++;
}

static void *busy(void *stop)
{
    int fd = open_node();
    while (!atomic_load((atomic_bool *)stop)) {
        uint32_t handle = create(fd);
        int buffer = export(fd, handle);
        CHECK(import(fd, buffer) == handle);
        close(buffer);
        CHECK(close_handle(fd, handle) == 0);
    }
    close(fd);
    return NULL;
}

/* Forks and signals while other threads use the device. */
void storm(void)
{
    atomic_bool stop = false;
    pthread_t ids[3];
    int fd = open_node();
    uint32_t handle = create(fd);
    strcpy(map(fd, handle), "before");
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&ids[i], NULL, busy, &stop) == 0);
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            CHECK(!strcmp(map(fd, handle), "before"));
            int mine = open_node(), buffer = export(mine, create(mine));
            CHECK(buffer >= 0);
            exit(0);
        }
        wait_for(child);
    }
    timer = (struct itimerval){0};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0 && alarms > 0);
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
    CHECK(!strcmp(map(fd, handle), "before"));
}

#define BATCH 0x100000u
#define TARGET 0x200000u

static void bind_one(int fd, uint32_t vm, struct drm_xe_vm_bind_op op)
{
    struct drm_xe_vm_bind args = {.vm_id = vm, .num_binds = 1, .bind = op};
    args.bind.pat_index = 2; /* write-back, coherent */
    CHECK(ioctl(fd, DRM_IOCTL_XE_VM_BIND, &args) == 0);
}

static atomic_bool unmapped;

static void *unmap_later(void *memory)
{
    CHECK(munmap(memory, 4096) == 0);
    atomic_store(&unmapped, true);
    return NULL;
}

/* munmap() of memory that a job will write waits for the job, as the kernel's notifier does. */
void userptr(void)
{
    int fd = open_node(), memory = memfd_create("target", MFD_CLOEXEC);
    CHECK(ftruncate(memory, 4096) == 0);
    uint32_t *target = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    uint32_t *alias = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    CHECK(target != MAP_FAILED && alias != MAP_FAILED);

    struct drm_xe_vm_create vm = {0};
    CHECK(ioctl(fd, DRM_IOCTL_XE_VM_CREATE, &vm) == 0);
    uint32_t bo = create(fd);
    uint32_t *words = (uint32_t *)map(fd, bo);
    bind_one(fd, vm.vm_id, (struct drm_xe_vm_bind_op){.obj = bo, .range = SIZE, .addr = BATCH});
    bind_one(fd, vm.vm_id,
             (struct drm_xe_vm_bind_op){
                 .userptr = (uintptr_t)target, .range = 4096, .addr = TARGET, .op = DRM_XE_VM_BIND_OP_MAP_USERPTR});

    const uint32_t batch[] = {
        0x0e00c003, 1,      BATCH + 4096,
        0,          0, /* MI_SEMAPHORE_WAIT until the word there is 1 */
        0x10000002, TARGET, 0,
        0x600d,     /* MI_STORE_DATA_IMM */
        0x05000000, /* MI_BATCH_BUFFER_END */
    };
    memcpy(words, batch, sizeof(batch));
    struct drm_xe_engine_class_instance engine = {.engine_class = DRM_XE_ENGINE_CLASS_COPY};
    struct drm_xe_exec_queue_create queue = {
        .width = 1, .num_placements = 1, .vm_id = vm.vm_id, .instances = (uintptr_t)&engine};
    CHECK(ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &queue) == 0);
    struct drm_xe_exec exec = {.exec_queue_id = queue.exec_queue_id, .address = BATCH, .num_batch_buffer = 1};
    CHECK(ioctl(fd, DRM_IOCTL_XE_EXEC, &exec) == 0);

    pthread_t id;
    CHECK(pthread_create(&id, NULL, unmap_later, target) == 0);
    usleep(200000);
    CHECK(!atomic_load(&unmapped) && *alias == 0);
    atomic_store((_Atomic uint32_t *)&words[1024], 1);
    CHECK(pthread_join(id, NULL) == 0 && *alias == 0x600d);
    struct drm_xe_exec_queue_get_property banned = {.exec_queue_id = queue.exec_queue_id};
    CHECK(ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_GET_PROPERTY, &banned) == 0 && banned.value == 0);
}
