/* The preload library's table of open files, without its wrappers: many threads open, duplicate, use and close. Every
   DRM file that was opened must be closed exactly once, and nobody may see one that is closed. Run under sanitizers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "internal.h"

#define THREADS 6
#define ROUNDS 2000

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- the device core, as far as the table needs it ---- */

static struct device devices[2] = {{.index = 0}, {.index = 1}};
static atomic_int opened, alive;

struct device *device_get(uint32_t index, int *error)
{
    *error = 0;
    return &devices[index];
}

struct drm_file *drm_file_open(struct device *dev, bool render)
{
    struct drm_file *file = calloc(1, sizeof(*file));
    file->dev = dev;
    file->render = render;
    file->client_id = 0xa11e;
    atomic_fetch_add(&opened, 1);
    atomic_fetch_add(&alive, 1);
    return file;
}

void drm_file_put(struct drm_file *file)
{
    CHECK(file->client_id == 0xa11e);
    file->client_id = 0xdead;
    free(file);
    atomic_fetch_sub(&alive, 1);
}

/* ---- what the wrappers do ---- */

static char node[2][4096];

static int open_node(int index)
{
    int fd = open(node[index], O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    file_opened(fd);
    return fd;
}

static int duplicate(int fd)
{
    int copy = dup(fd);
    CHECK(copy >= 0);
    file_duplicated(fd, copy);
    return copy;
}

static void close_fd(int fd)
{
    struct open_file *file = file_forget(fd);
    close(fd);
    file_put(file);
}

static struct drm_file *use(int fd)
{
    struct open_file *file = file_get(fd);
    CHECK(file);
    struct drm_file *drm = file_drm(file);
    CHECK(drm->client_id == 0xa11e);
    file_put(file);
    return drm;
}

static int shared;

static void *worker(void *argument)
{
    int number = (int)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int fd = open_node(number & 1), copy = duplicate(fd);
        struct drm_file *drm = use(fd);
        CHECK(drm->dev->index == (uint32_t)(number & 1));
        CHECK(use(copy) == drm);
        close_fd(fd);
        CHECK(use(copy) == drm);
        use(shared);
        close_fd(copy);
    }
    return NULL;
}

static void make_tree(char *root)
{
    CHECK(mkdtemp(root));
    char path[4096];
    snprintf(path, sizeof(path), "%s/dev", root);
    CHECK(mkdir(path, 0755) == 0);
    snprintf(path, sizeof(path), "%s/dev/dri", root);
    CHECK(mkdir(path, 0755) == 0);
    for (int i = 0; i < 2; i++) {
        snprintf(node[i], sizeof(node[i]), "%s/dev/dri/renderD%d", root, 128 + i);
        close(open(node[i], O_CREAT | O_RDWR, 0600));
    }
    setenv("ZE_IPC_MOCK_ROOT", root, 1);
}

static void one_thread(void)
{
    int fd = open_node(0), plain = open("/dev/null", O_RDWR);
    struct drm_file *drm = use(fd);
    CHECK(!file_get(plain) && errno == 0);

    /* A duplicate nobody told us of is the same open file where kcmp says so. */
    int unseen = fcntl(fd, F_DUPFD, 100);
    struct drm_file *same = use(unseen);
    CHECK(same == drm || atomic_load(&opened) == 2);

    /* Closed unseen, and the number is another device's now. */
    close(unseen);
    int other = open(node[1], O_RDWR);
    CHECK(dup2(other, unseen) == unseen);
    CHECK(use(unseen)->dev->index == 1);
    CHECK(dup2(plain, unseen) == unseen);
    CHECK(!file_get(unseen) && errno == 0);

    /* Not opened at all. */
    int path = open(node[0], O_PATH);
    CHECK(!file_get(path) && errno == EBADF);

#ifndef __SANITIZE_THREAD__ /* which makes it a fork() */
    pid_t child = vfork();
    int status;
    if (child == 0)
        _exit(file_forget(fd) != NULL); /* the memory is the parent's */
    CHECK(waitpid(child, &status, 0) == child && status == 0);
#endif
    CHECK(use(fd) == drm);
    file_forget_range(3, 1000);
    CHECK(atomic_load(&alive) == 0);
    for (int i = 3; i < 200; i++)
        close(i);
}

static void internals(void)
{
    CHECK(!internal_any() && internal_next(0, ~0u) == ~0u);
    internal_add(700);
    internal_add(64);
    internal_add(64);
    CHECK(internal_fd(64) && internal_fd(700) && !internal_fd(65) && !internal_fd(-1));
    CHECK(internal_next(0, ~0u) == 64 && internal_next(65, ~0u) == 700 && internal_next(65, 699) == ~0u);
    internal_remove(64);
    internal_remove(700);
    internal_remove(700);
    CHECK(!internal_any());
}

int main(void)
{
    char root[] = "/tmp/ze-ipc-files-XXXXXX", command[64];
    make_tree(root);
    internals();
    one_thread();
    pthread_t threads[THREADS];
    shared = open_node(0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    close_fd(shared);
    CHECK(atomic_load(&alive) == 0);
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command);
}
