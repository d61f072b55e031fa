#include "files.h"

#include "real.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Entries are never given back to the allocator, so a reader that lost a race looks at an entry, not at freed memory:
 * it takes a reference, then checks that the table still says the same. */
struct open_file {
    atomic_int refs; /* descriptors and running calls; 0 free, -1 being closed */
    struct drm_file *drm;
};

#define PER_CHUNK 1024
#define MAX_CHUNKS 1024 /* descriptors up to 2^20, the kernel's own default ceiling */

typedef _Atomic(struct open_file *) slot_t;
static _Atomic(slot_t *) slots[MAX_CHUNKS];
static _Atomic(struct open_file *) pool[MAX_CHUNKS];
static atomic_int highest = -1; /* descriptor ever entered */

static void *pages(size_t size)
{
    void *memory = REAL(mmap)(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The chunk `index` of a two-level table, made if needed. */
#define CHUNK(table, index, make)                                                                                      \
    ({                                                                                                                 \
        typeof(atomic_load(&(table)[0])) chunk_ = atomic_load_explicit(&(table)[index], memory_order_acquire);         \
        if (!chunk_ && (make)) {                                                                                       \
            typeof(chunk_) mine_ = pages(PER_CHUNK * sizeof(*chunk_));                                                 \
            if (mine_ && !atomic_compare_exchange_strong(&(table)[index], &chunk_, mine_))                             \
                munmap(mine_, PER_CHUNK * sizeof(*chunk_));                                                            \
            else                                                                                                       \
                chunk_ = mine_;                                                                                        \
        }                                                                                                              \
        chunk_;                                                                                                        \
    })

static slot_t *slot_of(int fd, bool make)
{
    if (fd < 0 || fd >= PER_CHUNK * MAX_CHUNKS)
        return NULL;
    slot_t *chunk = CHUNK(slots, fd / PER_CHUNK, make);
    return chunk ? &chunk[fd % PER_CHUNK] : NULL;
}

static struct open_file *entry_new(struct drm_file *drm)
{
    for (int i = 0; i < MAX_CHUNKS; i++) {
        struct open_file *chunk = CHUNK(pool, i, true);
        if (!chunk)
            return NULL;
        for (int k = 0; k < PER_CHUNK; k++) {
            int expected = 0;
            if (atomic_compare_exchange_strong(&chunk[k].refs, &expected, 1)) {
                chunk[k].drm = drm;
                return &chunk[k];
            }
        }
    }
    return NULL;
}

static bool entry_get(struct open_file *file)
{
    int refs = atomic_load(&file->refs);
    while (refs > 0) {
        if (atomic_compare_exchange_weak(&file->refs, &refs, refs + 1))
            return true;
    }
    return false;
}

void file_put(struct open_file *file)
{
    if (!file)
        return;
    int refs = atomic_load(&file->refs);
    while (!atomic_compare_exchange_weak(&file->refs, &refs, refs == 1 ? -1 : refs - 1))
        ;
    if (refs > 1)
        return;
    int saved = errno;
    drm_file_put(file->drm);
    file->drm = NULL;
    atomic_store(&file->refs, 0);
    errno = saved;
}

struct drm_file *file_drm(const struct open_file *file)
{
    return file->drm;
}

/* What is known of a descriptor, with a reference; it may be out of date if somebody closed it unseen. */
static struct open_file *known(int fd)
{
    slot_t *slot = slot_of(fd, false);
    struct open_file *file;
    while (slot && (file = atomic_load(slot))) {
        if (!entry_get(file))
            continue;
        if (atomic_load(slot) == file)
            return file;
        file_put(file);
    }
    return NULL;
}

static slot_t *slot_to_fill(int fd)
{
    int top = atomic_load(&highest);
    while (top < fd && !atomic_compare_exchange_weak(&highest, &top, fd))
        ;
    return slot_of(fd, true);
}

/* Gives the caller's reference to the table. */
static void enter(int fd, struct open_file *file)
{
    slot_t *slot = slot_to_fill(fd);
    file_put(slot ? atomic_exchange(slot, file) : file);
}

/* The same unless another thread was faster; the entry that is there now, and the caller keeps its reference. */
static struct open_file *enter_first(int fd, struct open_file *file)
{
    slot_t *slot = slot_to_fill(fd);
    struct open_file *other = NULL;
    if (!slot)
        return file;
    entry_get(file);
    if (atomic_compare_exchange_strong(slot, &other, file))
        return file;
    file_put(file);
    other = known(fd);
    if (!other)
        return file;
    file_put(file);
    return other;
}

struct open_file *file_forget(int fd)
{
    slot_t *slot = slot_of(fd, false);
    if (!slot || !atomic_load_explicit(slot, memory_order_relaxed) || in_vfork_child())
        return NULL;
    return atomic_exchange(slot, NULL);
}

void file_forget_range(unsigned int first, unsigned int last)
{
    int top = atomic_load(&highest);
    for (unsigned int fd = first; fd <= last && (int)fd <= top && top >= 0; fd++)
        file_put(file_forget((int)fd));
}

void file_duplicated(int from, int to)
{
    struct open_file *file = known(from);
    if (file && !in_vfork_child())
        enter(to, file);
    else
        file_put(file_forget(to));
}

static const struct node *node_of(int fd)
{
    struct stat st;
    if (!tree_active() || REAL(fstat)(fd, &st) < 0)
        return NULL;
    return tree_node(st.st_dev, st.st_ino);
}

static struct open_file *open_node(const struct node *node, int fd)
{
    if (REAL(fcntl)(fd, F_GETFL, NULL) & O_PATH) {
        errno = EBADF;
        return NULL;
    }
    int error = 0;
    struct device *dev = device_get((uint32_t)node->device, &error);
    struct drm_file *drm = dev ? drm_file_open(dev, node->render) : NULL;
    struct open_file *file = drm ? entry_new(drm) : NULL;
    if (drm && !file)
        drm_file_put(drm);
    if (!file)
        errno = error ? abs(error) : ENOMEM;
    return file;
}

/* An open file known under another number that is the same open file description. */
static struct open_file *same_description(int fd)
{
    pid_t pid = getpid();
    int top = atomic_load(&highest);
    for (int other = 0; other <= top; other++) {
        slot_t *slot = slot_of(other, false);
        if (other == fd || !slot || !atomic_load_explicit(slot, memory_order_relaxed))
            continue;
        if (syscall(SYS_kcmp, pid, pid, KCMP_FILE, fd, other) == 0)
            return known(other);
    }
    return NULL;
}

void file_opened(int fd)
{
    if (in_vfork_child())
        return;
    int saved = errno;
    const struct node *node = node_of(fd);
    struct open_file *file = node ? open_node(node, fd) : NULL;
    if (file)
        enter(fd, file);
    else
        file_put(file_forget(fd));
    errno = saved;
}

struct open_file *file_get(int fd)
{
    const struct node *node = node_of(fd);
    if (!node) {
        file_put(file_forget(fd));
        errno = 0;
        return NULL;
    }
    struct open_file *file = known(fd);
    if (file && file->drm->dev->index == (uint32_t)node->device && file->drm->render == node->render)
        return file;
    if (file) {
        file_put(file_forget(fd));
        file_put(file);
    }
    file = same_description(fd);
    if (!file)
        file = open_node(node, fd);
    return file ? enter_first(fd, file) : NULL;
}

/* The page is zeroed in a forked child and shared with a vfork()ed one: that tells the two apart. */
static _Atomic(atomic_int *) owner;

static void forked(void)
{
    atomic_int *page = atomic_load(&owner);
    if (page)
        atomic_store(page, getpid());
}

static atomic_int *owner_page(void)
{
    atomic_int *page = atomic_load_explicit(&owner, memory_order_acquire), *mine;
    if (page)
        return page;
    mine = pages(4096);
    if (!mine)
        return NULL;
    atomic_store(mine, getpid());
    madvise(mine, 4096, MADV_WIPEONFORK);
    if (!atomic_compare_exchange_strong(&owner, &page, mine)) {
        munmap(mine, 4096);
        return page;
    }
    pthread_atfork(NULL, NULL, forked); /* where the kernel does not know MADV_WIPEONFORK */
    return mine;
}

bool in_vfork_child(void)
{
    atomic_int *page = owner_page();
    int pid = getpid();
    if (!page || atomic_load(page) == pid)
        return false;
    if (atomic_load(page) == 0) {
        atomic_store(page, pid);
        return false;
    }
    return true;
}
