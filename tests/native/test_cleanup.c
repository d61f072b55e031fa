/* The directory of objects: its owner removes it at exit, a forked child does not, and what a killed process left the
   next one removes. */
#include <dirent.h>
#include <signal.h>

#include "check.h"

static char base[] = "/tmp/ze-ipc-cleanup-XXXXXX";
static char user_dir[128];

static unsigned entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

static int with_objects(void)
{
    int fd = open_node(0);
    for (int i = 0; i < 10; i++) {
        uint32_t bo = make_bo(fd, PAGE, VRAM, WC, 0);
        close(export_bo(fd, bo, DRM_RDWR));
    }
    return fd;
}

static pid_t start(void (*child)(int ready))
{
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    if (!pid) {
        close(ready[0]);
        child(ready[1]);
        exit(0);
    }
    close(ready[1]);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void exits(int ready)
{
    with_objects();
    CHECK_EQ(write(ready, "", 1), 1);
}

static void is_killed(int ready)
{
    with_objects();
    CHECK_EQ(write(ready, "", 1), 1);
    pause();
}

/* Its own child exits first and must leave everything in place. */
static void has_child(int ready)
{
    int fd = with_objects();
    pid_t child = fork();
    if (!child)
        exit(0);
    CHECK_EQ(wait_for(child), 0);
    CHECK_EQ(entries(user_dir), 1);
    CHECK(export_bo(fd, 1, 0) >= 0);
    CHECK_EQ(write(ready, "", 1), 1);
}

static void checks_mode(int ready)
{
    struct stat st;
    with_objects();
    CHECK(stat(user_dir, &st) == 0);
    CHECK_EQ(st.st_mode & 07777, 0700);
    CHECK_EQ(entries(user_dir), 1); /* the killed one's is gone */
    CHECK_EQ(write(ready, "", 1), 1);
}

/* A directory that others may read or write is not used. */
static void finds_open_directory(int ready)
{
    int fd = open_node(0);
    uint32_t bo = make_bo(fd, PAGE, VRAM, WC, 0);
    CHECK_EQ(export_bo(fd, bo, 0), -ENOMEM);
    CHECK_EQ(entries(user_dir), 0);
    CHECK_EQ(write(ready, "", 1), 1);
}

int main(void)
{
    CHECK(mkdtemp(base));
    snprintf(user_dir, sizeof(user_dir), "%s/ze-ipc-mock-%u", base, (unsigned)geteuid());
    setenv("ZE_IPC_MOCK_DIR", base, 1);

    CHECK_EQ(wait_for(start(exits)), 0);
    CHECK_EQ(entries(user_dir), 0);
    CHECK_EQ(wait_for(start(has_child)), 0);
    CHECK_EQ(entries(user_dir), 0);

    pid_t killed = start(is_killed);
    CHECK_EQ(entries(user_dir), 1);
    CHECK(kill(killed, SIGKILL) == 0);
    CHECK(waitpid(killed, NULL, 0) == killed);
    CHECK_EQ(entries(user_dir), 1);
    pid_t alive = start(is_killed); /* sweeps; and what it holds itself survives the next sweep */
    CHECK_EQ(entries(user_dir), 1);
    CHECK_EQ(kill(alive, SIGKILL), 0);
    CHECK(waitpid(alive, NULL, 0) == alive);
    CHECK_EQ(wait_for(start(checks_mode)), 0);
    CHECK_EQ(entries(user_dir), 0);

    CHECK(chmod(user_dir, 0755) == 0);
    CHECK_EQ(wait_for(start(finds_open_directory)), 0);
    CHECK(rmdir(user_dir) == 0 && rmdir(base) == 0);
    return 0;
}
