/* Both ends of the object stream, the answer that brings objects and the byte stream, against a peer that says what
 * the input says. Whatever it is, no descriptor stays open, no object is counted twice and nothing is written beyond
 * the columns. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "byte_stream.h"
#include "fds.h"
#include "object_reply.h"
#include "object_stream.h"
#include "slice.h"

enum { MOST_OBJECTS = 600, MOST_FDS_SENT = 253, OPEN_FDS = 1024 };

static uint64_t imported;
static uint32_t failing;

/* Objects of the fuzzer are numbers; a descriptor of one is an eventfd, and any descriptor comes back as one. */
static int export_numbers(void *device, const uint64_t *objects, uint64_t count, int32_t *fds, uint64_t *done)
{
    (void)device;
    (void)objects;
    for (*done = 0; *done < count; ++*done) {
        if (failing && *done == failing % 64)
            return failing % 3 == 0 ? -EMFILE : -ENOMEM;
        fds[*done] = eventfd(0, EFD_CLOEXEC);
        if (fds[*done] < 0)
            return -errno;
    }
    return 0;
}

static int import_numbers(void *device, const int32_t *fds, const uint64_t *declared, uint64_t count, uint64_t *objects,
                          uint64_t *done)
{
    (void)device;
    (void)declared;
    for (*done = 0; *done < count; ++*done) {
        if (failing && *done == failing % 64)
            return -EINVAL;
        REQUIRE(fcntl(fds[*done], F_GETFD) & FD_CLOEXEC);
        objects[*done] = ++imported;
    }
    return 0;
}

static void sizes_of(void *device, const uint64_t *objects, uint64_t count, uint64_t *sizes)
{
    (void)device;
    for (uint64_t i = 0; i < count; i++)
        sizes[i] = failing % 7 == 6 && objects[i] % 16 == 15 ? 8192 : 4096;
}

static const struct object_stream_ops ops = {.export = export_numbers, .import = import_numbers, .sizes = sizes_of};

static uint32_t open_fds(void)
{
    return OPEN_FDS - fds_free(OPEN_FDS);
}

/* One message of the peer, with as many descriptors as it says; false when no more fit into the socket. */
static bool say(struct input *input, int socket, uint64_t next)
{
    uint8_t how = take8(input), bytes[64] = {0};
    uint32_t count = how & 0x80 ? take8(input) % (MOST_FDS_SENT + 1) : how % 4;
    uint64_t header[2] = {next, count};
    size_t size = sizeof(header);
    struct iovec part = {.iov_base = bytes};
    int32_t fds[MOST_FDS_SENT];
    int rc;

    if (how & 0x40) /* another place, another count, another last word */
        ((uint8_t *)header)[take8(input) % sizeof(header)] ^= take8(input);
    memcpy(bytes, header, sizeof(header));
    if (how & 0x20) {
        size = take8(input) % (sizeof(bytes) + 1);
        for (size_t i = 0; i < size; i++)
            bytes[i] = take8(input);
    }
    part.iov_len = size;
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = eventfd(0, EFD_CLOEXEC);
        REQUIRE(fds[i] >= 0);
    }
    if (count)
        rc = object_stream_send_fds(socket, &part, 1, fds, count);
    else
        rc = send(socket, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
    fds_close(fds, count);
    return rc == 0;
}

/* All that the peer says; then it says no more, or ends. */
static void converse(struct input *input, int socket, uint64_t count)
{
    uint8_t how = take8(input);
    uint64_t next = 0;

    for (int i = 0; i < 12 && input->left; i++) {
        if (!say(input, socket, next))
            break;
        next = how & 1 && next < count ? next + 1 : next;
    }
    shutdown(socket, SHUT_WR);
}

static void receive(struct input *input, int ours, int peer)
{
    uint64_t sizes[MOST_OBJECTS], objects[MOST_OBJECTS + 1] = {0};
    struct stream_receive state = {.socket = ours, .sizes = sizes, .objects = objects};
    int rc;

    state.count = take16(input) % (MOST_OBJECTS + 1);
    state.deadline = now_ns() + 2000000;
    objects[state.count] = UINT64_MAX;
    for (uint64_t i = 0; i < state.count; i++)
        sizes[i] = 4096;
    converse(input, peer, state.count);
    do {
        rc = object_stream_receive(&ops, NULL, &state);
    } while (rc == -EINTR);
    REQUIRE(state.received <= state.count && objects[state.count] == UINT64_MAX);
    REQUIRE(rc == 0 ? state.received == state.count : state.reason != STREAM_OK);
    REQUIRE(state.received == imported);
}

static void send_objects(struct input *input, int ours, int peer)
{
    uint64_t objects[MOST_OBJECTS] = {0};
    struct stream_send state = {.socket = ours, .objects = objects};
    int rc;

    state.count = take16(input) % (MOST_OBJECTS + 1);
    state.deadline = now_ns() + 2000000;
    converse(input, peer, state.count);
    do {
        rc = object_stream_send(&ops, NULL, &state);
    } while (rc == -EINTR);
    REQUIRE(state.acknowledged <= state.sent && state.sent <= state.count);
    REQUIRE(rc == 0 ? state.acknowledged == state.count : state.reason != STREAM_OK);
}

static void import_answer(struct input *input)
{
    uint64_t sizes[REPLY_ROOM], objects[REPLY_ROOM + 1] = {0};
    int32_t fds[REPLY_ROOM];
    struct object_arrival arrival = {.fds = fds, .sizes = sizes, .objects = objects};
    int rc;

    arrival.count = take8(input) % (REPLY_ROOM + 1);
    objects[arrival.count] = UINT64_MAX;
    for (uint64_t i = 0; i < arrival.count; i++) {
        fds[i] = eventfd(0, EFD_CLOEXEC);
        sizes[i] = take8(input) < 0xf8 ? 4096 : take64(input);
    }
    rc = object_reply_import(&ops, NULL, &arrival);
    REQUIRE(arrival.made <= arrival.count && arrival.made == imported && objects[arrival.count] == UINT64_MAX);
    REQUIRE(rc == 0 ? arrival.made == arrival.count : arrival.failed <= arrival.count);
}

static void receive_bytes(struct input *input, int ours, int peer)
{
    uint8_t into[256];
    struct byte_stream stream = {.socket = ours, .data = into};
    int rc;

    memset(into, 0xee, sizeof(into));
    stream.size = take8(input) % sizeof(into);
    stream.message = 1 + take8(input) % 64;
    stream.deadline = now_ns() + 2000000;
    converse(input, peer, 0);
    do {
        rc = byte_stream_receive(&stream);
    } while (rc == -EINTR);
    REQUIRE(stream.done <= stream.size && (rc || stream.done == stream.size));
    for (uint64_t i = stream.size; i < sizeof(into); i++)
        REQUIRE(into[i] == 0xee);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.bytes = data, .left = size};
    uint32_t before = open_fds();
    uint8_t what = take8(&input);
    int ends[2];

    imported = 0;
    failing = what & 0x80 ? take8(&input) : 0;
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    if (what % 4 == 0)
        receive(&input, ends[0], ends[1]);
    else if (what % 4 == 1)
        send_objects(&input, ends[0], ends[1]);
    else if (what % 4 == 2)
        import_answer(&input);
    else
        receive_bytes(&input, ends[0], ends[1]);
    close(ends[0]);
    close(ends[1]);
    REQUIRE(open_fds() == before);
    return 0;
}
