/* The yardstick: the main job in plain C, two processes, the same system calls on the same device, and nothing else.

   yardstick export|import NODE PLACEMENT CACHING PAT [busy]

   NODE is "mock:N" or a render node; the others are as the xe ioctls take them. busy: a thread counts beside the work.

   Commands on standard input, one a line, each answered by one line on standard output; whoever gives them passes the
   path on, as a user passes a handle.
     export  objects N SIZE    make N objects of SIZE bytes and a table that maps them back to back -> ok
             share             export the whole table, and serve it once -> nanoseconds, path
     import  open PATH SIZE VIEW   open it, undo it; SIZE is an object's, VIEW 1 adds a CPU view
                               -> nanoseconds: connect manifest receive import bind view open, then VM_BIND calls;
                                  open is all of it but the view
   The exporter walks a sorted table; objects travel in batches of 253 descriptors, at most two unacknowledged; the
   importer checks sizes, imports, and binds one array (halved on ENOBUFS). */
#include "yardstick.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

    device->ops = strncmp(argv[2], "mock:", 5) == 0 ? xe_mock_ops() : xe_kernel_ops();
    device->placement = (uint32_t)strtoul(argv[3], NULL, 0);
    device->caching = (uint16_t)strtoul(argv[4], NULL, 0);
    device->pat = (uint16_t)strtoul(argv[5], NULL, 0);
    device->fd = device->ops->open(argv[2], O_RDWR | O_CLOEXEC);
    if (device->fd < 0)
        fail(argv[2]);
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
    struct pollfd doors[] = {{.fd = listener, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    uint32_t done;
    int fd = -1;

    /* Whoever gives the commands and says something before an importer has come has given up. */
    if (poll(doors, 2, -1) > 0 && doors[0].revents)
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
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

static void export_and_serve(struct device *device, const struct table *table, int listener, const char *path)
{
    uint64_t begin = now();
    size_t bytes;
    void *manifest = walk(table, VA_BASE, VA_BASE + table->count * table->size, &bytes);
    uint64_t export_time = now() - begin;

    if (!manifest)
        fail("walk");
    printf("%" PRIu64 " %s\n", export_time, path);
    fflush(stdout);
    serve(device, listener, table, manifest, bytes);
    free(manifest);
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

static void run_exporter(struct device *device)
{
    struct table table = {0};
    char path[64], line[128];
    int listener;

    snprintf(path, sizeof(path), "/tmp/ze-ipc-yardstick-%d.sock", (int)getpid());
    listener = listen_at(path);
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t objects, size;

        if (sscanf(line, "objects %" SCNu64 " %" SCNu64, &objects, &size) == 2 && objects && size) {
            make_objects(device, &table, objects, size);
            puts("ok");
            fflush(stdout);
        } else if (!strcmp(line, "share\n") && table.count) {
            export_and_serve(device, &table, listener, path);
        } else {
            fprintf(stderr, "yardstick: no such command: %s", line);
            break;
        }
    }
    unlink(path);
    close(listener);
}

static bool is(const char *word, const char *role)
{
    return !strcmp(word, role);
}

int main(int argc, char **argv)
{
    struct device device;
    bool busy = argc == 7 && is(argv[6], "busy");

    if ((argc != 6 && !busy) || !(is(argv[1], "export") || is(argv[1], "import"))) {
        fprintf(stderr, "usage: yardstick export|import NODE PLACEMENT CACHING PAT [busy]\n");
        return 2;
    }
    device_open(&device, argv);
    stay_busy(busy);
    if (is(argv[1], "export"))
        run_exporter(&device);
    else
        run_importer(&device);
    device.ops->close(device.fd);
    return 0;
}
