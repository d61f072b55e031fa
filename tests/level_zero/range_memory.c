/* Memory of the test driver: USM, physical memory and reservations, and what is mapped where. */
#include "range_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Of each kind, by address; none overlap. */
static struct spans {
    struct span *rows;
    size_t count, room;
} all[KINDS];

void spans_lock(void)
{
    pthread_mutex_lock(&lock);
}

void spans_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The first that ends after an address. */
static size_t place(const struct spans *spans, const char *at)
{
    size_t low = 0, high = spans->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (spans->rows[middle].start + spans->rows[middle].size <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct span *span_at(enum kind kind, const char *at)
{
    struct spans *spans = &all[kind];
    size_t index = place(spans, at);

    return index < spans->count && spans->rows[index].start <= at ? &spans->rows[index] : NULL;
}

bool span_within(enum kind kind, const char *start, const char *end)
{
    const struct spans *spans = &all[kind];
    size_t index = place(spans, start);

    return index < spans->count && spans->rows[index].start < end;
}

void span_add(enum kind kind, struct span span)
{
    struct spans *spans = &all[kind];
    size_t index = place(spans, span.start);

    if (spans->count == spans->room) {
        spans->room = spans->room ? 2 * spans->room : 64;
        spans->rows = realloc(spans->rows, spans->room * sizeof(*spans->rows));
        if (!spans->rows)
            abort();
    }
    memmove(&spans->rows[index + 1], &spans->rows[index], (spans->count - index) * sizeof(*spans->rows));
    spans->rows[index] = span;
    spans->count++;
    if (span.physical)
        span.physical->references++;
}

void span_remove(enum kind kind, struct span *span)
{
    struct spans *spans = &all[kind];
    size_t index = (size_t)(span - spans->rows);
    struct physical *physical = span->physical;

    memmove(span, span + 1, (spans->count - index - 1) * sizeof(*span));
    spans->count--;
    if (physical)
        physical_drop(physical);
}

struct physical *physical_new(int fd, size_t size)
{
    struct physical *physical = calloc(1, sizeof(*physical));

    if (!physical)
        abort();
    *physical = (struct physical){.fd = fd, .size = size, .references = 1};
    return physical;
}

void physical_drop(struct physical *physical)
{
    if (--physical->references == 0) {
        close(physical->fd);
        free(physical);
    }
}

/* ---- USM ---- */

static uint32_t allocate(size_t size, void **out)
{
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;

    *out = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*out == MAP_FAILED)
        return OUT_OF_HOST_MEMORY;
    spans_lock();
    span_add(USM, (struct span){.start = *out, .size = whole});
    spans_unlock();
    return SUCCESS;
}

API(zeMemAllocHost, void *c, const void *desc, size_t size, size_t alignment, void **out)
{
    (void)c;
    (void)desc;
    (void)alignment;
    return allocate(size, out);
}

API(zeMemAllocDevice, void *c, const void *desc, size_t size, size_t alignment, void *d, void **out)
{
    (void)d;
    return zeMemAllocHost(c, desc, size, alignment, out);
}

API(zeMemAllocShared, void *c, const void *desc, const void *host, size_t size, size_t alignment, void *d, void **out)
{
    (void)host;
    return zeMemAllocDevice(c, desc, size, alignment, d, out);
}

uint32_t drop(enum kind kind, const void *at)
{
    struct span *span;
    uint32_t result = INVALID_ARGUMENT;

    spans_lock();
    span = span_at(kind, at);
    if (span) {
        munmap(span->start, span->size);
        span_remove(kind, span);
        result = SUCCESS;
    }
    spans_unlock();
    return result;
}

API(zeMemFree, void *c, void *at)
{
    (void)c;
    return drop(USM, at);
}

API(zeMemFreeExt, void *c, const void *desc, void *at)
{
    (void)desc;
    return zeMemFree(c, at);
}

API(zeMemGetAddressRange, void *c, const void *at, void **base, size_t *size)
{
    static const enum kind kinds[] = {IMPORTED, USM, MAPPED};
    uint32_t result = ADDRESS_NOT_FOUND;

    (void)c;
    spans_lock();
    for (int i = 0; i < 3 && result != SUCCESS; i++) {
        const struct span *span = span_at(kinds[i], at);

        if (!span)
            continue;
        /* Of an import the window, not its pages. */
        *base = span->start + (kinds[i] == IMPORTED ? span->offset : 0);
        *size = kinds[i] == IMPORTED ? span->window : span->size;
        result = SUCCESS;
    }
    spans_unlock();
    return result;
}

/* ---- physical memory and addresses ---- */

API(zePhysicalMemCreate, void *c, void *d, const ze_physical_mem_desc_t *desc, void **out)
{
    int fd;

    (void)c;
    (void)d;
    if (desc->pNext)
        return INVALID_ENUMERATION;
    fd = memfd_create("range-driver", MFD_CLOEXEC);
    if (fd < 0)
        return OUT_OF_HOST_MEMORY;
    if (ftruncate(fd, (off_t)desc->size) < 0) {
        close(fd);
        return OUT_OF_HOST_MEMORY;
    }
    *out = physical_new(fd, desc->size);
    return SUCCESS;
}

API(zePhysicalMemDestroy, void *c, void *handle)
{
    (void)c;
    spans_lock();
    physical_drop(handle);
    spans_unlock();
    return SUCCESS;
}

API(zeVirtualMemReserve, void *c, const void *wish, size_t size, void **out)
{
    (void)c;
    *out = mmap((void *)wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*out == MAP_FAILED)
        return OUT_OF_DEVICE_MEMORY;
    spans_lock();
    span_add(RESERVED, (struct span){.start = *out, .size = size});
    spans_unlock();
    return SUCCESS;
}

API(zeVirtualMemFree, void *c, const void *at, size_t size)
{
    (void)c;
    (void)size;
    return drop(RESERVED, at);
}

API(zeVirtualMemQueryPageSize, void *c, void *d, size_t size, size_t *page)
{
    (void)c;
    (void)d;
    (void)size;
    *page = PAGE;
    return SUCCESS;
}

static uint32_t map(char *at, size_t size, struct physical *physical, size_t offset, uint32_t access)
{
    int prot = PROT_READ | (access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE ? PROT_WRITE : 0);

    /* As drivers of GPUs that have several: the parts of an object on each are mapped whole. */
    if (offset && getenv("ZE_TEST_TILES"))
        return INVALID_ARGUMENT;
    if (offset + size > physical->size || !span_at(RESERVED, at) || span_within(MAPPED, at, at + size))
        return INVALID_ARGUMENT;
    if (mmap(at, size, prot, MAP_SHARED | MAP_FIXED, physical->fd, (off_t)offset) == MAP_FAILED)
        return OUT_OF_DEVICE_MEMORY;
    span_add(MAPPED,
             (struct span){.start = at, .size = size, .physical = physical, .offset = offset, .access = access});
    return SUCCESS;
}

API(zeVirtualMemMap, void *c, const void *at, size_t size, void *handle, size_t offset, uint32_t access)
{
    uint32_t result;

    (void)c;
    spans_lock();
    result = map((char *)at, size, handle, offset, access);
    spans_unlock();
    return result;
}

API(zeVirtualMemUnmap, void *c, const void *at, size_t size)
{
    struct span *span;
    uint32_t result = INVALID_ARGUMENT;

    (void)c;
    spans_lock();
    span = span_at(MAPPED, at);
    if (span && span->start == at && span->size == size) {
        mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        span_remove(MAPPED, span);
        result = SUCCESS;
    }
    spans_unlock();
    return result;
}

API(zeVirtualMemSetAccessAttribute, void *c, const void *at, size_t size, uint32_t access)
{
    struct span *span;
    uint32_t result = INVALID_ARGUMENT;

    (void)c;
    if (!access)
        return INVALID_ENUMERATION;
    spans_lock();
    span = span_at(MAPPED, at);
    if (span && span->start == at && span->size == size) {
        span->access = access;
        mprotect(span->start, size, PROT_READ | (access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE ? PROT_WRITE : 0));
        result = SUCCESS;
    }
    spans_unlock();
    return result;
}

TABLE(zeGetPhysicalMemProcAddrTable, {0, 0x10000, zePhysicalMemCreate}, {1, 0x10000, zePhysicalMemDestroy})
TABLE(zeGetVirtualMemProcAddrTable, {0, 0x10000, zeVirtualMemReserve}, {1, 0x10000, zeVirtualMemFree},
      {2, 0x10000, zeVirtualMemQueryPageSize}, {3, 0x10000, zeVirtualMemMap}, {4, 0x10000, zeVirtualMemUnmap},
      {5, 0x10000, zeVirtualMemSetAccessAttribute})
