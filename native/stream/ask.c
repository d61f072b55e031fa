#include "ask.h"
#include "fds.h"
#include "object_reply.h"
#include "object_stream.h"
#include "slice.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROOM_AT = 6, REPLY_SIZE = 24, STATUS_AT = 4, OBJECTS_AT = 16 };

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(ASK_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

/* An O_PATH descriptor of a directory in which only we, or root, can make sockets. */
static int open_ours(const char *path)
{
    struct stat status;
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) == 0 && (status.st_uid == 0 || status.st_uid == geteuid()) &&
        !(status.st_mode & (S_IWGRP | S_IWOTH)))
        return fd;
    close(fd);
    return -EXDEV;
}

static int dial(const char *directory, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, parent = open_ours(directory);
    int length, rc = 0;

    if (parent < 0)
        return parent;
    length = snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", parent, name);
    /* Without O_NONBLOCK an interrupted connect() cannot be told from a finished one. */
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        rc = -errno;
    else if (length < 0 || (size_t)length >= sizeof(address.sun_path))
        rc = -ENAMETOOLONG;
    else if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        rc = -errno;
    close(parent);
    if (rc < 0 && fd >= 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* Whatever the peer sends, and however often: no more than there is room for. */
static void take_fds(struct ask *ask, struct msghdr *message)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        uint64_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        for (uint64_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(header) + i * sizeof(fd), sizeof(fd));
            if (ask->count < ASK_FDS)
                ask->fds[ask->count++] = fd;
            else
                close(fd);
        }
    }
}

/* 0, -EAGAIN, -ENODATA at the end of the connection, or -errno. */
static int receive(struct ask *ask)
{
    union control control;
    struct iovec part = {.iov_base = ask->message, .iov_len = ask->room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    uint16_t room;
    ssize_t got;

    memcpy(&room, ask->request + ROOM_AT, sizeof(room));
    /* No room, no descriptors: the kernel drops what comes uninvited. */
    if (room) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(le16toh(room) * sizeof(int));
    }
    got = recvmsg(ask->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return -errno;
    take_fds(ask, &message);
    ask->lost = room && message.msg_flags & MSG_CTRUNC;
    ask->length = (uint64_t)got;
    /* Also an empty message, which may bring descriptors: nothing comes after it that is believed. */
    return got ? 0 : -ENODATA;
}

/* A broker that has objects to send and has sent none with its answer waits for the first ack. */
static bool will_stream(const struct ask *ask)
{
    uint32_t status;
    uint64_t objects;

    if (!ask->objects || ask->count || ask->length <= REPLY_SIZE || ask->lost)
        return false;
    memcpy(&status, ask->message + STATUS_AT, sizeof(status));
    memcpy(&objects, ask->message + OBJECTS_AT, sizeof(objects));
    return status == 0 && objects != 0;
}

static int64_t slice_of(const struct ask *ask)
{
    int64_t left = ask->patience ? ask->patience - now_ns() : SLICE_NS;

    return left < 0 ? 0 : left < SLICE_NS ? left : SLICE_NS;
}

static int put_question(struct ask *ask)
{
    uint16_t room = 0;

    if (ask->socket < 0)
        ask->socket = dial(ask->directory, ask->name);
    if (ask->socket < 0)
        return ask->socket;
    /* Only now, for the broker has to wake up anyway. */
    if (ask->objects)
        room = htole16((uint16_t)object_reply_room());
    memcpy(ask->request + ROOM_AT, &room, sizeof(room));
    /* A broker that has closed may have said why before. */
    if (send(ask->socket, ask->request, ASK_REQUEST, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EPIPE &&
        errno != ECONNRESET)
        return -errno;
    ask->asked = 1;
    return 0;
}

static int converse(struct ask *ask)
{
    bool reset = false;
    int rc = ask->asked ? 0 : put_question(ask);

    if (rc < 0)
        return rc;
    for (;;) {
        rc = object_stream_wait(ask->socket, POLLIN, slice_of(ask), ask->deadline);
        if (rc <= 0)
            return rc ? rc : -EINTR;
        rc = receive(ask);
        if (rc == -ECONNRESET && !reset)
            /* Looked past once: what was sent before it is still there. */
            reset = true;
        else if (rc != -EAGAIN)
            return rc == -ENODATA ? -ECONNRESET : rc;
    }
}

static int give_up(struct ask *ask, int rc)
{
    if (ask->socket >= 0)
        close(ask->socket);
    fds_close(ask->fds, ask->count);
    ask->count = 0;
    ask->socket = -1;
    /* An interrupted connect() has connected to nobody. */
    return rc == -EINTR ? -EAGAIN : rc;
}

int ask_start(void *unused, struct ask *ask)
{
    int rc = put_question(ask);

    (void)unused;
    return rc < 0 ? give_up(ask, rc) : 0;
}

int ask_broker(void *unused, struct ask *ask)
{
    int rc = converse(ask);

    (void)unused;
    if (rc == 0)
        ask->greeted = will_stream(ask) && object_stream_greet(ask->socket);
    return rc == 0 || (rc == -EINTR && ask->socket >= 0) ? rc : give_up(ask, rc);
}

int ask_tell(void *unused, struct tell *tell)
{
    int fd = tell->socket < 0 ? dial(tell->directory, tell->name) : tell->socket;
    int rc = 0;

    (void)unused;
    if (fd < 0)
        return fd;
    if (send(fd, tell->message, tell->size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        rc = -errno;
    close(fd);
    return rc;
}
