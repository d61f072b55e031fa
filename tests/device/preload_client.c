/* A program that knows nothing of the mock: plain libc calls on /dev/dri. One verb a test, 0 when everything held. */
#include "preload_client.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

static const char *self;

static void send_fd(int socket, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 'x';
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    CHECK(sendmsg(socket, &message, 0) == 1);
}

static int receive_fd(int socket)
{
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fd;
    CHECK(recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

/* ---- verbs ---- */

static void basics(void)
{
    int fd = open_node();
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(226, 128));
    CHECK(stat(NODE, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(226, 128));
    char link[64] = "", path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    CHECK(readlink(path, link, sizeof(link)) == (ssize_t)strlen(NODE) && !strcmp(link, NODE));

    char name[8] = "";
    struct drm_version version = {.name_len = sizeof(name), .name = name};
    CHECK(ioctl(fd, DRM_IOCTL_VERSION, &version) == 0);
    CHECK(!strcmp(name, "xe") && version.version_major == 1 && version.version_minor == 1);

    struct drm_xe_device_query query = {.query = DRM_XE_DEVICE_QUERY_MEM_REGIONS};
    CHECK(ioctl(fd, DRM_IOCTL_XE_DEVICE_QUERY, &query) == 0 && query.size >= 96);
    void *answer = calloc(1, query.size);
    query.data = (uintptr_t)answer;
    CHECK(ioctl(fd, DRM_IOCTL_XE_DEVICE_QUERY, &query) == 0 && *(uint32_t *)answer >= 1);
    free(answer);

    uint32_t handle = create(fd);
    char *memory = map(fd, handle);
    strcpy(memory, "hello");
    int buffer = export(fd, handle);
    CHECK(lseek(buffer, 0, SEEK_END) == SIZE && lseek(buffer, 0, SEEK_SET) == 0);
    FAILS(EINVAL, lseek(buffer, 0, SEEK_CUR));
    FAILS(EINVAL, lseek(buffer, 4096, SEEK_SET));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", buffer);
    memset(link, 0, sizeof(link));
    CHECK(readlink(path, link, sizeof(link)) > 0 && !strncmp(link, "/dmabuf:", 8));
    char *direct = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, buffer, 0);
    CHECK(direct != MAP_FAILED && !strcmp(direct, "hello"));
    CHECK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, buffer, 0) == MAP_FAILED && errno == EINVAL);

    int other = open_node();
    uint32_t imported = import(other, buffer);
    CHECK(!strcmp(map(other, imported), "hello"));
    CHECK(close(buffer) == 0 && close_handle(fd, handle) == 0);
    FAILS(EINVAL, close_handle(fd, handle));
    CHECK(!strcmp(memory, "hello")); /* a mapping outlives its handle */

    FAILS(ENOTTY, ioctl(fd, 0x5401, NULL));
    CHECK(close(fd) == 0);
    FAILS(EBADF, ioctl(fd, DRM_IOCTL_VERSION, &version));
    int plain = open("/dev/null", O_RDWR);
    FAILS(ENOTTY, ioctl(plain, DRM_IOCTL_VERSION, &version));
}

static void dups(void)
{
    int fd = open_node();
    uint32_t handle = create(fd);
    int copies[] = {dup(fd), fcntl(fd, F_DUPFD, 300), fcntl(fd, F_DUPFD_CLOEXEC, 0), dup2(fd, 250),
                    dup3(fd, 251, O_CLOEXEC)};
    CHECK(close(fd) == 0);
    for (size_t i = 0; i < sizeof(copies) / sizeof(*copies); i++) {
        CHECK(copies[i] >= 0);
        offset_of(copies[i], handle);
        CHECK(i + 1 == sizeof(copies) / sizeof(*copies) || close(copies[i]) == 0);
    }
    CHECK(dup2(open("/dev/null", O_RDWR), 251) == 251); /* the last one goes */
    FAILS(ENOTTY, close_handle(251, handle));
    fd = open_node();
    FAILS(EINVAL, close_handle(fd, handle));
}

static void reopen(void)
{
    int fd = open_node();
    uint32_t handle = create(fd);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR);
    CHECK(again >= 0);
    FAILS(EINVAL, close_handle(again, handle)); /* a file of its own */
    CHECK(create(again) == 1);
    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    again = open(path, O_RDWR);
    CHECK(again >= 0 && create(again) == 1);
}

static void *none(void *unused)
{
    return unused;
}

static void pass(void)
{
    int pair[2], fd = open_node();
    uint32_t handle = create(fd);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    send_fd(pair[0], fd);
    int same = receive_fd(pair[1]);
    offset_of(same, handle); /* the same open file came back */
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        char number[16];
        CHECK(fcntl(pair[1], F_SETFD, 0) == 0);
        snprintf(number, sizeof(number), "%d", pair[1]);
        execl(self, self, "receiver", number, NULL);
        _exit(1);
    }
    send_fd(pair[0], fd);
    wait_for(child);
}

static void receiver(int socket)
{
    int fd = receive_fd(socket);
    FAILS(EINVAL, close_handle(fd, 1)); /* a process has its own handles: the mock's limit, not the kernel's rule */
    CHECK(create(fd) == 1);
}

static void exec(void)
{
    int fd = open(NODE, O_RDWR); /* inherited */
    create(fd);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        char number[16];
        snprintf(number, sizeof(number), "%d", fd);
        execl(self, self, "inheritor", number, NULL);
        _exit(1);
    }
    wait_for(child);
}

static void inheritor(int fd)
{
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode));
    CHECK(create(fd) == 1);
    int copy = dup(fd);
    offset_of(copy, 1);
}

static void forks(void)
{
    int fd = open_node();
    uint32_t handle = create(fd);
    char *memory = map(fd, handle);
    strcpy(memory, "parent");
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        char *mine = map(fd, handle);
        CHECK(!strcmp(mine, "parent"));
        strcpy(mine, "child");
        uint32_t more = create(fd);
        strcpy(map(fd, more), "more");
        CHECK(close_handle(fd, more) == 0);
        exit(0);
    }
    wait_for(child);
    CHECK(!strcmp(memory, "child"));
    CHECK(create(fd) > handle); /* the parent's device is whole */
    int buffer = export(fd, handle);
    CHECK(buffer >= 0 && import(open_node(), buffer) == 1);
}

static void share(void)
{
    int pair[2], fd = open_node();
    uint32_t handle = create(fd);
    char *memory = map(fd, handle);
    strcpy(memory, "exporter");
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        char number[16];
        snprintf(number, sizeof(number), "%d", pair[1]);
        execl(self, self, "importer", number, NULL);
        _exit(1);
    }
    int buffer = export(fd, handle);
    send_fd(pair[0], buffer);
    wait_for(child);
    CHECK(!strcmp(memory, "importer"));
}

static void importer(int socket)
{
    int fd = open_node(), buffer = receive_fd(socket);
    CHECK(lseek(buffer, 0, SEEK_END) == SIZE);
    uint32_t handle = import(fd, buffer);
    CHECK(import(fd, buffer) == handle);
    close(buffer);
    char *memory = map(fd, handle);
    CHECK(!strcmp(memory, "exporter"));
    strcpy(memory, "importer");
}

static void close_all(void)
{
    int fd = open_node();
    uint32_t handle = create(fd);
    strcpy(map(fd, handle), "kept");
    for (int i = 3; i < 2048; i++)
        close(i);
    fd = open_node();
    handle = create(fd);
    char *memory = map(fd, handle);
    strcpy(memory, "again");
    CHECK(close_range(3, ~0u, 0) == 0);
    FAILS(EBADF, fcntl(fd, F_GETFD));
    CHECK(!strcmp(memory, "again"));
    fd = open_node();
    CHECK(fd == 3);
    int buffer = export(fd, create(fd));
    CHECK(import(open_node(), buffer) == 1);
    CHECK(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    closefrom(3);
    FAILS(EBADF, fcntl(fd, F_GETFD));
    CHECK(create(open_node()) == 1);
}

static void vforks(void)
{
    int fd = open_node();
    uint32_t handle = create(fd);
    pid_t child = vfork();
    CHECK(child >= 0);
    if (!child) {
        close(fd);
        dup2(0, 200);
        close_range(3, ~0u, 0);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    wait_for(child);
    offset_of(fd, handle);
}

/* As libudev does: from "/" by names, each step checked. */
static void walk(void)
{
    static const char *const steps[] = {"sys", "class", "drm", "renderD128", "device", "driver"};
    int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        int next = openat(at, steps[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        struct statfs fs;
        CHECK(i < 2 || (fstatfs(next, &fs) == 0 && fs.f_type == 0x62656572));
        close(at);
        at = next;
    }
    char real[4096];
    CHECK(realpath("/sys/dev/char/226:128/device/driver", real) && !strcmp(real, "/sys/bus/pci/drivers/xe"));
    CHECK(access("/sys/class/drm/card0/device/tile0/gt0/freq0/max_freq", R_OK) == 0);
    DIR *directory = opendir("/dev/dri");
    CHECK(directory && dirfd(directory) >= 0);
    closedir(directory);
    struct stat inside, above;
    CHECK(stat("/sys/kernel/debug/.", &inside) == 0 && stat("/sys/kernel/debug/..", &above) == 0);
    CHECK(inside.st_dev != above.st_dev);
}

static void fdinfo(void)
{
    char text[4096] = "", path[64];
    int fd = open_node();
    uint32_t handle = create(fd);
    map(fd, handle);
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "r");
    CHECK(file && fread(text, 1, sizeof(text) - 1, file) > 0);
    CHECK(strstr(text, "drm-driver:\txe\n") && strstr(text, "drm-client-id:\t") && strstr(text, "drm-pdev:\t0000:"));
    CHECK(strstr(text, "drm-shared-system:\t0\n") && strstr(text, "drm-total-system:\t"));
    CHECK(strstr(text, "drm-cycles-bcs:\t0\n") && strstr(text, "drm-total-cycles-bcs:\t"));
    int buffer = export(fd, handle);
    snprintf(path, sizeof(path), "%d", buffer);
    int directory = open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY);
    int info = openat(directory, path, O_RDONLY);
    memset(text, 0, sizeof(text));
    CHECK(info >= 0 && read(info, text, sizeof(text) - 1) > 0);
    CHECK(strstr(text, "size:\t65536\n") && strstr(text, "exp_name:\tdrm\n"));
    CHECK(ioctl(buffer, DMA_BUF_SET_NAME_B, "frame 7") == 0);
    info = openat(directory, path, O_RDONLY);
    memset(text, 0, sizeof(text));
    CHECK(info >= 0 && read(info, text, sizeof(text) - 1) > 0 && strstr(text, "name:\tframe 7\n"));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", buffer);
    memset(text, 0, sizeof(text));
    CHECK(readlink(path, text, sizeof(text)) == 15 && !strcmp(text, "/dmabuf:frame 7"));
    snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", getpid(), fd);
    info = open(path, O_RDONLY);
    memset(text, 0, sizeof(text));
    CHECK(info >= 0 && read(info, text, sizeof(text) - 1) > 0 && strstr(text, "drm-shared-"));
    CHECK(strstr(text, ":\t64 KiB\n"));
}

static void unknown(void)
{
    int fd = open_node();
    for (int i = 0; i < 3; i++)
        FAILS(EINVAL, ioctl(fd, 0x64f0, NULL));
}

static void nothing(void)
{
    pthread_t id;
    CHECK(pthread_create(&id, NULL, none, NULL) == 0 && pthread_join(id, NULL) == 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
        void (*with_fd)(int fd);
    } verbs[] = {
        {"basics", basics, NULL},       {"dups", dups, NULL},           {"reopen", reopen, NULL},
        {"pass", pass, NULL},           {"receiver", NULL, receiver},   {"exec", exec, NULL},
        {"inheritor", NULL, inheritor}, {"forks", forks, NULL},         {"share", share, NULL},
        {"importer", NULL, importer},   {"close_all", close_all, NULL}, {"vforks", vforks, NULL},
        {"threads", threads, NULL},     {"walk", walk, NULL},           {"fdinfo", fdinfo, NULL},
        {"nothing", nothing, NULL},     {"unknown", unknown, NULL},     {"storm", storm, NULL},
        {"userptr", userptr, NULL},
    };
    self = argv[0];
    for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(*verbs); i++) {
        if (strcmp(argv[1], verbs[i].name))
            continue;
        if (verbs[i].with_fd)
            verbs[i].with_fd(atoi(argv[2]));
        else
            verbs[i].run();
        return 0;
    }
    fprintf(stderr, "no such verb\n");
    return 2;
}
