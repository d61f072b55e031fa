/* The mock's ioctl surface: sequences of ioctls with arguments made of likely values, on two files of one device.
 * Whatever they answer, nothing crashes, hangs or stays behind. EXEC is left out: it would write where a bind points.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core.h"
#include "xe_mock.h"
#include "xe_uapi.h"

enum { SCRATCH_PAGES = 64, MOST_CALLS = 200, MOST_FDS = 128 };

/* Counts beyond all reason are asked for: that is ENOMEM, not the end. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=64";
}

static uint64_t *scratch;
/* What ioctls of this input gave back: ids, handles, offsets. */
static uint64_t given[64];
static uint32_t given_count;
static uint32_t rows[XE_MOCK_MAX_IOCTLS];
static uint32_t row_count;

static void set_up(void)
{
    const struct xe_mock_config config = {.profile = "bmg", .vram_size = 64 << 20, .system_size = 64 << 20};
    const struct rlimit few = {MOST_FDS, MOST_FDS};
    size_t size = SCRATCH_PAGES * PAGE_SIZE;
    char *guarded = mmap(NULL, 3 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    REQUIRE(guarded != MAP_FAILED);
    REQUIRE(xe_mock_configure(0, &config) == 0);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    scratch = (uint64_t *)(guarded + size);
    REQUIRE(mprotect(scratch, size, PROT_READ | PROT_WRITE) == 0);
    munmap((char *)scratch + size / 2, PAGE_SIZE); /* with a hole */
    for (uint32_t nr = 0; nr < XE_MOCK_MAX_IOCTLS; nr++) {
        if (ioctl_table[nr].handler && ioctl_table[nr].request != DRM_IOCTL_XE_EXEC)
            rows[row_count++] = nr;
    }
}

/* A value that some field may well accept, or just not; never the address of anything but the scratch pages. */
static uint64_t take_value(struct input *input)
{
    uint8_t what = take8(input);

    switch (what % 16) {
    case 0:
    case 1:
    case 2:
        return what / 16;
    case 3:
        return (uint64_t)PAGE_SIZE << what / 16;
    case 4:
        return (uintptr_t)scratch + what / 16 * 128ull;
    case 5:
        return (uintptr_t)scratch + take8(input) % SCRATCH_PAGES * (uint64_t)PAGE_SIZE;
    case 6:
        return (uintptr_t)scratch + take16(input) % (SCRATCH_PAGES * PAGE_SIZE);
    case 7:
        return ~0ull << take8(input) % 64;
    case 8:
        return 1ull << take8(input) % 64;
    case 9:
        return (uint64_t)(1 + what / 16 % 4) << 32 | what / 64;
    case 10:
        return take8(input);
    case 11:
        return take16(input);
    case 12:
        return (uint64_t)take8(input) << 32 | take8(input);
    case 13:
        return (uint64_t)take16(input) * PAGE_SIZE;
    case 14:
        return what / 16 * (uint64_t)PAGE_SIZE;
    default: {
        uint64_t value = given[take8(input) % 64];

        return what / 16 % 2 ? value | (uint64_t)take8(input) << 32 : value;
    }
    }
}

static void remember(const uint64_t *before, const uint64_t *after, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t low = (uint32_t)after[i], high = (uint32_t)(after[i] >> 32);

        if (before[i] == after[i])
            continue;
        given[given_count++ % 64] = low;
        if (high != (uint32_t)(before[i] >> 32))
            given[given_count++ % 64] = high;
    }
}

static void take_words(struct input *input, uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        words[i] = take_value(input);
        /* AddressSanitizer's shadow is there, but not to be touched. */
        if (words[i] >= 0x7fff8000 && words[i] < 0x10007fff8000)
            words[i] = 0;
    }
}

/* A wait must not last: absolute time 0, or a tenth of a millisecond. */
static void bound_waits(uint32_t request, uint64_t *words)
{
    if (request == DRM_IOCTL_SYNCOBJ_WAIT)
        words[1] = 0;
    if (request == DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT)
        words[2] = 0;
    if (request == DRM_IOCTL_XE_WAIT_USER_FENCE)
        words[5] %= 100000;
}

/* Descriptors of the fuzzer itself stay out of it. */
static void spare_descriptors(uint32_t request, uint64_t *words)
{
    if (request == DRM_IOCTL_PRIME_FD_TO_HANDLE || request == DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE ||
        request == DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD)
        words[1] = (words[1] & ~0xffffffffull) | (uint32_t)words[1] % MOST_FDS;
}

static void close_from(int first)
{
    for (int fd = first; fd < MOST_FDS; fd++)
        xe_mock_ops()->close(fd);
}

static void call(struct input *input, int node)
{
    const struct ioctl_row *row = &ioctl_table[rows[take8(input) % row_count]];
    uint8_t how = take8(input);
    uint64_t argument[32] = {0}, before[32];
    int rc;

    if (how & 0x80) {
        uint8_t at = take8(input);

        take_words(input, scratch + at * 16, take8(input) % 64);
    }
    take_words(input, argument, 1 + how % 20);
    bound_waits(row->request, argument);
    spare_descriptors(row->request, argument);
    memcpy(before, argument, sizeof(before));
    rc = xe_mock_ioctl(node, row->request, argument);
    REQUIRE(rc > -200);
    if (rc == 0)
        remember(before, argument, 32);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.bytes = data, .left = size};
    struct xe_mock_stats stats;
    int first, nodes[2];

    if (!scratch)
        set_up();
    memset(scratch, 0, SCRATCH_PAGES / 2 * PAGE_SIZE);
    memset(given, 0, sizeof(given));
    given_count = 0;
    first = dup(0);
    REQUIRE(first >= 0);
    close(first);
    for (int i = 0; i < 2; i++) {
        nodes[i] = xe_mock_open(0, i, O_CLOEXEC);
        REQUIRE(nodes[i] >= 0);
    }
    for (int i = 0; i < MOST_CALLS && input.left; i++) {
        uint8_t which = take8(&input);

        if (which == 0xff) /* a client ends, another begins */
            close_from(nodes[1] + 1);
        call(&input, nodes[which % 2]);
    }
    close_from(first);
    REQUIRE(xe_mock_stats(0, &stats) == 0);
    REQUIRE(!stats.files && !stats.handles && !stats.vms && !stats.objects && !stats.mappings);
    return 0;
}
