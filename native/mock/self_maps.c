#include "self_maps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Asks /proc/self/maps about one address; Linux 6.11. */
struct procmap_query {
    uint64_t size;
    uint64_t flags;
    uint64_t address;
    uint64_t start, end;
    uint64_t vma_flags, page_size, offset, inode;
    uint32_t major, minor;
    uint32_t name_size, build_id_size;
    uint64_t name, build_id;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
#define COVERING_OR_NEXT 0x10

static bool names_object(const char *name)
{
    return strstr(name, "/ze-ipc-mock-") && strstr(name, "/xe-bo.");
}

/* One line of /proc/self/maps. */
struct line {
    uint64_t start, end, inode;
    bool is_object;
};

static bool parse(const char *text, struct line *line)
{
    unsigned long long start, end, inode;
    if (sscanf(text, "%llx-%llx %*4s %*x %*x:%*x %llu", &start, &end, &inode) != 3)
        return false;
    *line = (struct line){start, end, inode, names_object(text)};
    return true;
}

typedef bool (*wanted_fn)(const struct line *line, const uint64_t *argument);

static bool any_line(int fd, wanted_fn wanted, const uint64_t *argument)
{
    char text[8192];
    size_t used = 0;
    bool found = false;
    for (ssize_t n; !found && (n = read(fd, text + used, sizeof(text) - 1 - used)) > 0;) {
        used += (size_t)n;
        text[used] = 0;
        char *at = text;
        for (char *end; !found && (end = strchr(at, '\n')); at = end + 1) {
            struct line line;
            *end = 0;
            found = parse(at, &line) && wanted(&line, argument);
        }
        used -= (size_t)(at - text);
        memmove(text, at, used);
        if (used == sizeof(text) - 1) /* no path is that long */
            used = 0;
    }
    return found;
}

static bool overlaps(const struct line *line, const uint64_t *range)
{
    return line->is_object && line->start < range[1] && line->end > range[0];
}

static bool has_inode(const struct line *line, const uint64_t *inode)
{
    return line->is_object && line->inode == *inode;
}

/* 1 or 0; -1: a kernel that cannot be asked so. */
static int ask(int fd, uint64_t address, uint64_t end)
{
    while (address < end) {
        char name[4096] = "";
        struct procmap_query query = {.size = sizeof(query),
                                      .flags = COVERING_OR_NEXT,
                                      .address = address,
                                      .name_size = sizeof(name),
                                      .name = (uintptr_t)name};
        if (ioctl(fd, PROCMAP_QUERY, &query))
            return errno == ENOENT ? 0 : -1;
        if (query.start >= end)
            break;
        if (query.name_size && names_object(name))
            return 1;
        address = query.end;
    }
    return 0;
}

bool self_maps_object(uint64_t address, uint64_t size)
{
    int saved = errno, fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), r = 0;
    if (fd >= 0) {
        r = ask(fd, address, address + size);
        if (r < 0)
            r = any_line(fd, overlaps, (const uint64_t[]){address, address + size});
        close(fd);
    }
    errno = saved;
    return r;
}

static bool any_descriptor(uint64_t inode_dev, uint64_t inode)
{
    DIR *list = opendir("/proc/self/fd");
    bool found = false;
    for (struct dirent *entry; list && !found && (entry = readdir(list));) {
        struct stat st;
        found = *entry->d_name != '.' && fstat(atoi(entry->d_name), &st) == 0 && st.st_ino == inode &&
                st.st_dev == inode_dev;
    }
    if (list)
        closedir(list);
    return found;
}

bool self_keeps_file(uint64_t inode_dev, uint64_t inode)
{
    int saved = errno, fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    bool found = fd >= 0 && any_line(fd, has_inode, &inode);
    if (fd >= 0)
        close(fd);
    found = found || any_descriptor(inode_dev, inode);
    errno = saved;
    return found;
}
