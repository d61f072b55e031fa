/* The backend's C on the mock: streams, binds, references and CPU copies, from several threads on one device. */
#include "device_under_test.h"

#include "xe_bind.h"
#include "xe_cpu.h"
#include "xe_device.h"
#include "xe_fence.h"
#include "xe_objects.h"
#include "xe_stream.h"

#include <sys/socket.h>

enum { COUNT = 600, PAGE = 4096, THREADS = 4, ROUNDS = 5 };

static struct xe_device *device;

static int64_t soon(void)
{
    return test_now() + 60 * SECOND;
}

static void create(uint64_t *handles, uint64_t count)
{
    uint64_t done = 0;
    int rc;

    do {
        rc = xe_objects_create(device, PAGE, 1, 0, DRM_XE_GEM_CPU_CACHING_WB, 0, handles, count, &done);
    } while (rc == -EINTR);
    CHECK_EQUAL(rc, 0);
    CHECK_EQUAL(done, count);
}

static void release(const uint64_t *handles, uint64_t count)
{
    uint64_t done;

    CHECK_EQUAL(xe_objects_release(device, handles, count, &done), 0);
}

/* ---- one exporter and one importer a thread ---- */

struct end {
    int socket;
    uint64_t *objects;
    uint64_t count;
    int rc;
};

static void *sender(void *argument)
{
    struct end *end = argument;
    struct stream_send send = {.socket = end->socket, .objects = end->objects, .count = end->count, .deadline = soon()};

    do {
        end->rc = xe_stream_send(device, &send);
    } while (end->rc == -EINTR);
    return NULL;
}

static void stream_once(void)
{
    uint64_t sent[COUNT], got[COUNT], sizes[COUNT];
    struct stream_receive receive = {.sizes = sizes, .objects = got, .count = COUNT, .deadline = soon()};
    struct end end = {.objects = sent, .count = COUNT};
    pthread_t thread;
    int pair[2], rc;

    create(sent, COUNT);
    for (int i = 0; i < COUNT; i++)
        sizes[i] = PAGE;
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    end.socket = pair[0];
    receive.socket = pair[1];
    CHECK_EQUAL(pthread_create(&thread, NULL, sender, &end), 0);
    do {
        rc = xe_stream_receive(device, &receive);
    } while (rc == -EINTR);
    pthread_join(thread, NULL);
    CHECK_EQUAL(rc, 0);
    CHECK_EQUAL(end.rc, 0);
    /* The file knows one handle an object. */
    CHECK(memcmp(sent, got, sizeof(sent)) == 0);
    release(got, COUNT);
    release(sent, COUNT);
    close(pair[0]);
    close(pair[1]);
}

static void *streams(void *unused)
{
    for (int round = 0; round < ROUNDS; round++)
        stream_once();
    return unused;
}

/* ---- binds and CPU copies ---- */

static void *binds(void *unused)
{
    uint64_t objects[COUNT], offsets[COUNT] = {0}, sizes[COUNT], numbers[COUNT], found[COUNT];
    uint8_t access[COUNT] = {0};
    struct drm_xe_vm_create vm = {0};
    struct xe_bind bind = {.pat_own = PAT_WB,
                           .pat_imported = PAT_WB,
                           .objects = objects,
                           .offsets = offsets,
                           .sizes = sizes,
                           .access = access};
    uint32_t submitted;

    CHECK_EQUAL(xe_ioctl(device, DRM_IOCTL_XE_VM_CREATE, &vm), 0);
    bind.vm_id = vm.vm_id;
    for (int round = 0; round < ROUNDS; round++) {
        struct xe_fence *fence = xe_fence_create(device);
        int rc;

        create(objects, COUNT);
        for (int i = 0; i < COUNT; i++) {
            sizes[i] = PAGE;
            numbers[i] = (uint64_t)round << 32 | objects[i];
        }
        rc = xe_bind_map(device, &bind, 0, COUNT, 1 << 21, fence, soon(), &submitted);
        while (rc == -EINTR)
            rc = xe_fence_wait(device, fence, soon());
        CHECK_EQUAL(rc, 0);
        CHECK_EQUAL(submitted, 1);
        for (int i = 0; i < COUNT; i++)
            sizes[i] = sizeof(uint64_t);
        for (uint32_t write = 2; write-- > 0;) {
            struct xe_cpu_copy copy = {.objects = objects,
                                       .offsets = offsets,
                                       .sizes = sizes,
                                       .count = COUNT,
                                       .buffer = (uint8_t *)(write ? numbers : found),
                                       .write = write};
            do {
                rc = xe_cpu_copy(device, &copy);
            } while (rc == -EINTR);
            CHECK_EQUAL(rc, 0);
        }
        CHECK(memcmp(numbers, found, sizeof(found)) == 0);
        struct xe_unmap unmap = {.vm_id = vm.vm_id,
                                 .pat_index = PAT_WB,
                                 .address = 1 << 21,
                                 .size = (uint64_t)COUNT * PAGE,
                                 .fence = fence,
                                 .deadline = soon()};
        rc = xe_bind_unmap(device, &unmap);
        while (rc == -EINTR)
            rc = xe_fence_wait(device, fence, soon());
        CHECK_EQUAL(rc, 0);
        xe_fence_destroy(device, fence);
        release(objects, COUNT);
    }
    return unused;
}

static void all_at_once(void)
{
    pthread_t threads[2 * THREADS];

    for (int i = 0; i < 2 * THREADS; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, i % 2 ? streams : binds, NULL), 0);
    for (int i = 0; i < 2 * THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQUAL(xe_handles_live(device), 0);
}

/* ---- what goes wrong ---- */

static void another_size(void)
{
    uint64_t sent[3], got[3], sizes[3] = {PAGE, 2 * PAGE, PAGE};
    struct stream_receive receive = {.sizes = sizes, .objects = got, .count = 3, .deadline = soon()};
    struct end end = {.objects = sent, .count = 3};
    pthread_t thread;
    int pair[2], rc;

    create(sent, 3);
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    end.socket = pair[0];
    receive.socket = pair[1];
    CHECK_EQUAL(pthread_create(&thread, NULL, sender, &end), 0);
    do {
        rc = xe_stream_receive(device, &receive);
    } while (rc == -EINTR);
    CHECK_EQUAL(rc, -EBADMSG);
    CHECK_EQUAL(receive.reason, STREAM_SIZE);
    CHECK_EQUAL(receive.failed, 1);
    CHECK_EQUAL(receive.found_size, PAGE);
    close(pair[1]);
    pthread_join(thread, NULL);
    CHECK(end.rc < 0);
    release(got, receive.received);
    release(sent, 3);
    close(pair[0]);
    CHECK_EQUAL(xe_handles_live(device), 0);
}

/* Kept while the kernel may write to it, freed with the device. */
static void a_fence_nobody_signals(void)
{
    struct xe_fence *fence = xe_fence_create(device);
    uint64_t value;

    CHECK(xe_fence_arm(fence, &value) != NULL);
    CHECK_EQUAL(xe_fence_wait(device, fence, test_now() - 1), -ETIME);
    xe_fence_destroy(device, fence);
}

static void unknown_handles(void)
{
    uint64_t handles[2] = {0, UINT64_MAX}, sizes[2], done;

    create(handles, 1);
    CHECK_EQUAL(xe_objects_retain(device, handles, 2, &done), -EBADF);
    CHECK_EQUAL(done, 1);
    CHECK_EQUAL(xe_objects_sizes(device, handles, 2, sizes, &done), -EBADF);
    CHECK_EQUAL(done, 1);
    CHECK_EQUAL(xe_objects_release(device, handles, 2, &done), -EBADF);
    CHECK_EQUAL(done, 1);
    CHECK_EQUAL(xe_handles_live(device), 0);
}

int main(void)
{
    int error;

    CHECK(!xe_device_open(xe_mock_ops(), "mock:99", &error));
    CHECK(error < 0);
    device = xe_device_open(xe_mock_ops(), "mock:0", &error);
    CHECK(device);
    another_size();
    a_fence_nobody_signals();
    unknown_handles();
    all_at_once();
    xe_device_close(device);
    return 0;
}
