#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"
#include "store_dir.h"

struct storage {
    struct store *store; /* the directory that has the file; NULL: only fd keeps it */
    int fd;
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct store *current;
static struct store *inherited; /* from before forks: their files are opened, none is removed */
static atomic_ullong last_serial;

void store_lock(void)
{
    pthread_mutex_lock(&lock);
}

void store_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void store_fork_child(void)
{
    if (!current)
        return;
    current->ours = false;
    current->older = inherited;
    inherited = current;
    current = NULL;
}

struct store *store_home(uint64_t *serial)
{
    *serial = atomic_fetch_add(&last_serial, 1);
    pthread_mutex_lock(&lock);
    if (!current)
        current = store_dir_open();
    struct store *store = current;
    pthread_mutex_unlock(&lock);
    return store;
}

static void __attribute__((destructor)) store_at_exit(void)
{
    if (current && current->ours && current->pid == getpid())
        store_dir_remove(current);
}

static struct storage *storage_new(struct store *store, uint64_t serial, const struct store_attributes *a)
{
    char name[96];
    int length = snprintf(name, sizeof(name), "xe-bo.%u.%s.%x.%u.%x.%llx", a->device, a->profile, a->placement,
                          a->caching, a->flags, (unsigned long long)serial);
    struct storage *storage = malloc(sizeof(*storage) + (size_t)length + 1);
    if (!storage)
        return NULL;
    storage->store = store;
    storage->fd = -1;
    memcpy(storage->name, name, (size_t)length + 1);
    return storage;
}

int storage_create(struct store *home, uint64_t serial, const struct store_attributes *attributes, uint64_t size,
                   int cloexec, struct storage **out)
{
    struct storage *storage = storage_new(home, serial, attributes);
    if (!storage)
        return -ENOMEM;
    int fd = openat(home->fd, storage->name, O_CREAT | O_RDWR | cloexec, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size)) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        free(storage);
        return -error;
    }
    *out = storage;
    return fd;
}

/* A name for an open file. Directly where that is permitted (to the opener and to root), which takes half the time. */
static int link_fd(int fd, int directory, const char *name)
{
    static atomic_bool refused;
    if (!atomic_load_explicit(&refused, memory_order_relaxed) && linkat(fd, "", directory, name, AT_EMPTY_PATH) == 0)
        return 0;
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int r = linkat(AT_FDCWD, path, directory, name, AT_SYMLINK_FOLLOW);
    if (r == 0)
        atomic_store_explicit(&refused, true, memory_order_relaxed);
    return r;
}

int storage_adopt(int fd, const struct store_attributes *attributes, bool ours, struct storage **out)
{
    uint64_t serial = 0;
    struct store *store = ours ? store_home(&serial) : NULL;
    struct storage *storage = storage_new(store, serial, attributes);
    if (!storage)
        return -ENOMEM;
    if (store) {
        if (link_fd(fd, store->fd, storage->name) == 0) {
            *out = storage;
            return 0;
        }
        /* Its last name is gone already, or it lives on another file system: then by a descriptor. */
        storage->store = NULL;
    }
    storage->fd = high_dup(fd);
    if (storage->fd < 0) {
        int error = errno;
        free(storage);
        return -error;
    }
    *out = storage;
    return 0;
}

int storage_open(const struct storage *storage, int flags)
{
    int fd;
    if (storage->store) {
        fd = openat(storage->store->fd, storage->name, flags);
    } else if ((fcntl(storage->fd, F_GETFL) & O_ACCMODE) == (flags & O_ACCMODE)) {
        fd = fcntl(storage->fd, flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
    } else {
        char path[40];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", storage->fd);
        fd = open(path, flags);
    }
    return fd < 0 ? -errno : fd;
}

void storage_free(struct storage *storage)
{
    if (storage->store && storage->store->ours)
        unlinkat(storage->store->fd, storage->name, 0);
    if (storage->fd >= 0)
        close(storage->fd);
    free(storage);
}

enum store_identity storage_identify(int fd, struct store_attributes *a)
{
    char path[40], target[4096];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length <= 0)
        return STORE_ALIEN;
    target[length] = 0;
    if (!strncmp(target, "/dmabuf:", 8))
        return STORE_MEMFD;
    if (!strncmp(target, "/memfd:", 7)) /* the mock's own memfds (nodes, fence pages) are no memory of anybody */
        return strncmp(target + 7, "xe-mock", 7) ? STORE_MEMFD : STORE_ALIEN;
    const char *name = strrchr(target, '/');
    if (!name || !strstr(target, "/ze-ipc-mock-"))
        return STORE_ALIEN;
    int fields =
        sscanf(name, "/xe-bo.%u.%7[a-z0-9].%x.%u.%x.", &a->device, a->profile, &a->placement, &a->caching, &a->flags);
    return fields == 5 ? STORE_OURS : STORE_ALIEN;
}
