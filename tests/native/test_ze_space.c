/* The table of a Level Zero context's objects, over a driver of a few functions. */
#include "check.h"
#include "fds.h"
#include "ze_space.h"

#include <pthread.h>

enum { MANY = 3000, THREADS = 4 };

static int alive;

struct memory {
    int fd;
};

static ze_result_t create(ze_context_handle_t context, ze_device_handle_t device, ze_physical_mem_desc_t *desc,
                          ze_physical_mem_handle_t *out)
{
    struct memory *memory = malloc(sizeof(*memory));

    (void)context;
    (void)device;
    if (desc->size == 13) {
        free(memory);
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memory->fd = -1;
    __atomic_add_fetch(&alive, 1, __ATOMIC_SEQ_CST);
    *out = memory;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t destroy(ze_context_handle_t context, ze_physical_mem_handle_t handle)
{
    struct memory *memory = handle;

    (void)context;
    if (memory->fd >= 0)
        close(memory->fd);
    free(memory);
    __atomic_sub_fetch(&alive, 1, __ATOMIC_SEQ_CST);
    return ZE_RESULT_SUCCESS;
}

/* As Intel's driver: the descriptor is made once and kept, until an IPC handle is put. */
static ze_result_t properties_of(ze_context_handle_t context, ze_physical_mem_handle_t handle,
                                 ze_physical_mem_properties_t *properties)
{
    ze_external_memory_export_fd_t *export = properties->pNext;
    struct memory *memory = handle;

    (void)context;
    if (memory->fd < 0)
        memory->fd = memfd_create("object", MFD_CLOEXEC);
    export->fd = memory->fd;
    return ZE_RESULT_SUCCESS;
}

static struct memory *of_handle;

static ze_result_t get_handle(ze_context_handle_t context, const void *what, ze_ipc_mem_handle_t *handle)
{
    (void)context;
    (void)handle;
    of_handle = (struct memory *)(uintptr_t)what;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t put_handle(ze_context_handle_t context, ze_ipc_mem_handle_t handle)
{
    (void)context;
    (void)handle;
    close(of_handle->fd);
    of_handle->fd = -1;
    return ZE_RESULT_SUCCESS;
}

static const struct ze_table table = {
    .PhysicalMemCreate = create,
    .PhysicalMemDestroy = destroy,
    .PhysicalMemGetProperties = properties_of,
    .MemGetIpcHandle = get_handle,
    .MemPutIpcHandle = put_handle,
};

static struct ze_space *new_space(void)
{
    return ze_space_create(&table, (void *)1, (void *)2, "no-such-loader.so", 0);
}

static void objects_are_counted(void)
{
    struct ze_space *space = new_space();
    uint64_t objects[MANY], sizes[MANY], done;
    uint32_t result;

    for (int i = 0; i < MANY; i++)
        CHECK_EQ(ze_object_create(space, 4096 + (uint64_t)i, 1, &objects[i], &result), 0);
    CHECK_EQ(ze_objects_live(space), MANY);
    CHECK_EQ(ze_objects_sizes(space, objects, MANY, sizes, &done), 0);
    CHECK_EQ(sizes[MANY - 1], 4096 + MANY - 1);
    CHECK_EQ(ze_objects_retain(space, objects, MANY, &done), 0);
    CHECK_EQ(ze_objects_release(space, objects, MANY, &done, &result), 0);
    CHECK_EQ(ze_objects_live(space), MANY);
    CHECK_EQ(ze_objects_release(space, objects, MANY / 2, &done, &result), 0);
    CHECK_EQ(alive, MANY - MANY / 2);
    /* All or nothing: one that is there, and then the half that is gone. */
    objects[0] = objects[MANY - 1];
    CHECK_EQ(ze_objects_retain(space, objects, MANY, &done), -EBADF);
    CHECK_EQ(done, 1);
    CHECK_EQ(ze_objects_release(space, objects, 1, &done, &result), 0);
    CHECK_EQ(ze_objects_release(space, objects, 1, &done, &result), -EBADF);
    CHECK_EQ(ze_objects_live(space), MANY - MANY / 2 - 1);
    ze_space_destroy(space);
    CHECK_EQ(alive, 0);
}

static void refusals_leave_nothing(void)
{
    struct ze_space *space = new_space();
    uint64_t object, done, nothing[] = {0, 1, UINT64_MAX};
    uint32_t result = 0;

    CHECK_EQ(ze_object_create(space, 13, 1, &object, &result), -EIO);
    CHECK_EQ(result, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(ze_objects_retain(space, nothing + i, 1, &done), -EBADF);
        CHECK_EQ(ze_object_handle(space, nothing[i]) == NULL, 1);
    }
    CHECK_EQ(ze_object_adopt(space, 100, &object), 0);
    CHECK_EQ(ze_objects_live(space), 1);
    int32_t fd;
    done = 0;
    CHECK_EQ(ze_objects_export(space, &object, 1, &fd, &done, &result), -EBADF);
    CHECK_EQ(ze_objects_release(space, &object, 1, &done, &result), 0);
    CHECK_EQ(ze_objects_live(space), 0);
    ze_space_destroy(space);
}

static void exports_leave_no_descriptor(void)
{
    struct ze_space *space = new_space();
    uint32_t before = fds_free(1 << 20), result;
    uint64_t objects[100], done = 0, again[1];
    int32_t fds[100];

    for (int i = 0; i < 100; i++)
        CHECK_EQ(ze_object_create(space, 4096, 1, &objects[i], &result), 0);
    CHECK_EQ(ze_objects_export(space, objects, 100, fds, &done, &result), 0);
    CHECK_EQ(before - fds_free(1 << 20), 100);
    /* A memfd is no dma-buf, whatever its owner says. */
    done = 0;
    CHECK_EQ(ze_objects_import(space, fds, 1, again, &done, &result), -EINVAL);
    fds_close(fds, 100);
    CHECK_EQ(fds_free(1 << 20), before);
    CHECK_EQ(ze_objects_release(space, objects, 100, &done, &result), 0);
    ze_space_destroy(space);
    CHECK_EQ(alive, 0);
}

static void *churn(void *space)
{
    for (int i = 0; i < 500; i++) {
        uint64_t object, done;
        uint32_t result;

        CHECK_EQ(ze_object_create(space, 4096, 1, &object, &result), 0);
        CHECK_EQ(ze_objects_retain(space, &object, 1, &done), 0);
        CHECK_EQ(ze_objects_release(space, &object, 1, &done, &result), 0);
        CHECK_EQ(ze_objects_release(space, &object, 1, &done, &result), 0);
    }
    return NULL;
}

static void threads_share_a_space(void)
{
    struct ze_space *space = new_space(), *other = new_space();
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, churn, i % 2 ? space : other), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(ze_objects_live(space) + ze_objects_live(other), 0);
    ze_space_destroy(space);
    ze_space_destroy(other);
    CHECK_EQ(alive, 0);
}

int main(void)
{
    objects_are_counted();
    refusals_leave_nothing();
    exports_leave_no_descriptor();
    threads_share_a_space();
    return 0;
}
