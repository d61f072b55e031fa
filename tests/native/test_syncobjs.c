/* Sync objects: what each call refuses and in which order, binary ones, timelines, waiting threads. */
#include "syncobj_calls.h"

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
                -ENOENT);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = a, .dst_handle = a, .flags = 1),
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
    /* What was moved is still a point, with all before it. */
    CHECK_EQUAL(query(copy, DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED), 12);
    CHECK_EQUAL(query(copy, 0), 5);
    CHECK_EQUAL(test_wait_point(fd, copy, 4, 0, 0), 0);
    CHECK_EQUAL(test_wait_point(fd, copy, 7, 0, 0), -ETIME);
    /* A number that goes back counts as the last one, on a line of its own: nothing of that has happened. */
    CHECK_EQUAL(signal_point(line, 3), 0);
    CHECK_EQUAL(query(line, DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED), 12);
    CHECK_EQUAL(query(line, 0), 0);
    CHECK_EQUAL(test_wait_point(fd, line, 4, 0, 0), -ETIME);
    end_job();
    CHECK_EQUAL(test_wait_point(fd, line, 12, 0, 20 * SECOND), 0);
    CHECK_EQUAL(test_wait(fd, copy, 20 * SECOND), 0);
    CHECK_EQUAL(query(line, 0), 12);
    CHECK_EQUAL(
        CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = line, .dst_handle = copy, .dst_point = 4), 0);
    CHECK_EQUAL(query(copy, 0), 12);
    CHECK_EQUAL(
        CALL(fd, SYNCOBJ_TRANSFER, drm_syncobj_transfer, .src_handle = line, .dst_handle = copy, .dst_point = 14), 0);
    CHECK_EQUAL(query(copy, 0), 14);
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

/* Points behind one that is pending: what has happened is let go of, and a number is found on either side of it. */
static void test_long_timeline(void)
{
    uint32_t line = test_syncobj(fd, 0);
    for (uint64_t point = 1; point <= 1000; point++)
        CHECK_EQUAL(signal_point(line, point), 0);
    start_job(&SIGNAL_POINT(line, 1001), 1);
    for (uint64_t point = 1002; point <= 2000; point++)
        CHECK_EQUAL(signal_point(line, point), 0);
    CHECK_EQUAL(query(line, 0), 1000);
    CHECK_EQUAL(query(line, DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED), 2000);
    CHECK_EQUAL(test_wait_point(fd, line, 1000, 0, 0), 0);
    CHECK_EQUAL(test_wait_point(fd, line, 1001, 0, 0), -ETIME);
    end_job();
    CHECK_EQUAL(test_wait_point(fd, line, 1500, 0, 20 * SECOND), 0);
    CHECK_EQUAL(query(line, 0), 2000);
    CHECK_EQUAL(destroy(line), 0);
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

/* Who waits for a fence to be put in gets the first one, however soon it is replaced. */
static void test_snapshot(void)
{
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        uint32_t handle = test_syncobj(fd, 0);
        struct later later = {.handle = handle, .result = 1};
        CHECK_EQUAL(pthread_create(&thread, NULL, wait_later, &later), 0);
        usleep(5000);
        CHECK_EQUAL(array_call(DRM_IOCTL_SYNCOBJ_SIGNAL, &handle, 1), 0);
        start_job(&SIGNAL_SYNCOBJ(handle), 1);
        pthread_join(thread, NULL);
        CHECK_EQUAL(later.result, 0);
        CHECK_EQUAL(test_wait(fd, handle, 0), -ETIME);
        end_job();
        CHECK_EQUAL(test_wait(fd, handle, 20 * SECOND), 0);
        CHECK_EQUAL(destroy(handle), 0);
    }
}

int main(void)
{
    fd = test_open(0);
    test_errors();
    set_up_job();
    test_binary();
    test_timeline();
    test_long_timeline();
    test_threads();
    test_snapshot();
    test_close(fd);
    return 0;
}
