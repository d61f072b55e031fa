/* The yardstick: the main job in plain C, two processes, the same system calls on the same device, and nothing else.

   yardstick NODE PLACEMENT CACHING PAT [busy]

   NODE is "mock:N" or a render node; the others are as the xe ioctls take them. busy: a thread of each process counts.

   Commands on standard input, one a line, each answered by one line on standard output:
     objects N SIZE   make N objects of SIZE bytes and a table that maps them back to back   -> ok
     share VIEW       export the whole table, open it in the other process, undo it; VIEW 1 adds a CPU view
                      -> nanoseconds: export connect manifest receive import bind view open, then VM_BIND calls;
                         open is all of it in the importer but the view
   The exporter walks a sorted table; objects travel in batches of 253 descriptors, at most two unacknowledged; the
   importer checks sizes, imports, and binds one array (halved on ENOBUFS). */
#include "yardstick.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xe_mock.h"

void fail(const char *what)
{
    fprintf(stderr, "yardstick: %s: %s\n", what, strerror(errno));
    exit(1);
}

uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void device_ioctl(const struct device *device, unsigned long request, void *argument, const char *name)
{
    while (device->ops->ioctl(device->fd, request, argument) < 0)
        if (errno != EINTR)
            fail(name);
}

void device_open(struct device *device, char **argv)
{
    struct drm_xe_vm_create vm = {0};

    device->ops = strncmp(argv[1], "mock:", 5) == 0 ? xe_mock_ops() : xe_kernel_ops();
    device->placement = (uint32_t)strtoul(argv[2], NULL, 0);
    device->caching = (uint16_t)strtoul(argv[3], NULL, 0);
    device->pat = (uint16_t)strtoul(argv[4], NULL, 0);
    device->fd = device->ops->open(argv[1], O_RDWR | O_CLOEXEC);
    if (device->fd < 0)
        fail(argv[1]);
    device_ioctl(device, DRM_IOCTL_XE_VM_CREATE, &vm, "VM_CREATE");
    device->vm = vm.vm_id;
}

void send_all(int fd, const void *data, size_t size)
{
    if (send(fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("send");
}

void receive_all(int fd, void *data, size_t size)
{
    ssize_t got;

    do
        got = recv(fd, data, size, 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)size)
        fail("recv");
}

/* The exporter's objects and where they are mapped. */
struct table {
    uint64_t count;
    uint64_t size;
    struct row *rows;
};

static void make_objects(struct device *device, struct table *table, uint64_t count, uint64_t size)
{
    for (uint64_t i = 0; i < table->count; i++) {
        struct drm_gem_close close_args = {.handle = (uint32_t)table->rows[i].object};

        device_ioctl(device, DRM_IOCTL_GEM_CLOSE, &close_args, "GEM_CLOSE");
    }
    free(table->rows);
    table->rows = calloc(count, sizeof(*table->rows));
    if (!table->rows)
        fail("calloc");
    table->count = count;
    table->size = size;
    for (uint64_t i = 0; i < count; i++) {
        struct drm_xe_gem_create create = {
            .size = size, .placement = device->placement, .cpu_caching = device->caching};

        device_ioctl(device, DRM_IOCTL_XE_GEM_CREATE, &create, "GEM_CREATE");
        table->rows[i] =
            (struct row){.start = VA_BASE + i * size, .end = VA_BASE + (i + 1) * size, .object = create.handle};
    }
}

/* The window's rows as the bytes that travel; NULL if there is a hole. */
static void *walk(const struct table *table, uint64_t start, uint64_t end, size_t *bytes)
{
    uint64_t low = 0, high = table->count;
    struct extent *extents;
    uint64_t at = start, count = 0;

    while (low < high) {
        uint64_t middle = (low + high) / 2;

        if (table->rows[middle].end <= start)
            low = middle + 1;
        else
            high = middle;
    }
    *bytes = table->count * sizeof(*extents);
    extents = malloc(*bytes);
    for (uint64_t i = low; extents && i < table->count && at < end; i++) {
        const struct row *row = &table->rows[i];

        if (row->start != at)
            return NULL;
        extents[count++] =
            (struct extent){.offset = row->offset, .size = row->end - row->start, .index = (uint32_t)(i - low)};
        at = row->end;
    }
    return at >= end ? extents : NULL;
}

static void serve(struct device *device, int listener, const struct table *table, const void *manifest, size_t bytes)
{
    struct request request;
    struct reply reply = {.manifest_size = bytes, .objects = table->count};
    size_t first = bytes < FIRST_PART ? bytes : FIRST_PART;
    struct iovec parts[] = {{.iov_base = &reply, .iov_len = sizeof(reply)},
                            {.iov_base = (void *)manifest, .iov_len = first}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    uint32_t done;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        fail("accept");
    receive_all(fd, &request, sizeof(request));
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
        fail("sendmsg");
    for (size_t at = first; at < bytes; at += PART)
        send_all(fd, (const char *)manifest + at, bytes - at < PART ? bytes - at : PART);
    send_objects(device, fd, table->rows, table->count);
    receive_all(fd, &done, sizeof(done));
    close(fd);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 16) < 0)
        fail("listen");
    return fd;
}

static void export_and_share(struct device *device, struct table *table, int control, int listener, const char *path,
                             uint32_t view)
{
    struct order order = {.objects = table->count, .object_size = table->size, .view = view};
    struct times times;
    uint64_t begin = now();
    size_t bytes;
    void *manifest = walk(table, VA_BASE, VA_BASE + table->count * table->size, &bytes);
    uint64_t export_time = now() - begin;

    if (!manifest)
        fail("walk");
    snprintf(order.path, sizeof(order.path), "%s", path);
    send_all(control, &order, sizeof(order));
    serve(device, listener, table, manifest, bytes);
    receive_all(control, &times, sizeof(times));
    free(manifest);
    const uint64_t numbers[] = {export_time, times.connect, times.manifest, times.receive,   times.import,
                                times.bind,  times.view,    times.open,     times.bind_calls};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        printf("%s%" PRIu64, i ? " " : "", numbers[i]);
    putchar('\n');
    fflush(stdout);
}

static void *count(void *unused)
{
    volatile uint64_t number = 0;

    (void)unused;
    for (;;)
        number++;
    return NULL;
}

static void stay_busy(bool busy)
{
    pthread_t thread;

    if (busy && pthread_create(&thread, NULL, count, NULL))
        fail("pthread_create");
}

int main(int argc, char **argv)
{
    struct device device;
    struct table table = {0};
    char path[sizeof(((struct order *)0)->path)];
    char line[128];
    int control[2];
    pid_t importer;

    bool busy = argc == 6 && !strcmp(argv[5], "busy");
    if (argc != 5 && !busy) {
        fprintf(stderr, "usage: yardstick NODE PLACEMENT CACHING PAT [busy]\n");
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
        fail("socketpair");
    importer = fork();
    if (importer < 0)
        fail("fork");
    if (importer == 0) {
        close(control[0]);
        device_open(&device, argv);
        stay_busy(busy);
        return run_importer(&device, control[1]);
    }
    close(control[1]);
    device_open(&device, argv);
    stay_busy(busy);
    snprintf(path, sizeof(path), "/tmp/ze-ipc-yardstick-%d.sock", (int)getpid());
    int listener = listen_at(path);

    while (fgets(line, sizeof(line), stdin)) {
        uint64_t count, size;
        uint32_t view;

        if (sscanf(line, "objects %" SCNu64 " %" SCNu64, &count, &size) == 2 && count && size) {
            make_objects(&device, &table, count, size);
            puts("ok");
            fflush(stdout);
        } else if (sscanf(line, "share %" SCNu32, &view) == 1 && table.count) {
            export_and_share(&device, &table, control[0], listener, path, view);
        } else {
            fprintf(stderr, "yardstick: no such command: %s", line);
            break;
        }
    }
    unlink(path);
    close(control[0]);
    waitpid(importer, NULL, 0);
    device.ops->close(device.fd);
    return 0;
}
