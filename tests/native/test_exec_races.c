/* Engines at work while their mappings come and go, objects die and queues are made and destroyed. */
#include "device_under_test.h"

enum { BATCH = 0x100000, FROM = 0x1000000, TO = 0x2000000, SIZE = 0x40000, ENGINES = 3, ROUNDS = 1500 };

/* The engines share the bytes on purpose: what two of them do to one place at a time is the program's race, not ours.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:^streamer_copy$";
}

static int fd;
static uint32_t vm;

/* Copies FROM to TO and back for ever, and counts. */
static uint32_t endless_copy(uint32_t slot)
{
    uint64_t at = BATCH + slot * 0x10000ull;
    uint32_t bo = test_bo(fd, 0x10000);
    unsigned char *map = test_map(fd, bo, 0x10000);
    WRITE_BATCH(map, BLT(0x5a, 8), SIZE - 1, 0, 0, 0, ADDRESS(FROM), ADDRESS(TO), 0, BLT(0x5a, 8), SIZE - 1, 0, 0, 0,
                ADDRESS(TO), ADDRESS(FROM), 0, MI(0x2f, 1) | 5u << 8, ADDRESS(FROM + slot * 8), MI(0x31, 1) | 1u << 8,
                ADDRESS(at));
    CHECK_EQUAL(munmap(map, 0x10000), 0);
    CHECK_EQUAL(test_bind(fd, vm, bo, at, 0x10000, 0), 0);
    CHECK_EQUAL(CALL(fd, GEM_CLOSE, drm_gem_close, .handle = bo), 0);
    uint32_t queue = test_queue(fd, vm);
    CHECK_EQUAL(test_exec(fd, queue, at, NULL, 0), 0);
    return queue;
}

static void *bind_and_unbind(void *argument)
{
    uint64_t address = (uint64_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t bo = test_bo(fd, SIZE);
        CHECK_EQUAL(test_bind(fd, vm, bo, address, SIZE, 0), 0);
        CHECK_EQUAL(CALL(fd, GEM_CLOSE, drm_gem_close, .handle = bo), 0);
        if (round % 3)
            CHECK_EQUAL(test_unbind(fd, vm, address + 0x10000, SIZE / 2, 0), 0);
        if (round % 7 == 0)
            CHECK_EQUAL(test_bind(fd, vm, 0, address, SIZE, DRM_XE_VM_BIND_FLAG_NULL), 0);
    }
    return NULL;
}

static void *make_and_destroy(void *argument)
{
    (void)argument;
    for (int round = 0; round < ROUNDS / 3; round++)
        CHECK_EQUAL(test_destroy_queue(fd, endless_copy(ENGINES)), 0);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    uint32_t queues[ENGINES];
    fd = test_open(0);
    /* With scratch pages a hole is no fault: the engines go on whatever happens to the mappings. */
    vm = test_vm(fd, DRM_XE_VM_CREATE_FLAG_SCRATCH_PAGE | DRM_XE_VM_CREATE_FLAG_LR_MODE);
    for (uint32_t i = 0; i < ENGINES; i++)
        queues[i] = endless_copy(i);
    CHECK_EQUAL(pthread_create(&threads[0], NULL, bind_and_unbind, (void *)(uintptr_t)FROM), 0);
    CHECK_EQUAL(pthread_create(&threads[1], NULL, bind_and_unbind, (void *)(uintptr_t)TO), 0);
    CHECK_EQUAL(pthread_create(&threads[2], NULL, make_and_destroy, NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < ENGINES; i++)
        CHECK_EQUAL(test_banned(fd, queues[i]), 0);
    test_close(fd);
    return 0;
}
