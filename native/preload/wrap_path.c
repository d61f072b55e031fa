/* Calls that name a file: the tree instead of /dev/dri, /sys and debugfs. */
#include "dmabuf.h"
#include "fdinfo.h"
#include "files.h"
#include "real.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* `type result = call`, on the tree where the path says so; once more if that failed and the tree is the fallback. */
#define ON_TARGET(type, failed, at, name, call)                                                                        \
    struct target t;                                                                                                   \
    target_at(&t, at, name);                                                                                           \
    type result = call;                                                                                                \
    if (result == (failed) && target_retry(&t))                                                                        \
    result = call

/* ---- open ---- */

static int opened(const struct target *t, const char *path, int fd)
{
    /* Other ways to a node (a link somewhere, a descriptor's directory) are recognised at its first ioctl. */
    if (fd >= 0 && tree_active()) {
        if (t->redirected || (path && !strncmp(path, "/proc/", 6)))
            file_opened(fd);
        else
            file_put(file_forget(fd));
    }
    return fd;
}

#define OPEN(at, name, flags, call)                                                                                    \
    struct target t;                                                                                                   \
    target_at(&t, at, name);                                                                                           \
    int fd = t.fdinfo >= 0 && !((flags) & (O_PATH | O_DIRECTORY)) ? fdinfo_open(t.fdinfo, flags) : -1;                 \
    if (fd >= 0)                                                                                                       \
        return fd;                                                                                                     \
    fd = call;                                                                                                         \
    if (fd < 0 && target_retry(&t))                                                                                    \
        fd = call;                                                                                                     \
    return opened(&t, name, fd)

int wrap_open(const char *path, int flags, mode_t mode)
{
    OPEN(AT_FDCWD, path, flags, REAL(openat)(t.dirfd, t.path, flags, mode));
}

int wrap_open64(const char *path, int flags, mode_t mode)
{
    OPEN(AT_FDCWD, path, flags, REAL(openat64)(t.dirfd, t.path, flags, mode));
}

int wrap___open_2(const char *path, int flags)
{
    OPEN(AT_FDCWD, path, flags, REAL(__openat_2)(t.dirfd, t.path, flags));
}

int wrap___open64_2(const char *path, int flags)
{
    OPEN(AT_FDCWD, path, flags, REAL(__openat64_2)(t.dirfd, t.path, flags));
}

int wrap_openat(int dirfd, const char *path, int flags, mode_t mode)
{
    OPEN(dirfd, path, flags, REAL(openat)(t.dirfd, t.path, flags, mode));
}

int wrap_openat64(int dirfd, const char *path, int flags, mode_t mode)
{
    OPEN(dirfd, path, flags, REAL(openat64)(t.dirfd, t.path, flags, mode));
}

int wrap___openat_2(int dirfd, const char *path, int flags)
{
    OPEN(dirfd, path, flags, REAL(__openat_2)(t.dirfd, t.path, flags));
}

int wrap___openat64_2(int dirfd, const char *path, int flags)
{
    OPEN(dirfd, path, flags, REAL(__openat64_2)(t.dirfd, t.path, flags));
}

int wrap_creat(const char *path, mode_t mode)
{
    OPEN(AT_FDCWD, path, O_WRONLY, REAL(creat)(t.path, mode));
}

int wrap_creat64(const char *path, mode_t mode)
{
    OPEN(AT_FDCWD, path, O_WRONLY, REAL(creat64)(t.path, mode));
}

static FILE *fopen_target(const char *path, const char *mode, real_fopen_fn *call)
{
    struct target t;
    target_at(&t, AT_FDCWD, path);
    if (t.fdinfo >= 0) {
        int fd = fdinfo_open(t.fdinfo, O_CLOEXEC);
        FILE *stream = fd >= 0 ? fdopen(fd, "r") : NULL;
        if (stream)
            return stream;
        if (fd >= 0)
            REAL(close)(fd);
    }
    return call(t.path, mode);
}

FILE *wrap_fopen(const char *path, const char *mode)
{
    return fopen_target(path, mode, REAL(fopen));
}

FILE *wrap_fopen64(const char *path, const char *mode)
{
    return fopen_target(path, mode, REAL(fopen64));
}

/* ---- stat ---- */

#define STAT(at, name, call)                                                                                           \
    ON_TARGET(int, -1, at, name, call);                                                                                \
    if (result == 0)                                                                                                   \
        tree_patch_stat(st);                                                                                           \
    return result

int wrap_stat(const char *path, struct stat *st)
{
    STAT(AT_FDCWD, path, REAL(stat)(t.path, st));
}

int wrap_stat64(const char *path, struct stat *st)
{
    STAT(AT_FDCWD, path, REAL(stat64)(t.path, st));
}

int wrap_lstat(const char *path, struct stat *st)
{
    STAT(AT_FDCWD, path, REAL(lstat)(t.path, st));
}

int wrap_lstat64(const char *path, struct stat *st)
{
    STAT(AT_FDCWD, path, REAL(lstat64)(t.path, st));
}

int wrap_fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
    STAT(dirfd, path, REAL(fstatat)(t.dirfd, t.path, st, flags));
}

int wrap_fstatat64(int dirfd, const char *path, struct stat *st, int flags)
{
    STAT(dirfd, path, REAL(fstatat64)(t.dirfd, t.path, st, flags));
}

int wrap___xstat(int version, const char *path, struct stat *st)
{
    STAT(AT_FDCWD, path, REAL(__xstat)(version, t.path, st));
}

int wrap___xstat64(int version, const char *path, struct stat *st)
{
    STAT(AT_FDCWD, path, REAL(__xstat64)(version, t.path, st));
}

int wrap___lxstat(int version, const char *path, struct stat *st)
{
    STAT(AT_FDCWD, path, REAL(__lxstat)(version, t.path, st));
}

int wrap___lxstat64(int version, const char *path, struct stat *st)
{
    STAT(AT_FDCWD, path, REAL(__lxstat64)(version, t.path, st));
}

int wrap___fxstatat(int version, int dirfd, const char *path, struct stat *st, int flags)
{
    STAT(dirfd, path, REAL(__fxstatat)(version, t.dirfd, t.path, st, flags));
}

int wrap___fxstatat64(int version, int dirfd, const char *path, struct stat *st, int flags)
{
    STAT(dirfd, path, REAL(__fxstatat64)(version, t.dirfd, t.path, st, flags));
}

#define FSTAT(call)                                                                                                    \
    int result = call;                                                                                                 \
    if (result == 0)                                                                                                   \
        tree_patch_stat(st);                                                                                           \
    return result

int wrap_fstat(int fd, struct stat *st)
{
    FSTAT(REAL(fstat)(fd, st));
}

int wrap_fstat64(int fd, struct stat *st)
{
    FSTAT(REAL(fstat64)(fd, st));
}

int wrap___fxstat(int version, int fd, struct stat *st)
{
    FSTAT(REAL(__fxstat)(version, fd, st));
}

int wrap___fxstat64(int version, int fd, struct stat *st)
{
    FSTAT(REAL(__fxstat64)(version, fd, st));
}

int wrap_statx(int dirfd, const char *path, int flags, unsigned int mask, struct statx *stx)
{
    ON_TARGET(int, -1, dirfd, path, REAL(statx)(t.dirfd, t.path, flags, mask, stx));
    if (result < 0 || !tree_active())
        return result;
    struct stat st = {
        .st_dev = makedev(stx->stx_dev_major, stx->stx_dev_minor),
        .st_ino = stx->stx_ino,
        .st_mode = stx->stx_mode,
        .st_rdev = makedev(stx->stx_rdev_major, stx->stx_rdev_minor),
        .st_mtim.tv_nsec = stx->stx_mask & STATX_MTIME ? stx->stx_mtime.tv_nsec : 0,
    };
    tree_patch_stat(&st);
    stx->stx_dev_major = major(st.st_dev);
    stx->stx_dev_minor = minor(st.st_dev);
    stx->stx_mode = (uint16_t)st.st_mode;
    stx->stx_rdev_major = major(st.st_rdev);
    stx->stx_rdev_minor = minor(st.st_rdev);
    return result;
}

/* ---- statfs ---- */

int wrap_statfs(const char *path, struct statfs *fs)
{
    struct stat st;
    ON_TARGET(int, -1, AT_FDCWD, path, REAL(statfs)(t.path, fs));
    if (result == 0 && t.redirected && REAL(stat)(t.path, &st) == 0 && tree_filesystem(&st))
        fs->f_type = tree_filesystem(&st);
    return result;
}

int wrap_statfs64(const char *path, struct statfs *fs)
{
    return wrap_statfs(path, fs);
}

int wrap_fstatfs(int fd, struct statfs *fs)
{
    struct stat st;
    int result = REAL(fstatfs)(fd, fs);
    if (result == 0 && tree_active() && REAL(fstat)(fd, &st) == 0 && tree_filesystem(&st))
        fs->f_type = tree_filesystem(&st);
    return result;
}

int wrap_fstatfs64(int fd, struct statfs *fs)
{
    return wrap_fstatfs(fd, fs);
}

/* ---- access ---- */

#define SIMPLE(at, name, call)                                                                                         \
    ON_TARGET(int, -1, at, name, call);                                                                                \
    return result

int wrap_access(const char *path, int mode)
{
    SIMPLE(AT_FDCWD, path, REAL(access)(t.path, mode));
}

int wrap_euidaccess(const char *path, int mode)
{
    SIMPLE(AT_FDCWD, path, REAL(euidaccess)(t.path, mode));
}

int wrap_eaccess(const char *path, int mode)
{
    SIMPLE(AT_FDCWD, path, REAL(eaccess)(t.path, mode));
}

int wrap_faccessat(int dirfd, const char *path, int mode, int flags)
{
    SIMPLE(dirfd, path, REAL(faccessat)(t.dirfd, t.path, mode, flags));
}

int wrap_chdir(const char *path)
{
    SIMPLE(AT_FDCWD, path, REAL(chdir)(t.path));
}

#define XATTR(name, call)                                                                                              \
    ON_TARGET(ssize_t, -1, AT_FDCWD, name, call);                                                                      \
    return result

ssize_t wrap_getxattr(const char *path, const char *name, void *value, size_t size)
{
    XATTR(path, REAL(getxattr)(t.path, name, value, size));
}

ssize_t wrap_lgetxattr(const char *path, const char *name, void *value, size_t size)
{
    XATTR(path, REAL(lgetxattr)(t.path, name, value, size));
}

ssize_t wrap_listxattr(const char *path, char *list, size_t size)
{
    XATTR(path, REAL(listxattr)(t.path, list, size));
}

ssize_t wrap_llistxattr(const char *path, char *list, size_t size)
{
    XATTR(path, REAL(llistxattr)(t.path, list, size));
}

/* ---- names that come back ---- */

/* A link may lead into the tree (/proc/self/fd): the program must see the path it knows. It is read whole into a buffer
 * of ours, since what the program gets may be shorter and nothing behind it may change. */
static ssize_t read_link(int dirfd, const char *path, char *buffer, size_t size)
{
    if (!size || size > SSIZE_MAX || !tree_active())
        return REAL(readlinkat)(dirfd, path, buffer, size);
    char whole[PATH_MAX];
    ON_TARGET(ssize_t, -1, dirfd, path, REAL(readlinkat)(t.dirfd, t.path, whole, sizeof(whole)));
    if (result <= 0)
        return result;
    size_t length = (size_t)result;
    if (whole[0] == '/') {
        length = tree_strip(whole, length);
        length = dma_buf_link(whole, length, sizeof(whole));
    }
    if (length > size)
        length = size;
    memcpy(buffer, whole, length);
    return (ssize_t)length;
}

ssize_t wrap_readlink(const char *path, char *buffer, size_t size)
{
    return read_link(AT_FDCWD, path, buffer, size);
}

ssize_t wrap_readlinkat(int dirfd, const char *path, char *buffer, size_t size)
{
    return read_link(dirfd, path, buffer, size);
}

ssize_t wrap___readlink_chk(const char *path, char *buffer, size_t size, size_t room)
{
    return size > room ? REAL(__readlink_chk)(path, buffer, size, room) : read_link(AT_FDCWD, path, buffer, size);
}

ssize_t wrap___readlinkat_chk(int dirfd, const char *path, char *buffer, size_t size, size_t room)
{
    return size > room ? REAL(__readlinkat_chk)(dirfd, path, buffer, size, room) : read_link(dirfd, path, buffer, size);
}

static char *stripped(char *path)
{
    if (path)
        path[tree_strip(path, strlen(path))] = 0;
    return path;
}

char *wrap_realpath(const char *path, char *resolved)
{
    ON_TARGET(char *, NULL, AT_FDCWD, path, REAL(realpath)(t.path, resolved));
    return stripped(result);
}

char *wrap___realpath_chk(const char *path, char *resolved, size_t room)
{
    ON_TARGET(char *, NULL, AT_FDCWD, path, REAL(__realpath_chk)(t.path, resolved, room));
    return stripped(result);
}

char *wrap_canonicalize_file_name(const char *path)
{
    return wrap_realpath(path, NULL);
}

char *wrap_getcwd(char *buffer, size_t size)
{
    return stripped(REAL(getcwd)(buffer, size));
}
