/* The desk against peers that say what the input says, in any order: who is answered said a whole handle that is
 * offered, every event keeps within its bounds, and no descriptor stays open. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "desk.h"
#include "fds.h"

enum { PEERS = 6, OFFERS = 3, MANIFEST = 3000, FIRST = 1024, OPEN_FDS = 1024, GENERATION_AT = 48 };

static const uint8_t magic[4] = {'Z', 'Q', '0', '1'};
static uint8_t handles[OFFERS][DESK_HANDLE];
static uint8_t manifest[MANIFEST];
static const uint64_t objects[70];
/* Requests that name an export to the last byte. */
static uint64_t honest;

static int export_numbers(void *device, const uint64_t *numbers, uint64_t count, int32_t *fds, uint64_t *done)
{
    (void)device;
    (void)numbers;
    for (*done = 0; *done < count; ++*done) {
        fds[*done] = eventfd(0, EFD_CLOEXEC);
        if (fds[*done] < 0)
            return -errno;
    }
    return 0;
}

static const struct object_stream_ops ops = {.export = export_numbers};

static void offer_all(struct desk *desk)
{
    static const struct desk_export kinds[OFFERS] = {
        {.manifest_size = 100, .count = 2},
        {.manifest_size = MANIFEST, .count = 2},
        {.manifest_size = 100, .count = 70},
    };

    for (unsigned i = 0; i < OFFERS; i++) {
        struct desk_export offer = kinds[i];

        memset(handles[i], (int)(0x41 + i), DESK_HANDLE);
        memset(handles[i] + GENERATION_AT, 0, 8);
        handles[i][GENERATION_AT] = (uint8_t)(i + 1);
        offer.generation = i + 1;
        offer.handle = handles[i];
        offer.head = (const uint8_t *)"head";
        offer.head_size = 4;
        offer.manifest = manifest;
        offer.objects = objects;
        REQUIRE(desk_offer(desk, &offer) == 0);
    }
}

/* One message: a request, perhaps with a byte changed or of another length. */
static void say(struct input *input, int peer)
{
    uint8_t what = take8(input), message[DESK_REQUEST + 8] = {0};
    size_t size = DESK_REQUEST;

    memcpy(message, magic, sizeof(magic));
    message[4] = what & 3;
    message[6] = what & 4 ? take8(input) : 0;
    memcpy(message + 8, handles[(what >> 3) % OFFERS], DESK_HANDLE);
    if (what & 0x40)
        message[take8(input) % sizeof(message)] ^= take8(input);
    if (what & 0x80)
        size = take8(input) % sizeof(message);
    for (unsigned i = 0; i < OFFERS; i++)
        honest += size == DESK_REQUEST && memcmp(message + 8, handles[i], DESK_HANDLE) == 0;
    send(peer, message, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Takes what the desk said; its descriptors are closed. */
static void hear(int peer)
{
    uint8_t bytes[4096], control[CMSG_SPACE(DESK_ROOM * sizeof(int))];
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fds[DESK_ROOM];

    if (recvmsg(peer, &message, MSG_DONTWAIT) < 0)
        return;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        size_t size = header->cmsg_len - CMSG_LEN(0);

        memcpy(fds, CMSG_DATA(header), size);
        fds_close(fds, size / sizeof(int));
    }
}

static void run(struct desk *desk, int listening)
{
    struct desk_event events[DESK_ROOM];
    int count;

    /* What it leaves as it was is seen. */
    memset(events, 0x7f, sizeof(events));
    count = desk_wait(desk, listening, 0, events, DESK_ROOM);

    REQUIRE(count >= 0 && count <= DESK_ROOM);
    for (int i = 0; i < count; i++) {
        REQUIRE(events[i].kind <= DESK_HEARD);
        if (events[i].kind == DESK_READY)
            continue;
        REQUIRE(events[i].kind != DESK_STRANGER || events[i].length == 0);
        REQUIRE(events[i].length <= DESK_REQUEST + 1 && events[i].generation <= OFFERS);
        REQUIRE(events[i].kind == DESK_HEARD || events[i].generation == 0);
        close(events[i].fd);
    }
}

static int listen_somewhere(struct sockaddr_un *address)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    socklen_t size = sizeof(*address);
    int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    REQUIRE(listening >= 0);
    /* An address of the kernel's choice. */
    REQUIRE(bind(listening, (struct sockaddr *)&any, sizeof(any.sun_family)) == 0);
    REQUIRE(listen(listening, PEERS) == 0);
    memset(address, 0, sizeof(*address));
    REQUIRE(getsockname(listening, (struct sockaddr *)address, &size) == 0);
    return listening;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t second = 1000000000;
    struct desk_rules rules = {.skip_objects = 1,
                               .first = FIRST,
                               .rest = FIRST,
                               .heard = 4,
                               .streams = 2,
                               .streams_a_peer = 2,
                               .early = 10 * second,
                               .last_word = 10 * second,
                               .stream = second / 50,
                               .stream_an_object = 1};
    struct input input = {.bytes = data, .left = size};
    uint32_t before = OPEN_FDS - fds_free(OPEN_FDS);
    int epoll = epoll_create1(EPOLL_CLOEXEC), peers[PEERS];
    struct epoll_event event = {.events = EPOLLIN};
    struct sockaddr_un address;
    int listening = listen_somewhere(&address);
    struct desk *desk;

    memcpy(rules.magic, magic, sizeof(magic));
    desk = desk_create(&ops, NULL, &rules, epoll);
    REQUIRE(desk && epoll >= 0);
    event.data.fd = listening;
    REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event) == 0);
    offer_all(desk);
    honest = 0;
    for (unsigned i = 0; i < PEERS; i++)
        peers[i] = -1;
    for (unsigned step = 0; step < 60 && input.left; step++) {
        uint8_t what = take8(&input);
        int *peer = &peers[what % PEERS];

        if (*peer < 0) {
            *peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            REQUIRE(*peer >= 0);
            connect(*peer, (struct sockaddr *)&address, sizeof(address.sun_family) + 6);
        }
        if (what < 0xa0)
            say(&input, *peer);
        else if (what < 0xc0)
            hear(*peer);
        else if (what < 0xd0)
            desk_withdraw(desk, what % (OFFERS + 1), what & 1);
        else if (what < 0xe0) {
            close(*peer);
            *peer = -1;
        }
        if (what & 1)
            run(desk, listening);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        if (peers[i] >= 0)
            close(peers[i]);
    }
    run(desk, listening);
    REQUIRE(desk_answered(desk) <= honest);
    REQUIRE(desk_close(desk, INT64_MAX / 2));
    desk_abandon(desk);
    desk_free(desk);
    close(listening);
    close(epoll);
    REQUIRE(OPEN_FDS - fds_free(OPEN_FDS) == before);
    return 0;
}
