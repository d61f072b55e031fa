#pragma once
/* The directory of a process. */
#include <stdbool.h>
#include <sys/types.h>

struct store {
    int fd;    /* the directory, flock'ed; the one descriptor a process holds at rest */
    bool ours; /* false in a forked child: the parent removes it */
    pid_t pid;
    struct store *older;
    char path[];
};

/* Makes it, after removing what killed processes left; NULL with errno. */
struct store *store_dir_open(void);
void store_dir_remove(struct store *store);
/* A duplicate out of the way of the program's numbers, close-on-exec; -1 with errno. */
int high_dup(int fd);
