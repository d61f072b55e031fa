#pragma once
/* The generated tree that stands for /dev/dri, /sys and debugfs, and how paths get there and back.
 *
 * $ZE_IPC_MOCK_ROOT names it. Without it everything here says "not ours" and every wrapper is libc's function. */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct node {
    ino_t ino;
    unsigned int minor;
    int device;
    bool render;
};

/* A path to hand to libc instead of the program's. */
struct target {
    int dirfd;
    const char *path;
    bool redirected;
    /* Only if nothing is there natively: the tree has this directory, above a redirected one. */
    bool fallback;
    /* The descriptor N of a /proc/self/fdinfo/N, else -1. */
    int fdinfo;
    char buffer[PATH_MAX];
};

bool tree_active(void);
void target_at(struct target *target, int dirfd, const char *path);
/* After a call failed: true (with errno consumed) if it should be tried once more on the tree's own directory. */
bool target_retry(struct target *target);

/* Which node a file is, by (st_dev, st_ino); NULL if none. Nodes survive dup, exec, SCM_RIGHTS and re-opening so. */
const struct node *tree_node(dev_t dev, ino_t ino);
/* Make a stat result look like what the kernel would say: character devices, other file systems. */
void tree_patch_stat(struct stat *st);
/* The f_type of a file of the tree, 0 if it is none. */
long tree_filesystem(const struct stat *st);
/* Take the root off an absolute path of `length` bytes in place; the new length. */
size_t tree_strip(char *path, size_t length);
/* The name of the redirected directory in a native one that holds it by path only; NULL: none. */
const char *tree_child(int dirfd);
/* "dddd:bb:dd.f" of a device, as its sysfs directory is named; untouched if the tree does not say. */
void tree_pci_address(int device, char *address, size_t size);
