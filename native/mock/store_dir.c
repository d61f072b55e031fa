#include "store_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Numbers that programs seldom reach: from 600 on, or the last quarter where the limit is lower. */
static int high_minimum(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > 800)
        return 600;
    return (int)(limit.rlim_cur - limit.rlim_cur / 4);
}

int high_dup(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, high_minimum());
    return high >= 0 ? high : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static int to_high(int fd)
{
    if (fd < 0)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, high_minimum());
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static uint64_t free_bytes(const char *path)
{
    struct statvfs fs;
    if (!path || !*path || statvfs(path, &fs) || access(path, W_OK | X_OK))
        return 0;
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* The first with a GiB to spare, else the one with most. */
static const char *base_directory(void)
{
    const char *forced = getenv("ZE_IPC_MOCK_DIR");
    if (forced && *forced)
        return forced;
    const char *candidates[] = {"/dev/shm", getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    const char *best = "/tmp";
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof(candidates) / sizeof(*candidates); i++) {
        uint64_t bytes = free_bytes(candidates[i]);
        if (bytes >= UINT64_C(1) << 30)
            return candidates[i];
        if (bytes > most) {
            most = bytes;
            best = candidates[i];
        }
    }
    return best;
}

/* The user's directory, refused if it is not his alone. */
static int user_directory(char *path, size_t size)
{
    snprintf(path, size, "%s/ze-ipc-mock-%u", base_directory(), (unsigned)geteuid());
    if (mkdir(path, 0700) && errno != EEXIST)
        return -1;
    int fd = to_high(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 077)) {
        close(fd);
        errno = EACCES;
        return -1;
    }
    return fd;
}

static void remove_files(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (!dir) {
        if (copy >= 0)
            close(copy);
        return;
    }
    rewinddir(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] != '.')
            unlinkat(fd, entry->d_name, 0);
    }
    closedir(dir);
}

/* Removes the directories whose lock nobody holds. */
static void sweep(int user_fd)
{
    int copy = fcntl(user_fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (!dir) {
        if (copy >= 0)
            close(copy);
        return;
    }
    rewinddir(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        int fd = openat(user_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            remove_files(fd);
            unlinkat(user_fd, entry->d_name, AT_REMOVEDIR);
        }
        close(fd);
    }
    closedir(dir);
}

/* Clock ticks since boot: tells a process from an earlier one of the same number. */
static unsigned long long start_time(void)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return 0;
    text[length] = 0;
    char *field = strrchr(text, ')'); /* field 2, the command, may hold anything */
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

/* A directory that is locked and still there: between mkdir and flock somebody may have swept it away. */
static int make_locked(int user_fd, const char *name)
{
    if (mkdirat(user_fd, name, 0700))
        return -1;
    int fd = to_high(openat(user_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd < 0)
        return -1;
    struct stat by_fd, by_name;
    if (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &by_fd) || fstatat(user_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) ||
        by_fd.st_ino != by_name.st_ino) {
        close(fd);
        errno = EEXIST; /* try another */
        return -1;
    }
    return fd;
}

struct store *store_dir_open(void)
{
    char path[3072], name[64];
    int user_fd = user_directory(path, sizeof(path));
    if (user_fd < 0)
        return NULL;
    sweep(user_fd);
    int fd = -1;
    for (unsigned attempt = 0; fd < 0 && attempt < 1000; attempt++) {
        snprintf(name, sizeof(name), attempt ? "%d-%llu.%u" : "%d-%llu", (int)getpid(), start_time(), attempt);
        fd = make_locked(user_fd, name);
        if (fd < 0 && errno != EEXIST && errno != ENOENT)
            break;
    }
    int error = errno;
    close(user_fd);
    if (fd < 0) {
        errno = error;
        return NULL;
    }
    struct store *store = malloc(sizeof(*store) + strlen(path) + strlen(name) + 2);
    if (!store) {
        close(fd);
        errno = ENOMEM;
        return NULL;
    }
    store->fd = fd;
    store->ours = true;
    store->older = NULL;
    store->pid = getpid();
    sprintf(store->path, "%s/%s", path, name);
    return store;
}

void store_dir_remove(struct store *store)
{
    remove_files(store->fd);
    rmdir(store->path);
}
