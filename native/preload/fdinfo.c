#include "fdinfo.h"

#include "dmabuf.h"
#include "files.h"
#include "real.h"
#include "streamer.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

struct text {
    char bytes[4096];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void print(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text->bytes + text->used, sizeof(text->bytes) - text->used, format, args);
    va_end(args);
    if (length > 0 && text->used + (size_t)length < sizeof(text->bytes))
        text->used += (size_t)length;
}

/* Bytes; a unit as long as nothing is lost, at most twice. */
static void print_size(struct text *text, const char *key, const char *region, uint64_t size)
{
    static const char *const units[] = {"", " KiB", " MiB"};
    unsigned int unit = 0;
    while (unit < 2 && size && size % 1024 == 0) {
        size /= 1024;
        unit++;
    }
    print(text, "drm-%s-%s:\t%llu%s\n", key, region, (unsigned long long)size, units[unit]);
}

/* Engine time by class; the clock itself counts on while nothing runs. */
static void print_engines(struct text *text, struct drm_file *file)
{
    static const char *const names[ENGINE_CLASSES] = {"rcs", "bcs", "vcs", "vecs", "ccs"};
    uint64_t ticks[ENGINE_CLASSES];
    uint32_t capacity[ENGINE_CLASSES] = {0};
    const struct profile *profile = file->dev->profile;
    for (uint32_t i = 0; i < profile->num_engines; i++)
        capacity[profile->engines[i].engine_class]++;
    queue_file_ticks(file, ticks);
    for (int i = 0; i < ENGINE_CLASSES; i++) {
        if (!capacity[i])
            continue;
        print(text, "drm-cycles-%s:\t%llu\n", names[i], (unsigned long long)ticks[i]);
        print(text, "drm-total-cycles-%s:\t%llu\n", names[i], (unsigned long long)streamer_ticks());
        if (capacity[i] > 1)
            print(text, "drm-engine-capacity-%s:\t%u\n", names[i], capacity[i]);
    }
}

/* Where a BO of the file counts. A system BO is in "gtt" once it has pages, in "system" before. */
enum { IN_SYSTEM, IN_GTT, IN_VRAM, NUM_REGIONS };

struct usage {
    uint64_t private, shared, resident, purgeable, active;
};

/* Address spaces of the file with a job that has not ended, references on them; an object mapped there is active. */
struct busy_vms {
    struct vm *list[64]; /* more are not looked at */
    size_t count;
};

static bool has_job(struct vm *vm)
{
    bool busy = false;
    pthread_mutex_lock(&vm->lock);
    for (uint32_t i = 0; i < vm->num_execs && !busy; i++)
        busy = !fence_is_signalled(vm->execs[i]);
    pthread_mutex_unlock(&vm->lock);
    return busy;
}

static void find_busy_vms(struct busy_vms *busy, struct drm_file *file)
{
    uint32_t id = 0;
    struct vm *vm;
    pthread_mutex_lock(&file->lock);
    for (; (vm = idr_next(&file->vms, &id)) && busy->count < ARRAY_SIZE(busy->list); id++) {
        if (has_job(vm))
            busy->list[busy->count++] = vm_get(vm);
    }
    pthread_mutex_unlock(&file->lock);
}

/* dev->lock held. */
static bool is_active(const struct bo *bo, const struct busy_vms *busy)
{
    for (const struct vma *vma = bo->vmas; vma; vma = vma->next_in_bo) {
        for (size_t i = 0; i < busy->count; i++) {
            if (vma->vm == busy->list[i])
                return true;
        }
    }
    return false;
}

static void count(struct usage usage[NUM_REGIONS], struct drm_file *file)
{
    struct busy_vms busy = {.count = 0};
    uint32_t id = 0;
    struct handle *handle;
    find_busy_vms(&busy, file);
    pthread_mutex_lock(&file->dev->lock);
    while ((handle = idr_next(&file->handles, &id))) {
        const struct bo *bo = handle->bo;
        struct usage *region = &usage[bo->region == REGION_VRAM ? IN_VRAM : bo->resident ? IN_GTT : IN_SYSTEM];
        bool shared = bo->exported || (bo->handles && bo->handles->next);
        *(shared ? &region->shared : &region->private) += bo->size;
        if (bo->resident)
            region->resident += bo->size;
        if (bo->resident && bo->purge == BO_DONTNEED)
            region->purgeable += bo->size;
        if (is_active(bo, &busy))
            region->active += bo->size;
        id++;
    }
    pthread_mutex_unlock(&file->dev->lock);
    while (busy.count)
        vm_put(busy.list[--busy.count]);
}

static void print_drm(struct text *text, struct drm_file *file)
{
    static const char *const names[NUM_REGIONS] = {"system", "gtt", "vram0"};
    struct usage usage[NUM_REGIONS] = {0};
    bool discrete = file->dev->profile->discrete;
    char address[16] = "0000:00:00.0";
    tree_pci_address((int)file->dev->index, address, sizeof(address));
    print(text, "drm-driver:\txe\ndrm-client-id:\t%llu\ndrm-pdev:\t%s\n", (unsigned long long)file->client_id, address);
    pthread_mutex_lock(&file->lock);
    if (file->client_name[0])
        print(text, "drm-client-name:\t%s\n", file->client_name);
    pthread_mutex_unlock(&file->lock);
    count(usage, file);
    for (int i = 0; i < (discrete ? NUM_REGIONS : IN_VRAM); i++) {
        print_size(text, "total", names[i], usage[i].private + usage[i].shared);
        print_size(text, "shared", names[i], usage[i].shared);
        print_size(text, "active", names[i], usage[i].active);
        print_size(text, "resident", names[i], usage[i].resident);
        if (i == IN_SYSTEM)
            print_size(text, "purgeable", names[i], usage[i].purgeable);
    }
    print_engines(text, file);
}

/* The lines every file has (pos, flags, mnt_id, ino): /proc's own. */
static void print_native(struct text *text, int fd)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    int native = REAL(openat)(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (native < 0)
        return;
    ssize_t length = read(native, text->bytes, sizeof(text->bytes) - 1);
    text->used = length > 0 ? (size_t)length : 0;
    REAL(close)(native);
}

static void print_dma_buf(struct text *text, int fd)
{
    struct stat st;
    if (REAL(fstat)(fd, &st) < 0)
        return;
    print(text, "size:\t%lld\ncount:\t%lu\nexp_name:\tdrm\n", (long long)st.st_size, (unsigned long)st.st_nlink + 1);
    char name[DMA_BUF_NAME_LEN];
    ssize_t length = fgetxattr(fd, DMA_BUF_NAME_ATTRIBUTE, name, sizeof(name));
    if (length > 0)
        print(text, "name:\t%.*s\n", (int)length, name);
}

int fdinfo_open(int fd, int flags)
{
    struct open_file *file = file_get(fd);
    if (!file && !fd_is_dma_buf(fd))
        return -1;
    struct text text = {.used = 0};
    print_native(&text, fd);
    if (file)
        print_drm(&text, file_drm(file));
    else
        print_dma_buf(&text, fd);
    file_put(file);
    int memory = memfd_create("fdinfo", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    if (memory < 0)
        return -1;
    if (pwrite(memory, text.bytes, text.used, 0) != (ssize_t)text.used) {
        REAL(close)(memory);
        return -1;
    }
    return memory;
}
