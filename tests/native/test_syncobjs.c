/* Sync objects: what each call refuses and in which order, timelines, descriptors, eventfds. */
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "device_under_test.h"
#include "sync_file.h"

#define TIMELINE_FD DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE
#define SYNC_FILE DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE
enum {
    ALL = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL,
    FOR_SUBMIT = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
    AVAILABLE = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE,
    BATCH = 0x100000,
    DATA = 0x108000,
    SIZE = 0x10000,
};

static int fd;

static int array_call(unsigned long request, const uint32_t *handles, uint32_t count)
{
    return xe_mock_ioctl(fd, request,
                         &(struct drm_syncobj_array){.handles = (uint64_t)handles, .count_handles = count});
}

static int timeline_call(unsigned long request, uint32_t handle, uint64_t *point, uint32_t flags)
{
    struct drm_syncobj_timeline_array args = {
        .handles = (uint64_t)&handle, .points = (uint64_t)point, .count_handles = 1, .flags = flags};
    return xe_mock_ioctl(fd, request, &args);
}

static int signal_point(uint32_t handle, uint64_t point)
{
    return timeline_call(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, handle, &point, 0);
}

static uint64_t query(uint32_t handle, uint32_t flags)
{
    uint64_t point = UINT64_MAX;
    CHECK_EQUAL(timeline_call(DRM_IOCTL_SYNCOBJ_QUERY, handle, &point, flags), 0);
    return point;
}

static int destroy(uint32_t handle)
{
    return CALL(fd, SYNCOBJ_DESTROY, drm_syncobj_destroy, .handle = handle);
}

static int to_fd(uint32_t handle, uint32_t flags, uint64_t point, int *out)
{
    struct drm_syncobj_handle args = {.handle = handle, .flags = flags, .point = point, .fd = -1};
    int r = xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &args);
    *out = args.fd;
    return r;
}

static int from_fd(int in, uint32_t flags, uint64_t point, uint32_t *handle)
{
    struct drm_syncobj_handle args = {.handle = *handle, .flags = flags, .point = point, .fd = in};
    int r = xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &args);
    *handle = args.handle;
    return r;
}

/* A job that ends when data[0] is 1: what real fences come from. */
static uint32_t queue;
static uint32_t *data;

static void set_up_job(void)
{
    uint32_t vm = test_vm(fd, 0), bo = test_bo(fd, SIZE);
    unsigned char *map = test_map(fd, bo, SIZE);
    data = (uint32_t *)(void *)(map + (DATA - BATCH));
    WRITE_BATCH(map, WAIT_DWORD(DATA, 1), BATCH_END);
    CHECK_EQUAL(test_bind(fd, vm, bo, BATCH, SIZE, 0), 0);
    queue = test_queue(fd, vm);
}

static void start_job(const struct drm_xe_sync *syncs, uint32_t count)
{
    __atomic_store_n(data, 0, __ATOMIC_RELEASE);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, syncs, count), 0);
}

static void end_job(void)
{
    __atomic_store_n(data, 1, __ATOMIC_RELEASE);
}

static void test_errors(void)
{
    uint32_t a = test_syncobj(fd, 0), pair[2] = {a, 999};
    int out;
    CHECK_EQUAL(a, 1);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_CREATE, drm_syncobj_create, .flags = 2), -EINVAL);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_DESTROY, drm_syncobj_destroy, .handle = a, .pad = 1), -EINVAL);
    CHECK_EQUAL(destroy(999), -EINVAL);
    /* WAIT: flags, count, pointer, handle, fence. */
    CHECK_EQUAL(CALL(fd, SYNCOBJ_WAIT, drm_syncobj_wait, .flags = AVAILABLE), -EINVAL);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_WAIT, drm_syncobj_wait, .flags = 16), -EINVAL);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_WAIT, drm_syncobj_wait, .handles = 8), 0);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_WAIT, drm_syncobj_wait, .handles = 8, .count_handles = 1), -EFAULT);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_WAIT, drm_syncobj_wait, .handles = (uint64_t)pair, .count_handles = 2), -ENOENT);
    CHECK_EQUAL(test_wait(fd, a, 0), -EINVAL);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_TIMELINE_WAIT, drm_syncobj_timeline_wait, .handles = (uint64_t)pair, .points = 8,
                     .count_handles = 1),
                -EFAULT);
    CHECK_EQUAL(test_wait_point(fd, a, 1, 0, 0), -EINVAL);
    CHECK_EQUAL(test_wait_point(fd, a, 1, FOR_SUBMIT, SECOND / 100), -ETIME);
    CHECK_EQUAL(test_wait_point(fd, a, 1, AVAILABLE, SECOND / 100), -ETIME);
    /* RESET, SIGNAL. */
    for (int i = 0; i < 2; i++) {
        unsigned long request = i ? DRM_IOCTL_SYNCOBJ_SIGNAL : DRM_IOCTL_SYNCOBJ_RESET;
        CHECK_EQUAL(array_call(request, pair, 0), -EINVAL);
        CHECK_EQUAL(array_call(request, (void *)8, 1), -EFAULT);
        CHECK_EQUAL(array_call(request, pair, 2), -ENOENT);
        struct drm_syncobj_array padded = {.handles = (uint64_t)pair, .count_handles = 1, .pad = 1};
        CHECK_EQUAL(xe_mock_ioctl(fd, request, &padded), -EINVAL);
    }
    /* TIMELINE_SIGNAL, QUERY. */
    uint64_t point = 3;
    CHECK_EQUAL(timeline_call(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, a, &point, 1), -EINVAL);
    CHECK_EQUAL(timeline_call(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, 999, &point, 0), -ENOENT);
    CHECK_EQUAL(timeline_call(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, a, (void *)8, 0), -EFAULT);
    CHECK_EQUAL(timeline_call(DRM_IOCTL_SYNCOBJ_QUERY, a, &point, 2), -EINVAL);
    CHECK_EQUAL(timeline_call(DRM_IOCTL_SYNCOBJ_QUERY, a, (void *)8, 0), -EFAULT);
    CHECK_EQUAL(timeline_call(DRM_IOCTL_SYNCOBJ_QUERY, 999, &point, 0), -ENOENT);
    /* TRANSFER: pad, destination, flags, source, fence. */
    CHECK_EQUAL(CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = a, .dst_handle = 999, .pad = 1),
                -EINVAL);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = 999, .dst_handle = 999, .flags = 1),
                -ENOENT);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = 999, .dst_handle = a, .flags = 1),
                -EINVAL);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = 999, .dst_handle = a), -ENOENT);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = a, .dst_handle = a), -EINVAL);
    /* Descriptors. */
    CHECK_EQUAL(to_fd(a, 4, 0, &out), -EINVAL);
    CHECK_EQUAL(to_fd(a, 0, 1, &out), -EINVAL);
    CHECK_EQUAL(to_fd(999, 0, 0, &out), -EINVAL);
    CHECK_EQUAL(to_fd(999, SYNC_FILE, 0, &out), -ENOENT);
    CHECK_EQUAL(to_fd(a, SYNC_FILE, 0, &out), -EINVAL);
    uint32_t handle = 999;
    CHECK_EQUAL(from_fd(-1, 0, 0, &handle), -EINVAL);
    CHECK_EQUAL(from_fd(0, 0, 0, &handle), -EINVAL);
    CHECK_EQUAL(from_fd(0, 0, 1, &handle), -EINVAL);
    CHECK_EQUAL(from_fd(0, 4, 0, &handle), -EINVAL);
    CHECK_EQUAL(from_fd(0, SYNC_FILE, 0, &handle), -EINVAL);
    /* EVENTFD. */
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = 999, .flags = 1), -EINVAL);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = 999, .pad = 1), -EINVAL);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = 999), -ENOENT);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = a, .fd = -1), -EBADF);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = a, .fd = fd), -EINVAL);
    CHECK_EQUAL(destroy(a), 0);
    CHECK_EQUAL(test_syncobj(fd, 0), a);
    CHECK_EQUAL(destroy(a), 0);
}

static void test_binary(void)
{
    uint32_t handles[3] = {test_syncobj(fd, 0), test_syncobj(fd, DRM_SYNCOBJ_CREATE_SIGNALED), test_syncobj(fd, 0)};
    CHECK_EQUAL(test_wait(fd, handles[1], -SECOND), 0);
    struct drm_syncobj_wait wait = {.handles = (uint64_t)handles, .count_handles = 3, .flags = FOR_SUBMIT};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), 0);
    CHECK_EQUAL(wait.first_signaled, 1);
    wait.flags = FOR_SUBMIT | ALL;
    wait.first_signaled = 77;
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), -ETIME);
    CHECK_EQUAL(wait.first_signaled, 77);
    wait.flags = ALL;
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), -EINVAL);
    CHECK_EQUAL(array_call(DRM_IOCTL_SYNCOBJ_SIGNAL, handles, 3), 0);
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), 0);
    CHECK_EQUAL(wait.first_signaled, 0);
    CHECK_EQUAL(array_call(DRM_IOCTL_SYNCOBJ_RESET, handles, 3), 0);
    CHECK_EQUAL(test_wait(fd, handles[1], 0), -EINVAL);
    CHECK_EQUAL(query(handles[1], 0), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQUAL(destroy(handles[i]), 0);
}

static void test_timeline(void)
{
    uint32_t line = test_syncobj(fd, 0), copy = test_syncobj(fd, 0);
    CHECK_EQUAL(query(line, 0), 0);
    CHECK_EQUAL(signal_point(line, 5), 0);
    CHECK_EQUAL(query(line, 0), 5);
    for (uint64_t point = 0; point <= 5; point++)
        CHECK_EQUAL(test_wait_point(fd, line, point, 0, 0), 0);
    CHECK_EQUAL(test_wait_point(fd, line, 6, 0, 0), -EINVAL);

    /* 10 is a job that runs; 12 has happened, but not before 10. */
    start_job(&SIGNAL_POINT(line, 10), 1);
    CHECK_EQUAL(signal_point(line, 12), 0);
    CHECK_EQUAL(query(line, 0), 5);
    CHECK_EQUAL(query(line, DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED), 12);
    CHECK_EQUAL(test_wait_point(fd, line, 4, 0, 0), 0);
    CHECK_EQUAL(test_wait_point(fd, line, 7, 0, 0), -ETIME);
    CHECK_EQUAL(test_wait_point(fd, line, 12, 0, SECOND / 100), -ETIME);
    CHECK_EQUAL(test_wait_point(fd, line, 12, AVAILABLE, 0), 0);
    CHECK_EQUAL(test_wait_point(fd, line, 13, AVAILABLE, 0), -ETIME);
    CHECK_EQUAL(
        CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = line, .src_point = 11, .dst_handle = copy), 0);
    CHECK_EQUAL(
        CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = line, .src_point = 13, .dst_handle = copy),
        -EINVAL);
    CHECK_EQUAL(test_wait(fd, copy, 0), -ETIME);
    /* A number that goes back counts as the last one. */
    CHECK_EQUAL(signal_point(line, 3), 0);
    CHECK_EQUAL(query(line, DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED), 12);
    end_job();
    CHECK_EQUAL(test_wait_point(fd, line, 12, 0, 20 * SECOND), 0);
    CHECK_EQUAL(test_wait(fd, copy, 20 * SECOND), 0);
    CHECK_EQUAL(query(line, 0), 12);
    CHECK_EQUAL(
        CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = line, .dst_handle = copy, .dst_point = 4), 0);
    CHECK_EQUAL(query(copy, 0), 4);
    /* In-fences of a job: a point that was never put in is refused. */
    struct drm_xe_sync point = {.type = DRM_XE_SYNC_TYPE_TIMELINE_SYNCOBJ, .handle = line, .timeline_value = 13};
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &point, 1), -EINVAL);
    /* A binary fence ends the timeline. */
    CHECK_EQUAL(array_call(DRM_IOCTL_SYNCOBJ_SIGNAL, &line, 1), 0);
    CHECK_EQUAL(query(line, 0), 0);
    CHECK_EQUAL(test_wait_point(fd, line, 1, 0, 0), -EINVAL);
    CHECK_EQUAL(destroy(line), 0);
    CHECK_EQUAL(destroy(copy), 0);
}

struct later {
    uint32_t handle;
    uint64_t point;
    int result;
};

static void *wait_later(void *argument)
{
    struct later *later = argument;
    later->result = test_wait_point(fd, later->handle, later->point, FOR_SUBMIT, 20 * SECOND);
    return NULL;
}

static void test_threads(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    struct later later[THREADS];
    uint32_t line = test_syncobj(fd, 0);
    for (int i = 0; i < THREADS; i++) {
        later[i] = (struct later){.handle = line, .point = (uint64_t)i + 1, .result = 1};
        CHECK_EQUAL(pthread_create(&threads[i], NULL, wait_later, &later[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        start_job(&SIGNAL_POINT(line, (uint64_t)i + 1), 1);
        end_job();
        CHECK_EQUAL(test_wait_point(fd, line, (uint64_t)i + 1, 0, 20 * SECOND), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQUAL(later[i].result, 0);
    }
    CHECK_EQUAL(destroy(line), 0);
}

static bool readable(int descriptor, int timeout_ms)
{
    struct pollfd polled = {.fd = descriptor, .events = POLLIN};
    int n = poll(&polled, 1, timeout_ms);
    CHECK(n >= 0 && !(polled.revents & (POLLERR | POLLNVAL)));
    return n == 1;
}

static void test_sync_files(void)
{
    uint32_t from = test_syncobj(fd, 0), to = test_syncobj(fd, 0), line = test_syncobj(fd, 0);
    int file, second, merged;
    start_job(&SIGNAL_SYNCOBJ(from), 1);
    CHECK_EQUAL(to_fd(from, SYNC_FILE, 0, &file), 0);
    CHECK(fcntl(file, F_GETFD) & FD_CLOEXEC);
    CHECK(!readable(file, 20));
    CHECK_EQUAL(from_fd(file, SYNC_FILE, 0, &to), 0);
    CHECK_EQUAL(from_fd(file, SYNC_FILE | TIMELINE_FD, 9, &line), 0);
    uint32_t unknown = 999;
    CHECK_EQUAL(from_fd(file, SYNC_FILE, 0, &unknown), -ENOENT);
    CHECK_EQUAL(from_fd(file, 0, 0, &unknown), -EINVAL);
    CHECK_EQUAL(test_wait(fd, to, 0), -ETIME);
    CHECK_EQUAL(test_wait_point(fd, line, 9, 0, 0), -ETIME);
    CHECK_EQUAL(to_fd(line, SYNC_FILE | TIMELINE_FD, 9, &second), 0);
    CHECK_EQUAL(to_fd(line, SYNC_FILE | TIMELINE_FD, 10, &merged), -EINVAL);

    struct sync_file_info info = {0};
    CHECK_EQUAL(xe_mock_ioctl(file, SYNC_IOC_FILE_INFO, &info), 0);
    CHECK_EQUAL(info.status, 0);
    CHECK_EQUAL(info.num_fences, 1);
    struct sync_merge_data merge = {.name = "both", .fd2 = second};
    CHECK_EQUAL(xe_mock_ioctl(file, SYNC_IOC_MERGE, &merge), 0);
    merged = merge.fence;
    CHECK(!readable(merged, 0));

    /* Another process waits for it by poll() and through its own syncobj. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        uint32_t theirs = test_syncobj(fd, 0);
        CHECK_EQUAL(from_fd(file, SYNC_FILE, 0, &theirs), 0);
        CHECK_EQUAL(test_wait(fd, theirs, 0), -ETIME);
        CHECK_EQUAL(test_wait(fd, theirs, 20 * SECOND), 0);
        CHECK(readable(file, 20000));
        _exit(0);
    }
    usleep(50000);
    end_job();
    CHECK(readable(file, 20000));
    CHECK(readable(second, 20000));
    CHECK(readable(merged, 20000));
    CHECK_EQUAL(test_wait(fd, to, 20 * SECOND), 0);
    CHECK_EQUAL(test_wait_point(fd, line, 9, 0, 20 * SECOND), 0);
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(xe_mock_ioctl(file, SYNC_IOC_FILE_INFO, &info), -EFAULT);
    info.num_fences = 0;
    CHECK_EQUAL(xe_mock_ioctl(file, SYNC_IOC_FILE_INFO, &info), 0);
    CHECK_EQUAL(info.status, 1);
    /* Of one that has signalled already. */
    CHECK_EQUAL(to_fd(to, SYNC_FILE, 0, &status), 0);
    CHECK(readable(status, 0));
    close(status);
    close(file);
    close(second);
    close(merged);
    CHECK_EQUAL(destroy(from) | destroy(to) | destroy(line), 0);
}

/* A process that dies signals what it owes. */
static void test_killed_exporter(void)
{
    int ends[2], file;
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char byte = 0;
    struct iovec vector = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (child == 0) {
        fd = test_open(0);
        set_up_job();
        uint32_t mine = test_syncobj(fd, 0);
        start_job(&SIGNAL_SYNCOBJ(mine), 1);
        CHECK_EQUAL(to_fd(mine, SYNC_FILE, 0, &file), 0);
        *header =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(header), &file, sizeof(file));
        CHECK_EQUAL(sendmsg(ends[1], &message, 0), 1);
        close(file);
        pause();
    }
    CHECK_EQUAL(recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC), 1);
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(file));
    uint32_t theirs = test_syncobj(fd, 0);
    CHECK_EQUAL(from_fd(file, SYNC_FILE, 0, &theirs), 0);
    CHECK_EQUAL(test_wait(fd, theirs, SECOND / 50), -ETIME);
    kill(child, SIGKILL);
    CHECK_EQUAL(test_wait(fd, theirs, 4 * SECOND), 0);
    CHECK_EQUAL(waitpid(child, NULL, 0), child);
    close(file);
    close(ends[0]);
    close(ends[1]);
    CHECK_EQUAL(destroy(theirs), 0);
}

static void test_syncobj_descriptors(void)
{
    uint32_t handle = test_syncobj(fd, 0), again = 0, third = 0;
    int descriptor;
    CHECK_EQUAL(to_fd(handle, 0, 0, &descriptor), 0);
    CHECK_EQUAL(from_fd(descriptor, 0, 0, &again), 0);
    CHECK(again != handle);
    CHECK_EQUAL(signal_point(again, 8), 0);
    CHECK_EQUAL(query(handle, 0), 8);
    /* The descriptor alone keeps it. */
    CHECK_EQUAL(destroy(handle) | destroy(again), 0);
    int duplicate = dup(descriptor);
    close(descriptor);
    CHECK_EQUAL(from_fd(duplicate, 0, 0, &third), 0);
    CHECK_EQUAL(query(third, 0), 8);
    CHECK_EQUAL(from_fd(duplicate, SYNC_FILE, 0, &third), -EINVAL);
    close(duplicate);
    CHECK_EQUAL(query(third, 0), 8);
    CHECK_EQUAL(destroy(third), 0);
}

static void test_eventfds(void)
{
    uint32_t line = test_syncobj(fd, 0);
    int happened = eventfd(0, EFD_CLOEXEC), submitted = eventfd(0, EFD_CLOEXEC), never = eventfd(0, EFD_CLOEXEC);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = line, .point = 7, .fd = happened), 0);
    CHECK_EQUAL(
        CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = line, .point = 7, .fd = submitted, .flags = AVAILABLE),
        0);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = line, .point = 99, .fd = never), 0);
    CHECK_EQUAL(signal_point(line, 3), 0);
    CHECK(!readable(happened, 0) && !readable(submitted, 0));
    start_job(&SIGNAL_POINT(line, 7), 1);
    CHECK(readable(submitted, 0) && !readable(happened, 20));
    end_job();
    CHECK(readable(happened, 20000));
    CHECK(!readable(never, 0));
    CHECK_EQUAL(destroy(line), 0);
    close(happened);
    close(submitted);
    close(never);
}

int main(int argc, char **argv)
{
    (void)argv;
    fd = test_open(0);
    test_errors();
    set_up_job();
    test_binary();
    test_timeline();
    test_threads();
    test_syncobj_descriptors();
    test_eventfds();
    if (argc == 1) { /* ThreadSanitizer does not follow a forked child of a process with threads */
        test_sync_files();
        test_killed_exporter();
    }
    test_close(fd);
    return 0;
}
