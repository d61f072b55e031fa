/* Every ioctl but EXEC with arguments made of likely values: whatever they answer, nothing crashes, hangs or stays
 * behind. */
#include <sys/resource.h>

#include "check.h"
#include "core.h"

/* Counts beyond all reason are asked for: that is ENOMEM, not the end of the test. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=64";
}

static uint64_t *scratch;
static const size_t scratch_size = 64 * PAGE;
static uint64_t state = 88172645463325252ull;

static uint64_t rnd(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* A value that some field may well accept, or just not. */
static uint64_t likely(void)
{
    switch (rnd() % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
        return 0;
    case 4:
    case 5:
    case 6:
        return 1 + rnd() % 8;
    case 7:
        return PAGE << rnd() % 8;
    case 8:
        return (uintptr_t)scratch + rnd() % 32 * 128;
    case 9:
        return (uintptr_t)scratch + rnd() % 64 * PAGE;
    case 10:
        return 8;
    case 11:
        return ~0ull << rnd() % 48;
    case 12:
        return 1ull << rnd() % 64;
    case 13:
        return (uint64_t)(1 + rnd() % 4) << 32 | rnd() % 4;
    default:
        return rnd() % 4 * PAGE;
    }
}

static void fill(uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        words[i] = rnd() % 3 ? likely() : likely() << 32 | (uint32_t)likely();
        if (words[i] >= 0x7fff8000 &&
            words[i] < 0x10007fff8000) /* AddressSanitizer's shadow: there, but not to be read */
            words[i] = 0;
    }
}

/* A wait must not last: absolute time 0, or a millisecond. */
static void bound_waits(uint32_t request, uint64_t *words)
{
    if (request == DRM_IOCTL_SYNCOBJ_WAIT)
        words[1] = 0;
    if (request == DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT)
        words[2] = 0;
    if (request == DRM_IOCTL_XE_WAIT_USER_FENCE)
        words[5] = rnd() % 1000000;
}

static void spare_descriptors(uint32_t request, uint64_t *words)
{
    if (request == DRM_IOCTL_PRIME_FD_TO_HANDLE || request == DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE ||
        request == DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD)
        words[1] = (words[1] & ~0xffffffffull) | rnd() % 64;
}

static void close_if_descriptor(uint32_t request, int r, const uint64_t *words)
{
    int fd = (int)words[1];
    if (r == 0 && (request == DRM_IOCTL_PRIME_HANDLE_TO_FD || request == DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD) && rnd() % 2)
        close(fd);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 150000;
    if (argc > 2)
        state ^= strtoull(argv[2], NULL, 0) << 20;
    const struct xe_mock_config config = {.profile = "bmg", .vram_size = 64 << 20, .system_size = 64 << 20};
    CHECK_EQ(xe_mock_configure(0, &config), 0);
    struct rlimit few = {256, 256};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    char *guarded = mmap(NULL, 3 * scratch_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scratch = (uint64_t *)(guarded + scratch_size);
    CHECK(mprotect(scratch, scratch_size, PROT_READ | PROT_WRITE) == 0);
    munmap((char *)scratch + scratch_size / 2, PAGE); /* with a hole */
    int nodes[2] = {open_node(0), xe_mock_open(0, true, O_CLOEXEC)};
    unsigned accepted = 0;
    for (unsigned round = 0; round < rounds; round++) {
        const struct ioctl_row *row;
        do
            row = &ioctl_table[rnd() % XE_MOCK_MAX_IOCTLS];
        while (!row->handler || row->request == DRM_IOCTL_XE_EXEC);
        uint64_t argument[32];
        if (rnd() % 8 == 0)
            fill(scratch + rnd() % 512, 64);
        memset(argument, 0, sizeof(argument));
        fill(argument, 1 + rnd() % 20);
        bound_waits(row->request, argument);
        spare_descriptors(row->request, argument);
        int node = nodes[rnd() % 2];
        int r = xe_mock_ioctl(node, row->request, argument);
        CHECK(r > -200);
        accepted += r == 0;
        close_if_descriptor(row->request, r, argument);
        if (rnd() % 2000 == 0) { /* a client ends, another begins */
            unsigned which = rnd() % 2;
            close_node(nodes[which]);
            for (int fd = 3; fd < 256; fd++) {
                if (fd != nodes[1 - which] && rnd() % 2 && dma_buf_is_ours(fd))
                    close(fd);
            }
            nodes[which] = xe_mock_open(0, which, O_CLOEXEC);
            if (nodes[which] < 0) { /* all descriptors used up: make room */
                for (int fd = 3; fd < 256; fd++) {
                    if (fd != nodes[1 - which] && dma_buf_is_ours(fd))
                        close(fd);
                }
                nodes[which] = xe_mock_open(0, which, O_CLOEXEC);
            }
            if (nodes[which] < 0)
                break;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (nodes[i] >= 0)
            close_node(nodes[i]);
    }
    if (accepted < rounds / 50)
        return 3; /* too few got anywhere: the test tests nothing */
    struct xe_mock_stats stats = stats_of(0);
    return stats.files || stats.handles || stats.vms ? 4 : stats.objects || stats.mappings ? 5 : 0;
}
