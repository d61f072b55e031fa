/* 100,000 objects under RLIMIT_NOFILE=256, between two processes that pass descriptors in batches: neither keeps one.
 */
#include <sys/resource.h>
#include <sys/socket.h>

#include "check.h"

#define BATCH 128

static uint32_t num_objects = 100000;
static const uint64_t size = 64 << 10;

static unsigned open_fds(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void send_fds(int socket, const int *fds, unsigned count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * BATCH)];
    } control;
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int) * count), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * count);
    CHECK_EQ(sendmsg(socket, &message, 0), 1);
    CHECK_EQ(read(socket, &byte, 1), 1); /* taken */
}

static unsigned receive_fds(int socket, int *fds)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * BATCH)];
    } control;
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    CHECK_EQ(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
    CHECK(!(message.msg_flags & MSG_CTRUNC));
    unsigned count = (unsigned)((control.header.cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds, CMSG_DATA(&control.header), sizeof(int) * count);
    return count;
}

/* Binds all of them, a page of each, and reads the tag that the exporter left in some. */
static int importer(int socket)
{
    int fd = open_node(0), fds[BATCH];
    uint32_t vm = make_vm(fd, 0);
    struct drm_xe_vm_bind_op *ops = calloc(num_objects, sizeof(*ops));
    unsigned at_rest = 0;
    for (uint32_t n = 0; n < num_objects;) {
        unsigned count = receive_fds(socket, fds);
        for (unsigned i = 0; i < count; i++, n++) {
            int handle = import_bo(fd, fds[i]);
            CHECK_EQ(handle, (int)n + 1);
            close(fds[i]);
            ops[n] = (struct drm_xe_vm_bind_op){.obj = n + 1, .addr = n * size, .range = size, .pat_index = PAT_NONE};
        }
        CHECK_EQ(write(socket, "", 1), 1);
        if (!at_rest)
            at_rest = open_fds();
    }
    CHECK_EQ(open_fds(), at_rest);
    for (uint32_t n = 0; n < num_objects; n += 10000)
        CHECK_EQ(bind_array(fd, vm, ops + n, num_objects - n < 10000 ? num_objects - n : 10000), 0);
    CHECK_EQ(stats_of(0).mappings, num_objects);
    for (uint32_t n = 0; n < num_objects; n += 9973) {
        uint64_t *p = map_cpu(fd, n + 1, size);
        CHECK_EQ(p[8191], n);
        munmap(p, size);
    }
    close_node(fd);
    check_nothing_left(0);
    free(ops);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        num_objects = (uint32_t)atoi(argv[1]);
    struct rlimit few = {256, 256};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    pid_t child = fork();
    if (!child) {
        close(sockets[0]);
        exit(importer(sockets[1]));
    }
    close(sockets[1]);
    int fd = open_node(0), fds[BATCH];
    for (uint32_t n = 0; n < num_objects; n++) {
        CHECK_EQ(make_bo(fd, size, VRAM, WC, 0), n + 1);
        if (n % 9973 == 0) {
            uint64_t *p = map_cpu(fd, n + 1, size);
            p[8191] = n;
            munmap(p, size);
        }
    }
    unsigned at_rest = open_fds();
    for (uint32_t n = 0; n < num_objects;) {
        unsigned count = 0;
        for (; count < BATCH && n < num_objects; count++, n++) {
            fds[count] = export_bo(fd, n + 1, DRM_RDWR | DRM_CLOEXEC);
            CHECK(fds[count] >= 0);
        }
        send_fds(sockets[0], fds, count);
        for (unsigned i = 0; i < count; i++)
            close(fds[i]);
    }
    CHECK_EQ(open_fds(), at_rest);
    CHECK_EQ(wait_for(child), 0);
    close(sockets[0]);
    close_node(fd);
    check_nothing_left(0);
    return 0;
}
