/* The object stream, both ends: one descriptor an object, in batches, acknowledged. */
#include "yardstick.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

union control {
    struct cmsghdr header;
    char space[CMSG_SPACE(BATCH * sizeof(int))];
};

void send_objects(const struct device *device, int fd, const struct row *rows, uint64_t count)
{
    struct ack ack;
    uint64_t sent = 0;
    uint32_t outstanding = 0;

    receive_all(fd, &ack, sizeof(ack));
    while (sent < count) {
        int fds[BATCH];
        uint32_t n = count - sent < BATCH ? (uint32_t)(count - sent) : BATCH;
        struct batch batch = {.first = sent, .count = n};
        union control control;
        struct iovec part = {.iov_base = &batch, .iov_len = sizeof(batch)};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(n * sizeof(int))};

        for (uint32_t i = 0; i < n; i++) {
            struct drm_prime_handle prime = {.handle = (uint32_t)rows[sent + i].object,
                                             .flags = DRM_CLOEXEC | DRM_RDWR};

            device_ioctl(device, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime, "PRIME_HANDLE_TO_FD");
            fds[i] = prime.fd;
        }
        control.header =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n * sizeof(int))};
        memcpy(CMSG_DATA(&control.header), fds, n * sizeof(int));
        if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
            fail("sendmsg");
        for (uint32_t i = 0; i < n; i++)
            close(fds[i]);
        sent += n;
        if (++outstanding > WINDOW - 1) {
            receive_all(fd, &ack, sizeof(ack));
            outstanding--;
        }
    }
    for (; outstanding; outstanding--)
        receive_all(fd, &ack, sizeof(ack));
}

static uint32_t receive_batch(int fd, uint64_t first, int *fds)
{
    struct batch batch;
    union control control;
    struct iovec part = {.iov_base = &batch, .iov_len = sizeof(batch)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != sizeof(batch) || message.msg_flags & MSG_CTRUNC)
        fail("recvmsg");
    if (batch.first != first || control.header.cmsg_len != CMSG_LEN(batch.count * sizeof(int)))
        fail("batch");
    memcpy(fds, CMSG_DATA(&control.header), batch.count * sizeof(int));
    return batch.count;
}

void receive_objects(const struct device *device, int fd, const struct extent *extents, uint64_t count,
                     uint32_t *handles, struct times *times)
{
    struct ack ack = {.credit = BATCH};
    uint64_t begin = now();

    send_all(fd, &ack, sizeof(ack));
    while (ack.received < count) {
        int fds[BATCH];
        uint32_t n = receive_batch(fd, ack.received, fds);
        uint64_t arrived = now();

        for (uint32_t i = 0; i < n; i++) {
            struct drm_prime_handle prime = {.fd = fds[i]};
            struct stat status;

            if (fstat(fds[i], &status) < 0 || (uint64_t)status.st_size != extents[ack.received + i].size)
                fail("fstat");
            device_ioctl(device, DRM_IOCTL_PRIME_FD_TO_HANDLE, &prime, "PRIME_FD_TO_HANDLE");
            handles[ack.received + i] = prime.handle;
            close(fds[i]);
        }
        times->import += now() - arrived;
        ack.received += n;
        send_all(fd, &ack, sizeof(ack));
    }
    times->receive = now() - begin - times->import;
}
