/* The mock inside a process: descriptors of its nodes are memfds, known by number, and by inode when they were dup'ed.
 */
#include "xe_mock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"
#include "sync_file.h"

struct node {
    struct drm_file *file;
    dev_t dev;
    ino_t ino;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *nodes; /* by descriptor; file is NULL where there is none */
static int num_nodes;

static void lock_nodes(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_nodes(void)
{
    pthread_mutex_unlock(&lock);
}

static void watch_fork(void)
{
    pthread_atfork(lock_nodes, unlock_nodes, unlock_nodes);
}

/* Takes over the reference of file. Lock held. */
static int remember(int fd, struct drm_file *file, const struct stat *st)
{
    if (fd >= num_nodes) {
        int wanted = fd + 64;
        struct node *larger = realloc(nodes, (size_t)wanted * sizeof(*nodes));
        if (!larger)
            return -ENOMEM;
        memset(larger + num_nodes, 0, (size_t)(wanted - num_nodes) * sizeof(*nodes));
        nodes = larger;
        num_nodes = wanted;
    }
    nodes[fd] = (struct node){file, st->st_dev, st->st_ino};
    return 0;
}

/* A duplicate of a node's descriptor becomes known at its first use. Lock held. */
static struct drm_file *find_duplicate(int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return NULL;
    for (int i = 0; i < num_nodes; i++) {
        if (nodes[i].file && nodes[i].ino == st.st_ino && nodes[i].dev == st.st_dev) {
            struct drm_file *file = drm_file_get(nodes[i].file);
            if (remember(fd, file, &st) == 0)
                return file;
            drm_file_put(file);
            return NULL;
        }
    }
    return NULL;
}

/* A reference of the DRM file, or NULL: another kind of descriptor. */
static struct drm_file *file_of(int fd)
{
    lock_nodes();
    struct drm_file *file = fd >= 0 && fd < num_nodes ? nodes[fd].file : NULL;
    if (!file && fd >= 0)
        file = find_duplicate(fd);
    if (file)
        drm_file_get(file);
    unlock_nodes();
    return file;
}

int xe_mock_open(uint32_t index, bool card, int flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int r;
    struct device *dev = device_get(index, &r);
    if (!dev)
        return r;
    pthread_once(&once, watch_fork);
    int fd = memfd_create("xe-mock-node", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    if (fd < 0)
        return -errno;
    struct stat st;
    struct drm_file *file = fstat(fd, &st) ? NULL : drm_file_open(dev, !card);
    lock_nodes();
    r = file ? remember(fd, file, &st) : -ENOMEM;
    unlock_nodes();
    if (!r)
        return fd;
    if (file)
        drm_file_put(file);
    close(fd);
    return r;
}

/* "mock:N", "mock:N:card", ".../renderD<128+N>", ".../card<N>". */
static bool parse_path(const char *path, uint32_t *index, bool *card)
{
    char tail[8] = "";
    if (sscanf(path, "mock:%u%7s", index, tail) >= 1) {
        *card = !strcmp(tail, ":card");
        return *card || !*tail;
    }
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    unsigned minor;
    *card = sscanf(name, "card%u%7s", &minor, tail) == 1;
    if (*card || (sscanf(name, "renderD%u%7s", &minor, tail) == 1 && minor >= 128)) {
        *index = *card ? minor : minor - 128;
        return true;
    }
    return false;
}

static int failed(int error)
{
    errno = error;
    return -1;
}

static int mock_open(const char *path, int flags)
{
    uint32_t index;
    bool card;
    if (!parse_path(path, &index, &card))
        return failed(ENOENT);
    int fd = xe_mock_open(index, card, flags);
    return fd < 0 ? failed(-fd) : fd;
}

int xe_mock_close(int fd)
{
    lock_nodes();
    struct drm_file *file = fd >= 0 && fd < num_nodes ? nodes[fd].file : NULL;
    if (file)
        nodes[fd].file = NULL;
    unlock_nodes();
    if (file)
        drm_file_put(file);
    return close(fd) ? -errno : 0;
}

static int mock_close(int fd)
{
    int r = xe_mock_close(fd);
    return r < 0 ? failed(-r) : 0;
}

int xe_mock_ioctl(int fd, unsigned long request, void *argument)
{
    struct drm_file *file = file_of(fd);
    if (file) {
        int r = drm_ioctl(file, request, argument);
        drm_file_put(file);
        return r;
    }
    if (dma_buf_is_ours(fd))
        return dma_buf_ioctl(fd, request, argument);
    if ((request >> 8 & 0xff) == SYNC_IOC_MAGIC && sync_file_is(fd))
        return sync_file_ioctl(fd, request, argument);
    int r = ioctl(fd, request, argument);
    return r < 0 ? -errno : r;
}

static int mock_ioctl(int fd, unsigned long request, void *argument)
{
    int r = xe_mock_ioctl(fd, request, argument);
    return r < 0 ? failed(-r) : r;
}

static void *mock_mmap(void *address, size_t length, int prot, int flags, int fd, int64_t offset)
{
    struct drm_file *file = file_of(fd);
    if (file) {
        void *mapped = drm_mmap(file, address, length, prot, flags, offset);
        drm_file_put(file);
        return mapped;
    }
    if (dma_buf_is_ours(fd))
        return dma_buf_mmap(fd, address, length, prot, flags, offset);
    return mmap(address, length, prot, flags, fd, (off_t)offset);
}

const struct xe_ops *xe_mock_ops(void)
{
    static const struct xe_ops ops = {.open = mock_open, .close = mock_close, .ioctl = mock_ioctl, .mmap = mock_mmap};
    return &ops;
}
