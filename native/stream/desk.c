#include "desk.h"
#include "byte_stream.h"
#include "desk_exports.h"
#include "fds.h"
#include "object_reply.h"
#include "slice.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { AT_ONCE = 32, FDS_NEEDED = 2, SPOKEN_AT_ONCE = 16 };

enum state {
    FREE,
    /* Has connected and asked nothing yet. */
    EARLY,
    /* Its last word is there, and may wait a little: Python would take the processor from the peer. */
    SPOKEN,
    /* A thread of ours sends. */
    STREAMING,
    /* Its last word is waited for. */
    ANSWERED,
};

struct conn {
    enum state state;
    int fd;
    struct ucred peer;
    int64_t deadline;
    uint64_t generation;
    /* While a stream runs, and until its event: counted there. */
    struct desk_entry *entry;
    /* What a stream ended with. */
    int rc;
    bool with_objects;
    struct desk *desk;
};

struct desk {
    const struct object_stream_ops *ops;
    void *device;
    struct desk_rules rules;
    int epoll;
    /* Guards everything below. */
    pthread_mutex_t lock;
    pthread_cond_t stream_ended;
    struct desk_exports exports;
    struct conn *conns;
    /* Threads that have not ended. */
    uint32_t streams;
    uint64_t answered;
    bool closed;
    uint32_t spoken;
};

struct desk *desk_create(const struct object_stream_ops *ops, void *device, const struct desk_rules *rules, int epoll)
{
    struct desk *desk = calloc(1, sizeof(*desk));
    pthread_condattr_t attributes;

    if (!desk)
        return NULL;
    desk->conns = calloc(rules->heard, sizeof(*desk->conns));
    if (!desk->conns) {
        free(desk);
        return NULL;
    }
    desk->ops = ops;
    desk->device = device;
    desk->rules = *rules;
    desk->epoll = epoll;
    pthread_mutex_init(&desk->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&desk->stream_ended, &attributes);
    pthread_condattr_destroy(&attributes);
    return desk;
}

int desk_offer(struct desk *desk, const struct desk_export *offer)
{
    int rc;

    pthread_mutex_lock(&desk->lock);
    rc = desk->closed ? -ESHUTDOWN : desk_exports_add(&desk->exports, offer);
    pthread_mutex_unlock(&desk->lock);
    return rc;
}

int desk_withdraw(struct desk *desk, uint64_t generation, int interrupt)
{
    int rc;

    pthread_mutex_lock(&desk->lock);
    rc = desk_exports_remove(&desk->exports, generation);
    for (uint32_t i = 0; interrupt && i < desk->rules.heard; i++) {
        struct conn *conn = &desk->conns[i];

        if (conn->state >= STREAMING && conn->generation == generation)
            shutdown(conn->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&desk->lock);
    return rc;
}

uint64_t desk_answered(struct desk *desk)
{
    uint64_t answered;

    pthread_mutex_lock(&desk->lock);
    answered = desk->answered;
    pthread_mutex_unlock(&desk->lock);
    return answered;
}

int desk_close(struct desk *desk, int64_t deadline)
{
    const struct timespec until = {.tv_sec = deadline / 1000000000LL, .tv_nsec = deadline % 1000000000LL};
    int ended;

    pthread_mutex_lock(&desk->lock);
    desk->closed = true;
    for (uint32_t i = 0; i < desk->rules.heard; i++) {
        if (desk->conns[i].state >= STREAMING)
            shutdown(desk->conns[i].fd, SHUT_RDWR);
    }
    while (desk->streams && pthread_cond_timedwait(&desk->stream_ended, &desk->lock, &until) == 0)
        ;
    ended = desk->streams == 0;
    for (uint32_t i = 0; ended && i < desk->rules.heard; i++) {
        if (desk->conns[i].entry)
            desk_entry_end(desk->conns[i].entry);
        desk->conns[i].entry = NULL;
    }
    if (ended)
        desk_exports_clear(&desk->exports);
    pthread_mutex_unlock(&desk->lock);
    return ended;
}

void desk_abandon(struct desk *desk)
{
    /* No lock: in a forked child a thread that is not there may hold it. */
    for (uint32_t i = 0; i < desk->rules.heard; i++) {
        struct conn *conn = &desk->conns[i];

        if (conn->state != FREE)
            close(conn->fd);
        conn->state = FREE;
    }
}

void desk_free(struct desk *desk)
{
    pthread_cond_destroy(&desk->stream_ended);
    pthread_mutex_destroy(&desk->lock);
    free(desk->conns);
    free(desk);
}

/* ---- all below with the lock held, but for the streams ---- */

static struct conn *free_conn(struct desk *desk)
{
    for (uint32_t i = 0; i < desk->rules.heard; i++) {
        if (desk->conns[i].state == FREE)
            return &desk->conns[i];
    }
    return NULL;
}

static struct conn *conn_of(struct desk *desk, int fd)
{
    for (uint32_t i = 0; i < desk->rules.heard; i++) {
        struct conn *conn = &desk->conns[i];

        if ((conn->state == EARLY || conn->state == ANSWERED) && conn->fd == fd)
            return conn;
    }
    return NULL;
}

static int listen_to(struct desk *desk, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};

    if (epoll_ctl(desk->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return 0;
    return errno == EEXIST ? epoll_ctl(desk->epoll, EPOLL_CTL_MOD, fd, &event) : -1;
}

static int hand_over(struct desk_event *event, uint32_t kind, int fd, const struct ucred *peer)
{
    event->kind = kind;
    event->fd = fd;
    event->pid = peer->pid;
    event->uid = peer->uid;
    event->gid = peer->gid;
    event->generation = 0;
    event->ended = 0;
    /* A stranger has said nothing; what an earlier event left here is not its message. */
    if (kind == DESK_STRANGER)
        event->length = 0;
    return 1;
}

static int stream(const struct desk *desk, const struct conn *conn)
{
    const struct desk_export *what = &conn->entry->offer;
    uint64_t first = what->manifest_size < desk->rules.first ? what->manifest_size : desk->rules.first;
    struct byte_stream bytes = {.socket = conn->fd,
                                .data = (uint8_t *)(uintptr_t)what->manifest + first,
                                .size = what->manifest_size - first,
                                .message = desk->rules.rest,
                                .deadline = conn->deadline};
    struct stream_send objects = {
        .socket = conn->fd, .objects = what->objects, .count = what->count, .deadline = conn->deadline};
    int rc;

    do {
        rc = byte_stream_send(&bytes);
    } while (rc == -EINTR);
    if (rc < 0 || !conn->with_objects)
        return rc;
    do {
        rc = object_stream_send(desk->ops, desk->device, &objects);
    } while (rc == -EINTR);
    return rc;
}

static void *run_stream(void *argument)
{
    struct conn *conn = argument;
    struct desk *desk = conn->desk;
    int rc = stream(desk, conn);

    pthread_mutex_lock(&desk->lock);
    conn->rc = rc;
    if (rc < 0)
        shutdown(conn->fd, SHUT_RDWR);
    conn->deadline = now_ns() + desk->rules.last_word;
    conn->state = ANSWERED;
    listen_to(desk, conn->fd);
    desk->streams--;
    pthread_cond_broadcast(&desk->stream_ended);
    pthread_mutex_unlock(&desk->lock);
    return NULL;
}

static int start_thread(struct conn *conn)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int rc;

    /* Python's signals are for its own threads. */
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attributes, run_stream, conn);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -rc;
}

static bool may_stream(const struct desk *desk, pid_t pid)
{
    uint32_t same = 0;

    for (uint32_t i = 0; i < desk->rules.heard; i++)
        same += desk->conns[i].state == STREAMING && desk->conns[i].peer.pid == pid;
    return desk->streams < desk->rules.streams && same <= desk->rules.streams_a_peer &&
           fds_free(FDS_NEEDED) == FDS_NEEDED;
}

/* The answer with all objects, or with what describes them: 0, or -errno and nothing was sent. */
static int answer(struct desk *desk, struct conn *conn, uint16_t room)
{
    const struct desk_export *what = &conn->entry->offer;
    uint64_t first = what->manifest_size < desk->rules.first ? what->manifest_size : desk->rules.first;
    struct iovec parts[] = {{.iov_base = (void *)(uintptr_t)what->head, .iov_len = what->head_size},
                            {.iov_base = (void *)(uintptr_t)what->manifest, .iov_len = first}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

    if (conn->with_objects && what->count <= REPLY_ROOM && first == what->manifest_size) {
        const struct object_reply reply = {.socket = conn->fd,
                                           .count = (uint32_t)what->count,
                                           .objects = what->objects,
                                           .head = what->head,
                                           .head_size = what->head_size,
                                           .body = what->manifest,
                                           .body_size = first};

        if (what->count > room)
            return -EMFILE;
        conn->state = ANSWERED;
        return object_reply_send(desk->ops, desk->device, &reply);
    }
    conn->state = conn->with_objects || first < what->manifest_size ? STREAMING : ANSWERED;
    if (conn->state == STREAMING && !may_stream(desk, conn->peer.pid))
        return -EAGAIN;
    return sendmsg(conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Whether the request was answered, or failed on the way; else it is Python's. */
static bool serve(struct desk *desk, struct conn *conn, const uint8_t *request, ssize_t length)
{
    uint16_t flags, room;

    conn->state = FREE;
    if (length != DESK_REQUEST || memcmp(request, desk->rules.magic, sizeof(desk->rules.magic)) || desk->closed)
        return false;
    memcpy(&flags, request + 4, sizeof(flags));
    memcpy(&room, request + 6, sizeof(room));
    flags = le16toh(flags);
    if ((flags && flags != desk->rules.skip_objects) || (flags && room))
        return false;
    conn->entry = desk_exports_find(&desk->exports, request + 8);
    if (!conn->entry)
        return false;
    conn->generation = conn->entry->offer.generation;
    conn->with_objects = !flags;
    conn->rc = 0;
    if (answer(desk, conn, le16toh(room)) < 0) {
        conn->entry = NULL;
        conn->state = FREE;
        return false;
    }
    desk->answered++;
    if (conn->state == ANSWERED) {
        conn->entry = NULL;
        conn->deadline = now_ns() + desk->rules.last_word;
        if (listen_to(desk, conn->fd) == 0)
            return true;
    } else {
        conn->deadline =
            now_ns() + desk->rules.stream + desk->rules.stream_an_object * (int64_t)conn->entry->offer.count;
        if (start_thread(conn) == 0) {
            conn->entry->streams++;
            desk->streams++;
            return true;
        }
        conn->entry = NULL;
    }
    close(conn->fd);
    conn->state = FREE;
    return true;
}

/* A connection whose request may be there already. */
static int look(struct desk *desk, struct conn *conn, struct desk_event *event)
{
    ssize_t got = recv(conn->fd, event->message, sizeof(event->message), MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        if (conn->state == FREE)
            conn->deadline = now_ns() + desk->rules.early;
        conn->state = EARLY;
        if (listen_to(desk, conn->fd) == 0)
            return 0;
    } else if (got > 0) {
        if (serve(desk, conn, event->message, got))
            return 0;
        event->length = (int32_t)got;
        return hand_over(event, DESK_ASKED, conn->fd, &conn->peer);
    }
    close(conn->fd);
    conn->state = FREE;
    return 0;
}

static int accept_one(struct desk *desk, int listening, struct desk_event *event)
{
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t size = sizeof(peer);
    struct conn *conn;

    if (fd < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR)
            return 0;
        /* Python meets the same error, and knows what to do. */
        *event = (struct desk_event){.kind = DESK_READY, .fd = listening};
        return 1;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
        close(fd);
        return 0;
    }
    conn = free_conn(desk);
    if (peer.uid != geteuid() || peer.pid <= 0 || !conn)
        return hand_over(event, DESK_STRANGER, fd, &peer);
    conn->fd = fd;
    conn->peer = peer;
    conn->desk = desk;
    return look(desk, conn, event);
}

static int finish(struct conn *conn, struct desk_event *event, int32_t length)
{
    hand_over(event, DESK_HEARD, conn->fd, &conn->peer);
    event->generation = conn->generation;
    event->length = length;
    if (conn->entry)
        event->ended = desk_entry_end(conn->entry);
    conn->entry = NULL;
    conn->state = FREE;
    return 1;
}

static int hear(struct desk *desk, struct conn *conn, struct desk_event *event)
{
    ssize_t got;

    if (conn->rc < 0)
        return finish(conn, event, conn->rc);
    got = recv(conn->fd, event->message, sizeof(event->message), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) && listen_to(desk, conn->fd) == 0) {
        conn->deadline = now_ns() + desk->rules.last_word;
        return 0;
    }
    return finish(conn, event, got < 0 ? -errno : (int32_t)got);
}

/* What was put off: SPOKEN_AT_ONCE events at most. */
static uint32_t hear_all(struct desk *desk, struct desk_event *events)
{
    uint32_t count = 0;

    for (uint32_t i = 0; desk->spoken && i < desk->rules.heard; i++) {
        struct conn *conn = &desk->conns[i];

        if (conn->state != SPOKEN)
            continue;
        desk->spoken--;
        conn->state = ANSWERED;
        count += (uint32_t)hear(desk, conn, &events[count]);
    }
    return count;
}

static int put_off(struct desk *desk, struct conn *conn)
{
    int64_t deadline = now_ns() + desk->rules.patience;

    conn->state = SPOKEN;
    conn->deadline = deadline < conn->deadline ? deadline : conn->deadline;
    desk->spoken++;
    return 0;
}

static int see(struct desk *desk, int fd, int listening, struct desk_event *event)
{
    struct conn *conn;

    if (fd == listening)
        return accept_one(desk, listening, event);
    conn = conn_of(desk, fd);
    if (conn && conn->state == EARLY)
        return look(desk, conn, event);
    if (conn)
        return desk->spoken < SPOKEN_AT_ONCE ? put_off(desk, conn) : hear(desk, conn, event);
    *event = (struct desk_event){.kind = DESK_READY, .fd = fd};
    return 1;
}

/* Whose time is over; *next is when that will be so for another. */
static uint32_t expire(struct desk *desk, struct desk_event *events, uint32_t room, int64_t *next)
{
    int64_t now = now_ns();
    uint32_t count = 0;

    for (uint32_t i = 0; i < desk->rules.heard; i++) {
        struct conn *conn = &desk->conns[i];

        if (conn->state == STREAMING && *next > now + SLICE_NS)
            /* Its last word will have a deadline then. */
            *next = now + SLICE_NS;
        if (conn->state == FREE || conn->state == STREAMING)
            continue;
        if (conn->deadline > now) {
            *next = conn->deadline < *next ? conn->deadline : *next;
        } else if (count < room) {
            if (conn->state == SPOKEN) {
                desk->spoken--;
                conn->state = ANSWERED;
                count += (uint32_t)hear(desk, conn, &events[count]);
            } else if (conn->state == ANSWERED) {
                count += (uint32_t)finish(conn, &events[count], conn->rc < 0 ? conn->rc : -ETIME);
            } else {
                conn->state = FREE;
                count += (uint32_t)hand_over(&events[count], DESK_STRANGER, conn->fd, &conn->peer);
            }
        }
    }
    return count;
}

/* epoll_wait() counts milliseconds: rounded up, so that what was waited for has come. */
static int milliseconds(int64_t from, int64_t to)
{
    int64_t left = to == INT64_MAX ? -1 : to <= from ? 0 : (to - from + 999999) / 1000000;

    return left > INT_MAX ? INT_MAX : (int)left;
}

int desk_wait(struct desk *desk, int listening, int64_t timeout, struct desk_event *events, uint32_t room)
{
    int64_t until = timeout < 0 ? INT64_MAX : now_ns() + timeout;
    struct epoll_event ready[AT_ONCE];

    for (;;) {
        int64_t next = until;
        uint32_t count;
        int n;

        pthread_mutex_lock(&desk->lock);
        count = expire(desk, events, room, &next);
        pthread_mutex_unlock(&desk->lock);
        if (count)
            return (int)count;
        n = epoll_wait(desk->epoll, ready, room < AT_ONCE ? (int)room : AT_ONCE, milliseconds(now_ns(), next));
        if (n < 0)
            return errno == EINTR ? 0 : -errno;
        pthread_mutex_lock(&desk->lock);
        for (int i = 0; i < n; i++) {
            struct desk_event *event = &events[count];

            if (see(desk, ready[i].data.fd, listening, event)) {
                struct desk_event last = *event;

                /* Who says something after its last word is heard in that order. */
                count += hear_all(desk, event);
                events[count++] = last;
            }
        }
        pthread_mutex_unlock(&desk->lock);
        if (count || (n == 0 && now_ns() >= until))
            return (int)count;
    }
}
