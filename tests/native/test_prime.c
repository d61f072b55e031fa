/* dma-bufs: identity, access modes, lifetime, in one process, in a forked one and in one that was exec'ed. */
#include <sys/resource.h>

#include "check.h"

static void errnos(int fd)
{
    uint32_t vm = make_vm(fd, 0), mine = make_bo(fd, PAGE, VRAM, WC, vm), bo = make_bo(fd, PAGE, VRAM, WC, 0);
    CHECK_EQ(export_bo(fd, 99, 1), -EINVAL);
    CHECK_EQ(export_bo(fd, 99, 0), -ENOENT);
    CHECK_EQ(export_bo(fd, mine, DRM_RDWR), -EPERM);
    struct rlimit limit, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit;
    low.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    CHECK_EQ(export_bo(fd, bo, 0), -EMFILE);
    CHECK_EQ(export_bo(fd, 99, 0), -EMFILE); /* the descriptor is reserved before the handle is looked at */
    CHECK_EQ(export_bo(fd, mine, 0), -EMFILE);
    CHECK_EQ(export_bo(fd, 99, 1), -EINVAL);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);

    CHECK_EQ(import_bo(fd, -1), -EBADF);
    CHECK_EQ(import_bo(fd, 1000), -EBADF);
    CHECK_EQ(import_bo(fd, fd), -EINVAL);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK_EQ(import_bo(fd, pipes[0]), -EINVAL);
    int plain = open("/proc/self/exe", O_RDONLY);
    CHECK_EQ(import_bo(fd, plain), -EINVAL);
    close(plain), close(pipes[0]), close(pipes[1]);
    CHECK_EQ(close_bo(fd, bo), 0);
    CHECK_EQ(close_bo(fd, mine), 0);
    destroy_vm(fd, vm);
}

static void identity(int fd)
{
    int other = open_node(0);
    uint32_t bo = make_bo(fd, 3 * PAGE, VRAM, WC, 0);
    int a = export_bo(fd, bo, DRM_RDWR | DRM_CLOEXEC), b = export_bo(fd, bo, 0);
    CHECK(a >= 0 && b >= 0 && a != b);
    CHECK_EQ(inode_of(a), inode_of(b));
    CHECK(fcntl(a, F_GETFD) == FD_CLOEXEC && fcntl(b, F_GETFD) == 0);
    CHECK_EQ(fcntl(b, F_GETFL) & O_ACCMODE, O_RDWR); /* the first export decided */
    struct stat st;
    CHECK(fstat(a, &st) == 0);
    CHECK_EQ(st.st_size, 3 * PAGE);

    CHECK_EQ(import_bo(fd, a), bo); /* itself, without a new reference */
    uint32_t there = (uint32_t)import_bo(other, b);
    CHECK_EQ(import_bo(other, a), there);
    CHECK_EQ(mmap_offset(fd, bo), mmap_offset(other, there));
    int c = export_bo(other, there, 0);
    CHECK_EQ(inode_of(c), inode_of(a));
    ino_t inode = inode_of(a);
    close(a), close(b), close(c);
    a = export_bo(fd, bo, 0);
    CHECK_EQ(inode_of(a), inode); /* as long as there is a handle */

    /* The bytes are the same bytes by every way. */
    volatile uint64_t *by_dma_buf = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0);
    volatile uint64_t *by_node = map_cpu(other, there, 3 * PAGE);
    by_dma_buf[700] = 0xabc;
    CHECK_EQ(by_node[700], 0xabc);
    CHECK_EQ(close_bo(fd, bo), 0);
    CHECK_EQ(close_bo(other, there), 0);
    CHECK_EQ(close_bo(other, there), -EINVAL); /* N imports are one reference */
    CHECK_EQ(stats_of(0).objects, 0);

    /* The descriptor alone keeps the object. */
    uint32_t again = (uint32_t)import_bo(other, a);
    volatile uint64_t *anew = map_cpu(other, again, 3 * PAGE);
    CHECK_EQ(anew[700], 0xabc);
    c = export_bo(other, again, DRM_RDWR);
    CHECK_EQ(inode_of(c), inode);
    CHECK_EQ(import_bo(fd, c), 1);
    CHECK_EQ(close_bo(fd, 1), 0);
    close(a), close(c);
    CHECK_EQ(close_bo(other, again), 0);
    CHECK(munmap((void *)by_dma_buf, 3 * PAGE) == 0);
    CHECK(munmap((void *)by_node, 3 * PAGE) == 0);
    CHECK(munmap((void *)anew, 3 * PAGE) == 0);
    close_node(other);
}

static void read_only(int fd)
{
    uint32_t bo = make_bo(fd, PAGE, VRAM, WC, 0);
    int a = export_bo(fd, bo, 0), b = export_bo(fd, bo, DRM_RDWR);
    CHECK_EQ(fcntl(b, F_GETFL) & O_ACCMODE, O_RDONLY);
    CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, b, 0) == MAP_FAILED && errno == EACCES);
    const struct xe_ops *ops = xe_mock_ops();
    CHECK(ops->mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, a, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(ops->mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, a, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(ops->mmap(NULL, PAGE, PROT_READ, MAP_SHARED, a, PAGE) == MAP_FAILED && errno == EINVAL);
    void *p = ops->mmap(NULL, PAGE, PROT_READ, MAP_SHARED, a, 0);
    CHECK(p != MAP_FAILED);
    munmap(p, PAGE);
    munmap(map_cpu(fd, bo, PAGE), PAGE); /* through the node it is writable */

    static const struct {
        uint64_t flags;
        int error;
    } rows[] = {{0, -EINVAL}, {8, -EINVAL}, {4, -EINVAL}, {1, 0}, {2, 0}, {3, 0}, {7, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct dma_buf_sync sync = {rows[i].flags};
        CHECK_EQ(xe_mock_ioctl(a, DMA_BUF_IOCTL_SYNC, &sync), rows[i].error);
    }
    CHECK_EQ(xe_mock_ioctl(a, DMA_BUF_IOCTL_SYNC, (void *)8), -EFAULT);
    CHECK_EQ(xe_mock_ioctl(a, DMA_BUF_SET_NAME_B, (void *)"a name"), 0);
    CHECK_EQ(xe_mock_ioctl(a, DMA_BUF_SET_NAME_B, (void *)"a name that is longer than 31 bytes"), -EINVAL);
    close(a), close(b);
    CHECK_EQ(close_bo(fd, bo), 0);
}

static void foreign(int fd)
{
    int other = open_node(1);
    uint32_t vm = make_vm(other, 0);
    uint32_t vram = make_bo(fd, PAGE, VRAM, WC, 0), system = make_bo(fd, PAGE, SYSTEM, WB, 0);
    int vram_fd = export_bo(fd, vram, DRM_RDWR), system_fd = export_bo(fd, system, DRM_RDWR);
    CHECK_EQ(xe_mock_set_peer(0, 1, false), 0);
    CHECK_EQ(import_bo(other, vram_fd), -EOPNOTSUPP);
    uint32_t there = (uint32_t)import_bo(other, system_fd);
    CHECK_EQ(there, 1);
    CHECK_EQ(xe_mock_set_peer(0, 1, true), 0);
    uint32_t peer = (uint32_t)import_bo(other, vram_fd);
    CHECK_EQ(peer, 2);
    /* Not coherent or compressed page attributes are refused for what is somebody else's. */
    struct drm_xe_vm_bind_op op = {.obj = peer, .range = PAGE, .pat_index = PAT_NONE};
    CHECK_EQ(bind_op(other, vm, op), -EINVAL);
    op.pat_index = PAT_COMPRESSED;
    CHECK_EQ(bind_op(other, vm, op), -EINVAL);
    op.pat_index = PAT_WB;
    CHECK_EQ(bind_op(other, vm, op), 0);
    int again = export_bo(other, peer, 0);
    CHECK_EQ(inode_of(again), inode_of(vram_fd)); /* the original exporter's */
    CHECK_EQ(import_bo(fd, again), vram);
    close(again);

    /* Its CPU mapping exists and cannot be touched. */
    volatile char *p = map_cpu(other, peer, PAGE);
    pid_t child = fork();
    if (!child) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGBUS, SIG_DFL);
        _exit(p[0] ? 1 : 2);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    munmap((void *)p, PAGE);

    int memfd = memfd_create("somebody", 0);
    CHECK_EQ(import_bo(other, memfd), -EINVAL); /* size 0 */
    CHECK(ftruncate(memfd, 2 * PAGE) == 0);
    uint32_t strange = (uint32_t)import_bo(other, memfd);
    CHECK_EQ(strange, 3);
    CHECK_EQ(import_bo(other, memfd), strange);
    again = export_bo(other, strange, DRM_RDWR);
    CHECK_EQ(inode_of(again), inode_of(memfd));
    close(again), close(memfd), close(vram_fd), close(system_fd);
    CHECK_EQ(close_bo(fd, vram), 0);
    CHECK_EQ(close_bo(fd, system), 0);
    close_node(other);
    check_nothing_left(1);
}

/* argv: dma-buf, exporter's inode, value to find, value to leave, access mode. */
static int exec_child(char **argv)
{
    int dma_buf = atoi(argv[2]), fd = open_node(0);
    uint32_t bo = (uint32_t)import_bo(fd, dma_buf);
    CHECK_EQ(bo, 1);
    CHECK_EQ(import_bo(fd, dma_buf), bo);
    int again = export_bo(fd, bo, DRM_RDWR);
    CHECK_EQ(inode_of(again), strtoull(argv[3], NULL, 10));
    CHECK_EQ(fcntl(again, F_GETFL) & O_ACCMODE, atoi(argv[6])); /* fixed by the first export, in whichever process */
    close(again), close(dma_buf);
    volatile uint64_t *p = map_cpu(fd, bo, 2 * PAGE); /* not foreign: the same device */
    CHECK_EQ(p[512], strtoull(argv[4], NULL, 10));
    p[513] = strtoull(argv[5], NULL, 10);
    uint32_t vm = make_vm(fd, 0);
    CHECK_EQ(bind_op(fd, vm, (struct drm_xe_vm_bind_op){.obj = bo, .range = 2 * PAGE, .pat_index = PAT_NONE}), 0);
    CHECK_EQ(stats_of(0).vram_used, 2 * PAGE);
    close_node(fd);
    CHECK_EQ(p[513], strtoull(argv[5], NULL, 10));
    return 0;
}

static pid_t spawn(int dma_buf, ino_t inode, uint64_t find, uint64_t leave)
{
    const unsigned long long values[] = {(unsigned long long)dma_buf, inode, find, leave,
                                         (unsigned long long)(fcntl(dma_buf, F_GETFL) & O_ACCMODE)};
    char text[5][24];
    for (int i = 0; i < 5; i++)
        snprintf(text[i], sizeof(text[i]), "%llu", values[i]);
    pid_t child = fork();
    if (!child) {
        execl("/proc/self/exe", "test_prime", "child", text[0], text[1], text[2], text[3], text[4], NULL);
        _exit(9);
    }
    return child;
}

static void across_exec(int fd, uint32_t flags)
{
    uint32_t bo = make_bo(fd, 2 * PAGE, VRAM, WC, 0);
    volatile uint64_t *p = map_cpu(fd, bo, 2 * PAGE);
    p[512] = 111;
    int dma_buf = export_bo(fd, bo, flags);
    CHECK_EQ(wait_for(spawn(dma_buf, inode_of(dma_buf), 111, 222)), 0);
    CHECK_EQ(p[513], 222);
    /* All handles gone: only the descriptor is left to import from. */
    ino_t inode = inode_of(dma_buf);
    CHECK_EQ(close_bo(fd, bo), 0);
    CHECK_EQ(wait_for(spawn(dma_buf, inode, 111, 333)), 0);
    CHECK_EQ(p[513], 333);
    close(dma_buf);
    munmap((void *)p, 2 * PAGE);
}

/* A forked child has copies of the tables and the very same bytes, also of an object whose file did not exist yet. */
static void across_fork(int fd)
{
    uint32_t bo = make_bo(fd, PAGE, VRAM, WC, 0), untouched = make_bo(fd, PAGE, VRAM, WC, 0);
    volatile uint64_t *p = map_cpu(fd, bo, PAGE);
    pid_t child = fork();
    if (!child) {
        volatile uint64_t *q = map_cpu(fd, untouched, PAGE), *r = map_cpu(fd, bo, PAGE);
        q[1] = 5;
        r[1] = 6;
        uint32_t own = make_bo(fd, PAGE, VRAM, WC, 0);
        int dma_buf = export_bo(fd, own, DRM_RDWR);
        CHECK(dma_buf >= 0);
        CHECK_EQ(close_bo(fd, own), 0);
        CHECK_EQ(close_bo(fd, bo), 0); /* must not take the parent's file away */
        CHECK_EQ(close_bo(fd, untouched), 0);
        exit(0);
    }
    CHECK_EQ(wait_for(child), 0);
    volatile uint64_t *q = map_cpu(fd, untouched, PAGE);
    CHECK(q[1] == 5 && p[1] == 6);
    int dma_buf = export_bo(fd, bo, DRM_RDWR);
    CHECK(dma_buf >= 0);
    close(dma_buf);
    munmap((void *)p, PAGE), munmap((void *)q, PAGE);
    CHECK_EQ(close_bo(fd, bo), 0);
    CHECK_EQ(close_bo(fd, untouched), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return exec_child(argv);
    int fd = open_node(0);
    errnos(fd);
    identity(fd);
    read_only(fd);
    foreign(fd);
    across_exec(fd, DRM_RDWR);
    across_exec(fd, 0);
    across_fork(fd);
    close_node(fd);
    check_nothing_left(0);
    return 0;
}
