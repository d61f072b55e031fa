/* Fences of a dma-buf, within a process and between two. */
#include <poll.h>
#include <sys/wait.h>

#include "device_under_test.h"

enum { BATCH = 0x100000, DATA = 0x108000, SIZE = 0x10000, READ = DMA_BUF_SYNC_READ, WRITE = DMA_BUF_SYNC_WRITE };

static int fd, dma_buf;
static uint32_t queue, *data;

static int import(uint32_t flags, int sync_file)
{
    return xe_mock_ioctl(dma_buf, DMA_BUF_IOCTL_IMPORT_SYNC_FILE,
                         &(struct dma_buf_import_sync_file){.flags = flags, .fd = sync_file});
}

static int export(uint32_t flags)
{
    struct dma_buf_export_sync_file args = {.flags = flags, .fd = -1};
    int r = xe_mock_ioctl(dma_buf, DMA_BUF_IOCTL_EXPORT_SYNC_FILE, &args);
    return r ? r : args.fd;
}

static bool is_busy(uint32_t flags)
{
    struct pollfd polled = {.fd = export(flags), .events = POLLIN};
    CHECK(polled.fd >= 0);
    bool busy = poll(&polled, 1, 0) == 0;
    close(polled.fd);
    return busy;
}

static int sync_cpu(uint64_t flags)
{
    return xe_mock_ioctl(dma_buf, DMA_BUF_IOCTL_SYNC, &(struct dma_buf_sync){.flags = flags});
}

static void set_up(void)
{
    fd = test_open(0);
    uint32_t vm = test_vm(fd, 0), bo = test_bo(fd, SIZE);
    unsigned char *map = test_map(fd, bo, SIZE);
    data = (uint32_t *)(void *)(map + (DATA - BATCH));
    WRITE_BATCH(map, WAIT_DWORD(DATA, 1), BATCH_END);
    CHECK_EQUAL(test_bind(fd, vm, bo, BATCH, SIZE, 0), 0);
    queue = test_queue(fd, vm);
    struct drm_prime_handle prime = {.handle = bo, .flags = DRM_RDWR | DRM_CLOEXEC};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime), 0);
    dma_buf = prime.fd;
}

/* A sync_file of a job that runs until end_job(). */
static int start_job(uint32_t *syncobj)
{
    *syncobj = test_syncobj(fd, 0);
    __atomic_store_n(data, 0, __ATOMIC_RELEASE);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(*syncobj), 1), 0);
    struct drm_syncobj_handle handle = {.handle = *syncobj, .flags = DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &handle), 0);
    return handle.fd;
}

static void end_job(uint32_t syncobj)
{
    __atomic_store_n(data, 1, __ATOMIC_RELEASE);
    CHECK_EQUAL(test_wait(fd, syncobj, 20 * SECOND), 0);
}

static void test_errors(void)
{
    uint32_t syncobj;
    int file = start_job(&syncobj);
    end_job(syncobj);
    CHECK_EQUAL(import(0, file), -EINVAL);
    CHECK_EQUAL(import(4, file), -EINVAL);
    CHECK_EQUAL(import(READ, fd), -EINVAL);
    CHECK_EQUAL(import(READ, -1), -EINVAL);
    CHECK_EQUAL(export(0), -EINVAL);
    CHECK_EQUAL(export(8), -EINVAL);
    CHECK_EQUAL(xe_mock_ioctl(dma_buf, DMA_BUF_IOCTL_EXPORT_SYNC_FILE, (void *)8), -EFAULT);
    CHECK_EQUAL(xe_mock_ioctl(dma_buf, DMA_BUF_IOCTL_IMPORT_SYNC_FILE, (void *)8), -EFAULT);
    CHECK_EQUAL(import(WRITE, file), 0);
    CHECK(!is_busy(READ | WRITE));
    close(file);
}

static void test_usage(void)
{
    static const struct {
        uint32_t put_in, asked;
        bool busy;
    } table[] = {{WRITE, READ, true}, {WRITE, WRITE, true},       {READ, READ, false},
                 {READ, WRITE, true}, {READ | WRITE, READ, true}, {READ, READ | WRITE, true}};
    for (unsigned i = 0; i < sizeof(table) / sizeof(*table); i++) {
        uint32_t syncobj;
        int file = start_job(&syncobj);
        CHECK_EQUAL(import(table[i].put_in, file), 0);
        close(file);
        CHECK_EQUAL(is_busy(table[i].asked), table[i].busy);
        /* The same through another process, for which only the file is common. */
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            CHECK_EQUAL(is_busy(table[i].asked), table[i].busy);
            CHECK_EQUAL(sync_cpu(table[i].asked), 0);
            CHECK(!is_busy(table[i].asked));
            _exit(0);
        }
        usleep(20000);
        int status;
        if (table[i].busy)
            CHECK_EQUAL(waitpid(child, &status, WNOHANG), 0);
        end_job(syncobj);
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK_EQUAL(status, 0);
        CHECK_EQUAL(sync_cpu(table[i].asked), 0);
        CHECK(!is_busy(table[i].asked));
    }
}

int main(void)
{
    set_up();
    test_errors();
    test_usage();
    test_close(fd);
    close(dma_buf);
    return 0;
}
