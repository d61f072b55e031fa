#include "xe_ask.h"
#include "slice.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LIMIT (1ull << 63)

/* ze_ipc.broker_protocol, ze_ipc.manifest.codec */
enum {
    REPLY_SIZE = 24,
    REPLY_MANIFEST = 32 << 10,
    HEADER_SIZE = 112,
    ROW_SIZE = 8 + 8 + 4 + 1,
    KERNEL_PAGE = 4096,
    VERSION = 1
};

struct reply {
    uint8_t magic[4];
    uint32_t status;
    uint64_t manifest_size;
    uint64_t objects;
};

struct header {
    uint8_t magic[4];
    uint16_t version;
    uint16_t size;
    uint32_t objects;
    uint32_t extents;
    uint64_t page_size;
    uint64_t window_offset;
    uint64_t window_size;
    uint64_t va_phase;
    uint8_t rest[HEADER_SIZE - 48];
};

_Static_assert(offsetof(struct xe_ask_open, ask) == 0, "one address is both");
_Static_assert(sizeof(struct reply) == REPLY_SIZE && sizeof(struct header) == HEADER_SIZE, "as they travel");

/* Whether the answer is there with all that belongs to it. */
static bool is_whole(const struct ask *ask)
{
    struct reply reply;

    if (!ask->objects || ask->lost || ask->count == 0 || ask->count > REPLY_ROOM || ask->length > ask->room ||
        ask->length < REPLY_SIZE + HEADER_SIZE || ask->length > REPLY_SIZE + REPLY_MANIFEST)
        return false;
    memcpy(&reply, ask->message, sizeof(reply));
    return !memcmp(reply.magic, "ZR01", 4) && reply.status == 0 &&
           le64toh(reply.manifest_size) == ask->length - REPLY_SIZE && le64toh(reply.objects) == ask->count;
}

static bool is_power_of_two(uint64_t value)
{
    return value && !(value & (value - 1));
}

/* The rules of ze_ipc.manifest.Glance, and a place for what it says. */
static bool prepare(struct xe_ask_open *what)
{
    const uint8_t *manifest = what->ask.message + REPLY_SIZE;
    struct xe_open *open = &what->open;
    uint64_t page, offset, size, phase, alignment, before;
    struct header header;

    memcpy(&header, manifest, sizeof(header));
    page = le64toh(header.page_size);
    offset = le64toh(header.window_offset);
    size = le64toh(header.window_size);
    phase = le64toh(header.va_phase);
    open->num_objects = le32toh(header.objects);
    open->count = le32toh(header.extents);
    if (memcmp(header.magic, "ZIPM", 4) || le16toh(header.version) != VERSION || le16toh(header.size) != HEADER_SIZE ||
        open->num_objects != what->ask.count || open->count < open->num_objects ||
        what->ask.length != REPLY_SIZE + HEADER_SIZE + 8 * open->num_objects + ROW_SIZE * open->count)
        return false;
    if (!is_power_of_two(page) || page < KERNEL_PAGE || page > what->phase_size || page % what->page_size ||
        phase % page || phase >= what->phase_size || !size || size >= LIMIT || offset >= page || what->reserve >= LIMIT)
        return false;
    open->columns = manifest + HEADER_SIZE;
    open->page_size = page;
    open->size = (offset + size + page - 1) & ~(page - 1);
    what->taken = (offset + what->reserve + what->page_size - 1) & ~(what->page_size - 1);
    if (what->taken < open->size)
        what->taken = open->size;
    alignment = what->taken >= what->phase_size ? what->phase_size : what->page_size;
    before = (phase - what->ground) & (alignment - 1);
    open->address = what->ground + before;
    return before <= what->ground_size && what->taken <= what->ground_size - before;
}

int xe_ask_open(struct xe_device *device, struct xe_ask_open *what)
{
    struct xe_open *open = &what->open;
    int64_t begin, deadline;
    int rc;

    what->opened = 0;
    rc = ask_broker(NULL, &what->ask);
    if (rc < 0 || !is_whole(&what->ask) || !prepare(what))
        return rc;
    open->fds = what->ask.fds;
    open->objects = what->objects;
    open->last_word = what->last_word;
    open->last_word_size = sizeof(what->last_word);
    open->socket = what->ask.socket;
    deadline = open->deadline = what->ask.deadline;
    if (what->ask.patience && what->ask.patience < deadline)
        open->deadline = what->ask.patience;
    begin = now_ns();
    rc = xe_open_extents(device, open);
    what->open_time = now_ns() - begin;
    open->deadline = deadline;
    if (rc < 0 && !open->submitted)
        return 0;
    what->opened = 1;
    what->ask.count = 0;
    if (rc == 0)
        what->ask.socket = -1;
    return rc == -ETIME && now_ns() < deadline ? -EINTR : rc;
}
