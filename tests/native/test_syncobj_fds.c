/* Sync objects as descriptors: sync_files, syncobj descriptors, eventfds. */
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "syncobj_calls.h"

static bool readable(int descriptor, int timeout_ms)
{
    struct pollfd polled = {.fd = descriptor, .events = POLLIN};
    int n = poll(&polled, 1, timeout_ms);
    CHECK(n >= 0 && !(polled.revents & (POLLERR | POLLNVAL)));
    return n == 1;
}

static void test_sync_files(void)
{
    uint32_t from = test_syncobj(fd, 0), to = test_syncobj(fd, 0), line = test_syncobj(fd, 0);
    int file, second, merged;
    start_job(&SIGNAL_SYNCOBJ(from), 1);
    CHECK_EQUAL(to_fd(from, SYNC_FILE, 0, &file), 0);
    CHECK(fcntl(file, F_GETFD) & FD_CLOEXEC);
    CHECK(!readable(file, 20));
    CHECK_EQUAL(from_fd(file, SYNC_FILE, 0, &to), 0);
    CHECK_EQUAL(from_fd(file, SYNC_FILE | TIMELINE_FD, 9, &line), 0);
    uint32_t unknown = 999;
    CHECK_EQUAL(from_fd(file, SYNC_FILE, 0, &unknown), -ENOENT);
    CHECK_EQUAL(from_fd(file, 0, 0, &unknown), -EINVAL);
    CHECK_EQUAL(test_wait(fd, to, 0), -ETIME);
    CHECK_EQUAL(test_wait_point(fd, line, 9, 0, 0), -ETIME);
    CHECK_EQUAL(to_fd(line, SYNC_FILE | TIMELINE_FD, 9, &second), 0);
    CHECK_EQUAL(to_fd(line, SYNC_FILE | TIMELINE_FD, 10, &merged), -EINVAL);

    struct sync_file_info info = {0};
    CHECK_EQUAL(xe_mock_ioctl(file, SYNC_IOC_FILE_INFO, &info), 0);
    CHECK_EQUAL(info.status, 0);
    CHECK_EQUAL(info.num_fences, 1);
    struct sync_merge_data merge = {.name = "both", .fd2 = second};
    CHECK_EQUAL(xe_mock_ioctl(file, SYNC_IOC_MERGE, &merge), 0);
    merged = merge.fence;
    CHECK(!readable(merged, 0));

    /* Another process waits for it by poll() and through its own syncobj. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        uint32_t theirs = test_syncobj(fd, 0);
        CHECK_EQUAL(from_fd(file, SYNC_FILE, 0, &theirs), 0);
        CHECK_EQUAL(test_wait(fd, theirs, 0), -ETIME);
        CHECK_EQUAL(test_wait(fd, theirs, 20 * SECOND), 0);
        CHECK(readable(file, 20000));
        CHECK_EQUAL(query(theirs, 0), 0);
        CHECK_EQUAL(from_fd(second, SYNC_FILE, 0, &theirs), 0);
        CHECK_EQUAL(test_wait_point(fd, theirs, 9, 0, 20 * SECOND), 0);
        CHECK_EQUAL(query(theirs, 0), 9);
        _exit(0);
    }
    usleep(50000);
    end_job();
    CHECK(readable(file, 20000));
    CHECK(readable(second, 20000));
    CHECK(readable(merged, 20000));
    CHECK_EQUAL(test_wait(fd, to, 20 * SECOND), 0);
    CHECK_EQUAL(test_wait_point(fd, line, 9, 0, 20 * SECOND), 0);
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(xe_mock_ioctl(file, SYNC_IOC_FILE_INFO, &info), -EFAULT);
    info.num_fences = 0;
    CHECK_EQUAL(xe_mock_ioctl(file, SYNC_IOC_FILE_INFO, &info), 0);
    CHECK_EQUAL(info.status, 1);
    /* A point of a timeline stays one, also when it has happened; what was joined is none. */
    CHECK_EQUAL(from_fd(second, SYNC_FILE, 0, &to), 0);
    CHECK_EQUAL(query(to, 0), 9);
    CHECK_EQUAL(from_fd(merged, SYNC_FILE, 0, &to), 0);
    CHECK_EQUAL(query(to, 0), 0);
    /* Of one that has signalled already. */
    CHECK_EQUAL(to_fd(to, SYNC_FILE, 0, &status), 0);
    CHECK(readable(status, 0));
    close(status);
    close(file);
    close(second);
    close(merged);
    CHECK_EQUAL(destroy(from) | destroy(to) | destroy(line), 0);
}

/* A process that dies signals what it owes. */
static void test_killed_exporter(void)
{
    int ends[2], file;
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char byte = 0;
    struct iovec vector = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (child == 0) {
        fd = test_open(0);
        set_up_job();
        uint32_t mine = test_syncobj(fd, 0);
        start_job(&SIGNAL_SYNCOBJ(mine), 1);
        CHECK_EQUAL(to_fd(mine, SYNC_FILE, 0, &file), 0);
        *header =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(header), &file, sizeof(file));
        CHECK_EQUAL(sendmsg(ends[1], &message, 0), 1);
        close(file);
        pause();
    }
    CHECK_EQUAL(recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC), 1);
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(file));
    uint32_t theirs = test_syncobj(fd, 0);
    CHECK_EQUAL(from_fd(file, SYNC_FILE, 0, &theirs), 0);
    CHECK_EQUAL(test_wait(fd, theirs, SECOND / 50), -ETIME);
    kill(child, SIGKILL);
    CHECK_EQUAL(test_wait(fd, theirs, 4 * SECOND), 0);
    CHECK_EQUAL(waitpid(child, NULL, 0), child);
    close(file);
    close(ends[0]);
    close(ends[1]);
    CHECK_EQUAL(destroy(theirs), 0);
}

static void test_syncobj_descriptors(void)
{
    uint32_t handle = test_syncobj(fd, 0), again = 0, third = 0;
    int descriptor;
    CHECK_EQUAL(to_fd(handle, 0, 0, &descriptor), 0);
    CHECK_EQUAL(from_fd(descriptor, 0, 0, &again), 0);
    CHECK(again != handle);
    CHECK_EQUAL(signal_point(again, 8), 0);
    CHECK_EQUAL(query(handle, 0), 8);
    /* The descriptor alone keeps it. */
    CHECK_EQUAL(destroy(handle) | destroy(again), 0);
    int duplicate = dup(descriptor);
    close(descriptor);
    CHECK_EQUAL(from_fd(duplicate, 0, 0, &third), 0);
    CHECK_EQUAL(query(third, 0), 8);
    CHECK_EQUAL(from_fd(duplicate, SYNC_FILE, 0, &third), -EINVAL);
    close(duplicate);
    CHECK_EQUAL(query(third, 0), 8);
    CHECK_EQUAL(destroy(third), 0);
}

static void test_eventfds(void)
{
    uint32_t line = test_syncobj(fd, 0);
    int happened = eventfd(0, EFD_CLOEXEC), submitted = eventfd(0, EFD_CLOEXEC), never = eventfd(0, EFD_CLOEXEC);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = line, .point = 7, .fd = happened), 0);
    CHECK_EQUAL(
        CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = line, .point = 7, .fd = submitted, .flags = AVAILABLE),
        0);
    CHECK_EQUAL(CALL(fd, SYNCOBJ_EVENTFD, drm_syncobj_eventfd, .handle = line, .point = 99, .fd = never), 0);
    CHECK_EQUAL(signal_point(line, 3), 0);
    CHECK(!readable(happened, 0) && !readable(submitted, 0));
    start_job(&SIGNAL_POINT(line, 7), 1);
    CHECK(readable(submitted, 0) && !readable(happened, 20));
    end_job();
    CHECK(readable(happened, 20000));
    CHECK(!readable(never, 0));
    CHECK_EQUAL(destroy(line), 0);
    close(happened);
    close(submitted);
    close(never);
}

int main(int argc, char **argv)
{
    (void)argv;
    fd = test_open(0);
    set_up_job();
    test_syncobj_descriptors();
    test_eventfds();
    if (argc == 1) { /* ThreadSanitizer does not follow a forked child of a process with threads */
        test_sync_files();
        test_killed_exporter();
    }
    test_close(fd);
    return 0;
}
