/* Directories: the tree's are listed as they are, and those above them show one name more. */
#include "real.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>

DIR *wrap_opendir(const char *path)
{
    struct target t;
    target_at(&t, AT_FDCWD, path);
    DIR *directory = REAL(opendir)(t.path);
    return !directory && target_retry(&t) ? REAL(opendir)(t.path) : directory;
}

static int scan(real_scandir_fn *call, const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
                int (*compare)(const struct dirent **, const struct dirent **))
{
    struct target t;
    target_at(&t, AT_FDCWD, path);
    int count = call(t.path, list, filter, compare);
    return count < 0 && target_retry(&t) ? call(t.path, list, filter, compare) : count;
}

int wrap_scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
                 int (*compare)(const struct dirent **, const struct dirent **))
{
    return scan(REAL(scandir), path, list, filter, compare);
}

int wrap_scandir64(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **))
{
    return scan(REAL(scandir64), path, list, filter, compare);
}

/* ---- one name more ---- */

/* Streams that have given their extra name, so that they give it once. There are few at a time: a program that reads
 * more than these at once sees the native names only. */
static struct given {
    _Atomic(DIR *) directory;
    struct dirent entry;
} given[16];

static void forget(DIR *directory)
{
    if (!tree_active())
        return;
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        DIR *expected = directory;
        if (atomic_compare_exchange_strong(&given[i].directory, &expected, NULL))
            return;
    }
}

static struct dirent *give(DIR *directory, const char *name)
{
    struct given *slot = NULL;
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        DIR *owner = atomic_load(&given[i].directory);
        if (owner == directory)
            return NULL;
        if (!owner && !slot)
            slot = &given[i];
    }
    DIR *expected = NULL;
    if (!slot || !atomic_compare_exchange_strong(&slot->directory, &expected, directory))
        return NULL;
    slot->entry = (struct dirent){.d_ino = 1, .d_reclen = sizeof(slot->entry), .d_type = DT_DIR};
    strcpy(slot->entry.d_name, name);
    return &slot->entry;
}

/* At the end of a stream: the directory that programs find there by its name, if it is not there natively. */
static struct dirent *next_entry(DIR *directory, struct dirent *entry)
{
    struct stat st;
    if (entry || !tree_active())
        return entry;
    int saved = errno, fd = dirfd(directory);
    const char *name = fd >= 0 ? tree_child(fd) : NULL;
    if (name && REAL(fstatat)(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        entry = give(directory, name);
    errno = saved;
    return entry;
}

struct dirent *wrap_readdir(DIR *directory)
{
    return next_entry(directory, REAL(readdir)(directory));
}

struct dirent *wrap_readdir64(DIR *directory)
{
    return next_entry(directory, REAL(readdir64)(directory));
}

void wrap_rewinddir(DIR *directory)
{
    forget(directory);
    REAL(rewinddir)(directory);
}

int wrap_closedir(DIR *directory)
{
    forget(directory);
    return REAL(closedir)(directory);
}
