// The guest's first process: loads the modules, then obeys frames from a virtio-serial port.
//
// A frame is u32 kind, u32 size, payload, little-endian both ways.
//   host: PUT  u32 mode, path NUL, bytes          -> STATUS errno
//         RUN  u32 seconds, u32 argc, argc strings NUL-terminated, bytes for stdin -> OUTPUT..., STATUS wait status
//         WAIT u32 seconds, path NUL              -> STATUS 0 when the path exists, ETIMEDOUT
//         OFF                                     -> powers off
// A program that outlives its seconds is killed with its process group (status 256 * 124).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PUT = 1, RUN = 2, WAIT = 3, OFF = 4, READY = 8, OUTPUT = 9, STATUS = 10 };

static int port = -1;

static void nap(void)
{
    struct timespec t = {0, 5000000};

    nanosleep(&t, NULL);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void write_all(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        ssize_t n = write(fd, at, size);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return;
        if (n <= 0) {
            nap();
            continue;
        }
        at += n;
        size -= (size_t)n;
    }
}

static void read_all(void *data, size_t size)
{
    char *at = data;

    while (size) {
        ssize_t n = read(port, at, size);

        if (n <= 0) { // nobody at the other end: a snapshot is being made or was just restored
            nap();
            continue;
        }
        at += n;
        size -= (size_t)n;
    }
}

static void send_frame(uint32_t kind, const void *data, uint32_t size)
{
    uint32_t head[2] = {kind, size};

    write_all(port, head, sizeof(head));
    if (size)
        write_all(port, data, size);
}

static void send_status(uint32_t value)
{
    send_frame(STATUS, &value, sizeof(value));
}

static void put(char *frame, size_t size)
{
    uint32_t mode;
    char *path = frame + 4, *data = path + strlen(path) + 1;
    int fd;

    memcpy(&mode, frame, 4);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0) {
        send_status((uint32_t)errno);
        return;
    }
    write_all(fd, data, size - (size_t)(data - frame));
    fchmod(fd, mode);
    close(fd);
    send_status(0);
}

static void child(char *frame, uint32_t argc, int in, int out)
{
    char **argv = calloc(argc + 1, sizeof(*argv));
    char *at = frame + 8;

    for (uint32_t i = 0; i < argc; i++) {
        argv[i] = at;
        at += strlen(at) + 1;
    }
    setsid();
    dup2(in, 0);
    dup2(out, 1);
    dup2(out, 2);
    execve(argv[0], argv,
           (char *[]){"PATH=/bin:/usr/bin", "HOME=/root", "LANG=C.UTF-8", "LD_LIBRARY_PATH=/lib:/usr/lib", NULL});
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static void run(char *frame, size_t size)
{
    static char buffer[65536];
    uint32_t seconds, argc;
    char *data = frame + 8;
    int in = memfd_create("stdin", MFD_CLOEXEC), out[2], status = 0;
    double deadline;
    pid_t pid;

    memcpy(&seconds, frame, 4);
    memcpy(&argc, frame + 4, 4);
    for (uint32_t i = 0; i < argc; i++)
        data += strlen(data) + 1;
    write_all(in, data, size - (size_t)(data - frame));
    lseek(in, 0, SEEK_SET);
    if (pipe2(out, O_CLOEXEC)) {
        send_status((uint32_t)errno << 8);
        return;
    }
    pid = fork();
    if (!pid)
        child(frame, argc, in, out[1]);
    close(in);
    close(out[1]);
    deadline = now() + seconds;
    for (;;) {
        struct pollfd p = {.fd = out[0], .events = POLLIN};
        double left = deadline - now();
        ssize_t n;

        if (left <= 0) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            status = 124 << 8;
            break;
        }
        if (poll(&p, 1, left > 1 ? 1000 : (int)(left * 1000) + 1) <= 0)
            continue;
        n = read(out[0], buffer, sizeof(buffer));
        if (n <= 0) {
            waitpid(pid, &status, 0);
            break;
        }
        send_frame(OUTPUT, buffer, (uint32_t)n);
    }
    close(out[0]);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    send_status((uint32_t)status);
}

static void wait_for(char *frame)
{
    uint32_t seconds;
    double deadline;

    memcpy(&seconds, frame, 4);
    deadline = now() + seconds;
    while (access(frame + 4, F_OK)) {
        if (now() > deadline) {
            send_status(ETIMEDOUT);
            return;
        }
        nap();
    }
    send_status(0);
}

static void load_modules(void)
{
    FILE *list = fopen("/modules/order", "re");
    char name[256], path[300];

    while (list && fscanf(list, "%255s", name) == 1) {
        int fd;

        snprintf(path, sizeof(path), "/modules/%s", name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
            printf("agent: %s: %s\n", name, strerror(errno));
        close(fd);
        unlink(path);
    }
    if (list)
        fclose(list);
}

static int open_port(void)
{
    DIR *dir = opendir("/sys/class/virtio-ports");
    struct dirent *entry;
    char path[300];
    int fd = -1;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0)
            break;
    }
    if (dir)
        closedir(dir);
    return fd;
}

int main(void)
{
    struct rlimit files = {65536, 65536};
    double start;

    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/dev", 0755);
    mkdir("/tmp", 01777);
    mkdir("/run", 0755);
    mkdir("/root", 0700);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    mkdir("/dev/shm", 01777);
    mkdir("/dev/pts", 0755);
    mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL);
    mount("devpts", "/dev/pts", "devpts", 0, NULL);
    mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
    if (symlink("/proc/self/fd", "/dev/fd"))
        perror("agent: /dev/fd");
    setrlimit(RLIMIT_NOFILE, &files);
    load_modules();
    start = now();
    while ((port = open_port()) < 0 && now() - start < 30)
        nap();
    signal(SIGPIPE, SIG_IGN);
    send_frame(READY, NULL, 0);
    for (;;) {
        uint32_t head[2];
        char *frame;

        read_all(head, sizeof(head));
        frame = malloc(head[1] + 1);
        read_all(frame, head[1]);
        frame[head[1]] = 0;
        if (head[0] == PUT)
            put(frame, head[1]);
        else if (head[0] == RUN)
            run(frame, head[1]);
        else if (head[0] == WAIT)
            wait_for(frame);
        else if (head[0] == OFF)
            reboot(RB_POWER_OFF);
        free(frame);
    }
}
