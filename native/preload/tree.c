#include "tree.h"

#include "real.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DRM_MAJOR 226
#define RENDER_MINOR 128
#define MAX_DEVICES 8

/* The generator marks the files of a file system in the nanoseconds of their mtime: it needs no privilege, survives
 * every way to reach a file, and costs no look-up of a path. Same numbers in ze_ipc/mock_tree.py. */
#define MARK_SYSFS 226000001
#define MARK_DEBUGFS 226000002
#define MARK_DEV 226000003

#define SYSFS_MAGIC 0x62656572
#define DEBUGFS_MAGIC 0x64626720
#define TMPFS_MAGIC 0x01021994

static struct {
    _Atomic int state; /* 0 unknown, 1 being read, 2 no tree, 3 a tree */
    char root[PATH_MAX];
    size_t root_length;
    dev_t dev;
    unsigned int count;
    struct node nodes[2 * MAX_DEVICES];
} tree;

enum { UNKNOWN, READING, ABSENT, PRESENT };

static void find_nodes(void)
{
    char path[PATH_MAX + 32];
    struct stat st;
    for (int device = 0; device < MAX_DEVICES; device++) {
        for (int render = 0; render < 2; render++) {
            unsigned int minor = (unsigned int)device + (render ? RENDER_MINOR : 0);
            snprintf(path, sizeof(path), "%s/dev/dri/%s%u", tree.root, render ? "renderD" : "card", minor);
            if (REAL(stat)(path, &st) < 0 || (tree.dev && st.st_dev != tree.dev))
                continue;
            tree.dev = st.st_dev;
            tree.nodes[tree.count++] =
                (struct node){.ino = st.st_ino, .minor = minor, .device = device, .render = render};
        }
    }
}

static int read_tree(void)
{
    const char *root = getenv("ZE_IPC_MOCK_ROOT");
    size_t length = root ? strlen(root) : 0;
    while (length > 1 && root[length - 1] == '/')
        length--;
    if (!length || root[0] != '/' || length >= sizeof(tree.root) - 256)
        return ABSENT;
    memcpy(tree.root, root, length);
    tree.root_length = length;
    int saved = errno;
    find_nodes();
    errno = saved;
    return tree.count ? PRESENT : ABSENT;
}

bool tree_active(void)
{
    int state = atomic_load_explicit(&tree.state, memory_order_acquire);
    if (state >= ABSENT)
        return state == PRESENT;
    static _Thread_local bool inside __attribute__((tls_model("initial-exec")));
    int expected = UNKNOWN;
    if (atomic_compare_exchange_strong(&tree.state, &expected, READING)) {
        inside = true;
        atomic_store_explicit(&tree.state, read_tree(), memory_order_release);
        inside = false;
    }
    while (!inside && (state = atomic_load_explicit(&tree.state, memory_order_acquire)) == READING)
        sched_yield();
    return state == PRESENT;
}

/* `path` is `prefix`, or below it. */
static bool under(const char *path, const char *prefix)
{
    size_t length = strlen(prefix);
    return !strncmp(path, prefix, length) && (path[length] == 0 || path[length] == '/');
}

static bool is_redirected(const char *path)
{
    static const char *const prefixes[] = {
        "/dev/dri", "/sys/class/drm", "/sys/bus/pci", "/sys/devices/pci0000:00", "/sys/kernel/debug", "/sys/module/xe",
    };
    if (!strncmp(path, "/sys/dev/char/226:", 18))
        return true;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (under(path, prefixes[i]))
            return true;
    }
    return false;
}

/* Directories above the redirected ones. In a chroot they may be absent, then the tree's do. */
static bool is_above(const char *path)
{
    static const char *const directories[] = {
        "/dev",          "/sys",        "/sys/class",   "/sys/bus",    "/sys/dev",
        "/sys/dev/char", "/sys/kernel", "/sys/devices", "/sys/module",
    };
    for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
        if (!strcmp(path, directories[i]))
            return true;
    }
    return false;
}

/* Copy an absolute path without empty and "." components; false if it is too long. With `parents`, ".." removes the
 * component before it (lexically: right for our prefixes, which hold no links). */
static bool normalise(char *out, size_t size, const char *path, bool parents)
{
    size_t used = 0;
    while (*path) {
        while (*path == '/')
            path++;
        size_t length = strcspn(path, "/");
        if (!length)
            break;
        if (length == 1 && path[0] == '.') {
            path++;
            continue;
        }
        if (parents && length == 2 && path[0] == '.' && path[1] == '.') {
            while (used && out[--used] != '/')
                ;
            path += 2;
            continue;
        }
        if (used + length + 2 > size)
            return false;
        out[used++] = '/';
        memcpy(out + used, path, length);
        used += length;
        path += length;
    }
    if (!used)
        out[used++] = '/';
    out[used] = 0;
    return true;
}

/* "/proc/self/fdinfo/7" -> 7, of this process only; else -1. */
static int fdinfo_number(const char *path)
{
    if (strncmp(path, "/proc/", 6))
        return -1;
    path += 6;
    if (!strncmp(path, "self/", 5)) {
        path += 5;
    } else if (!strncmp(path, "thread-self/", 12)) {
        path += 12;
    } else {
        char *end;
        unsigned long pid = strtoul(path, &end, 10);
        if (end == path || *end != '/' || pid != (unsigned long)getpid())
            return -1;
        path = end + 1;
    }
    if (strncmp(path, "fdinfo/", 7) || !isdigit((unsigned char)path[7]))
        return -1;
    char *end;
    unsigned long fd = strtoul(path + 7, &end, 10);
    return *end || fd > INT_MAX ? -1 : (int)fd;
}

static void redirect(struct target *target, const char *path)
{
    size_t length = strlen(path);
    if (tree.root_length + length >= sizeof(target->buffer))
        return;
    memmove(target->buffer + tree.root_length, path, length + 1);
    memcpy(target->buffer, tree.root, tree.root_length);
    target->path = target->buffer;
    target->dirfd = AT_FDCWD;
    target->redirected = true;
}

/* A path that ends in "/" or "/." means the directory behind a link. */
static void keep_slash(struct target *target, const char *path)
{
    size_t length = strlen(path), used = strlen(target->buffer);
    bool slash = path[length - 1] == '/' || (length > 1 && path[length - 1] == '.' && path[length - 2] == '/');
    if (slash && used + 1 < sizeof(target->buffer))
        strcpy(target->buffer + used, "/");
}

/* Decide about an absolute path as the program wrote it. */
static void absolute(struct target *target, const char *path)
{
    char clean[PATH_MAX];
    if (!normalise(clean, sizeof(clean), path, false))
        return;
    target->fdinfo = fdinfo_number(clean);
    bool dots = strstr(clean, "/..") != NULL;
    if (is_redirected(clean)) {
        struct target wanted = {.dirfd = AT_FDCWD};
        redirect(&wanted, clean);
        /* ".." may lead out of what is redirected (/dev/dri/../null): then only if the tree has it. */
        if (dots && REAL(faccessat)(AT_FDCWD, wanted.buffer, F_OK, 0) < 0) {
            if (normalise(target->buffer, sizeof(target->buffer), clean, true) && !is_redirected(target->buffer)) {
                target->path = target->buffer;
                target->dirfd = AT_FDCWD;
                return;
            }
        }
        redirect(target, clean);
        keep_slash(target, path);
    } else {
        if (dots && !normalise(clean, sizeof(clean), path, true))
            return;
        if (dots && is_redirected(clean))
            redirect(target, clean);
        else if (is_above(clean)) {
            target->fallback = true;
            memcpy(target->buffer, clean, strlen(clean) + 1);
        }
    }
}

/* Can a path that starts with this component, below an unknown directory, be one of ours? */
static bool interesting(const char *path)
{
    static const char *const words[] = {"dev",    "sys",    "dri", "class", "bus",        "devices", "char",
                                        "kernel", "module", "drm", "pci",   "pci0000:00", "debug",   "xe"};
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    size_t length = strcspn(path, "/");
    if (isdigit((unsigned char)path[0]))
        return path[length] == 0; /* /proc/self/fdinfo, /sys/dev/char */
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i]) == length && !memcmp(path, words[i], length))
            return true;
    }
    return false;
}

static void relative(struct target *target, int dirfd, const char *path)
{
    char joined[PATH_MAX];
    ssize_t length;
    if (dirfd == AT_FDCWD) {
        if (!REAL(getcwd)(joined, sizeof(joined)))
            return;
        length = (ssize_t)strlen(joined);
    } else {
        char link[32];
        snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
        length = REAL(readlink)(link, joined, sizeof(joined));
    }
    if (length <= 0 || joined[0] != '/' || (size_t)length + strlen(path) + 2 > sizeof(joined))
        return;
    joined[length] = '/';
    strcpy(joined + length + 1, path);
    if (!strncmp(joined, tree.root, tree.root_length) && joined[tree.root_length] == '/')
        return; /* already in the tree */
    absolute(target, joined);
}

void target_at(struct target *target, int dirfd, const char *path)
{
    target->dirfd = dirfd;
    target->path = path;
    target->redirected = false;
    target->fallback = false;
    target->fdinfo = -1;
    if (!path || !path[0] || !tree_active())
        return;
    int saved = errno;
    if (path[0] == '/') {
        const char *first = path;
        while (first[0] == '/' || (first[0] == '.' && first[1] == '/'))
            first++;
        if (!strncmp(first, "dev", 3) || !strncmp(first, "sys", 3) || !strncmp(first, "proc/", 5))
            absolute(target, path);
    } else if (interesting(path)) {
        relative(target, dirfd, path);
    }
    errno = saved;
}

bool target_retry(struct target *target)
{
    if (!target->fallback || errno != ENOENT)
        return false;
    target->fallback = false;
    redirect(target, target->buffer);
    return true;
}

const struct node *tree_node(dev_t dev, ino_t ino)
{
    if (!tree_active() || dev != tree.dev)
        return NULL;
    for (unsigned int i = 0; i < tree.count; i++) {
        if (tree.nodes[i].ino == ino)
            return &tree.nodes[i];
    }
    return NULL;
}

void tree_patch_stat(struct stat *st)
{
    if (!tree_active() || st->st_dev != tree.dev)
        return;
    const struct node *node = tree_node(st->st_dev, st->st_ino);
    if (node) {
        st->st_mode = (st->st_mode & ~(mode_t)S_IFMT) | S_IFCHR;
        st->st_rdev = makedev(DRM_MAJOR, node->minor);
    } else if (st->st_mtim.tv_nsec == MARK_SYSFS) {
        st->st_dev = makedev(0, 0xfe);
    } else if (st->st_mtim.tv_nsec == MARK_DEBUGFS) {
        st->st_dev = makedev(0, 0xff); /* IGT takes debugfs for mounted if its st_dev differs from its parent's */
    }
}

long tree_filesystem(const struct stat *st)
{
    if (!tree_active() || st->st_dev != tree.dev)
        return 0;
    switch (st->st_mtim.tv_nsec) {
    case MARK_SYSFS:
        return SYSFS_MAGIC;
    case MARK_DEBUGFS:
        return DEBUGFS_MAGIC;
    case MARK_DEV:
        return TMPFS_MAGIC;
    default:
        return 0;
    }
}

size_t tree_strip(char *path, size_t length)
{
    size_t root = tree.root_length;
    if (!tree_active() || length <= root || memcmp(path, tree.root, root) != 0 || path[root] != '/')
        return length;
    memmove(path, path + root, length - root);
    return length - root;
}

void tree_pci_address(int device, char *address, size_t size)
{
    char path[PATH_MAX + 32], link[PATH_MAX];
    snprintf(path, sizeof(path), "%s/sys/dev/char/%d:%d", tree.root, DRM_MAJOR, RENDER_MINOR + device);
    ssize_t length = REAL(readlink)(path, link, sizeof(link) - 1);
    if (length <= 0)
        return;
    link[length] = 0;
    char *drm = strstr(link, "/drm/");
    if (!drm)
        return;
    *drm = 0;
    const char *slash = strrchr(link, '/');
    if (slash && strlen(slash + 1) < size)
        strcpy(address, slash + 1);
}

const char *tree_child(int dirfd)
{
    static const char *const children[][2] = {
        {"/dev", "dri"},       {"/sys/class", "drm"}, {"/sys/bus", "pci"}, {"/sys/devices", "pci0000:00"},
        {"/sys/module", "xe"},
    };
    char link[32], path[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
    ssize_t length = REAL(readlink)(link, path, sizeof(path));
    for (size_t i = 0; length > 0 && i < sizeof(children) / sizeof(children[0]); i++) {
        if (strlen(children[i][0]) == (size_t)length && !memcmp(children[i][0], path, (size_t)length))
            return children[i][1];
    }
    return NULL;
}
