// Runs scripts of ioctls and prints what came back; the same program judges the kernel and the mock.
//
// usage: runner BASE   scripts on standard input, BASE: number of the render node that node 0 of a script means.
// Every script runs in a fork of its own with a deadline of 20 s. One command a line, words separated by blanks; N is a
// slot (a remembered number), B a buffer, field is OFFSET:WIDTH (bytes), expr is a number, $N, &B, &B+number or @number
// (that many ns after now on CLOCK_MONOTONIC):
//   S name                 the next script begins
//   O N node               open a render node              V N size     memfd        D N M      dup of slot M
//   I N request size word* ioctl on slot N with a zeroed struct of that size; word: field=expr sets, field>M remembers,
//                          field? prints after success, field! prints always
//   B n size   W n field=expr*   R n field*               make, set and print a page-aligned buffer
//   M N size prot flags fd offset      mmap (fd, offset: expr)     U N size     munmap
//   G N field   T N field=expr         load and store at the address in slot N (a signal is caught and printed)
//   A N number             slot 254 = slot N + number
//   E wanted               skip the next command unless the last ioctl failed (1) or did not (0)
//   X N close   K N offset whence lseek   Q N M same inode?   Z ms sleep
// Output: "S name", then one line a command that does something: its line number in the script, the return value (0 for
// descriptors and addresses), errno, printed values; "signal N" if the script died.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef RUNNER_MOCK
#include "xe_mock.h"
static const struct xe_ops *ops;
#endif

enum { SLOTS = 256, BUFFERS = 32, LINE = 65536 };

static uint64_t slots[SLOTS];
static bool is_node[SLOTS];
static unsigned char *buffers[BUFFERS];
static sigjmp_buf trap;
static bool last_failed, skip;

static int node_open(unsigned node, unsigned base)
{
    char path[64];

#ifdef RUNNER_MOCK
    (void)base;
    ops = xe_mock_ops();
    xe_mock_set_peer(0, 1, !getenv("RUNNER_APART"));
    snprintf(path, sizeof(path), "mock:%u", node);
    return ops->open(path, O_RDWR | O_CLOEXEC);
#else
    snprintf(path, sizeof(path), "/dev/dri/renderD%u", base + node);
    return open(path, O_RDWR | O_CLOEXEC);
#endif
}

static int do_ioctl(int fd, unsigned long request, void *argument)
{
#ifdef RUNNER_MOCK
    return xe_mock_ops()->ioctl(fd, request, argument);
#else
    return ioctl(fd, request, argument);
#endif
}

static void *do_mmap(size_t size, int prot, int flags, int fd, int64_t offset)
{
#ifdef RUNNER_MOCK
    if (fd >= 0)
        return xe_mock_ops()->mmap(NULL, size, prot, flags, fd, offset);
#endif
    return mmap(NULL, size, prot, flags, fd, offset);
}

static int do_close(unsigned slot)
{
#ifdef RUNNER_MOCK
    if (is_node[slot])
        return xe_mock_ops()->close((int)slots[slot]);
#endif
    return close((int)slots[slot]);
}

static void on_signal(int number)
{
    siglongjmp(trap, number);
}

static void die(const char *what, const char *word)
{
    printf("bad script: %s %s\n", what, word ? word : "(end)");
    fflush(stdout);
    _exit(3);
}

static uint64_t number(const char *word)
{
    char *end;
    uint64_t value = strtoull(word ? word : "", &end, 0);

    if (!word || end == word)
        die("number", word);
    return value;
}

static unsigned slot_of(const char *word)
{
    uint64_t value = number(word);

    if (value >= SLOTS)
        die("slot", word);
    return (unsigned)value;
}

static unsigned char *buffer_of(const char *word)
{
    uint64_t value = number(word);

    if (value >= BUFFERS || !buffers[value])
        die("buffer", word);
    return buffers[value];
}

static uint64_t expression(const char *word)
{
    struct timespec now;
    char *plus;

    if (!word)
        die("expression", word);
    switch (word[0]) {
    case '$':
        return slots[slot_of(word + 1)];
    case '&':
        plus = strchr(word, '+');
        return (uint64_t)(uintptr_t)buffer_of(word + 1) + (plus ? number(plus + 1) : 0);
    case '@':
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + number(word + 1);
    default:
        return number(word);
    }
}

// Splits "OFFSET:WIDTH<op>rest"; returns the operator, 0 if there is none.
static char field(const char *word, unsigned *offset, unsigned *width, const char **rest)
{
    char *end;

    *offset = (unsigned)strtoul(word, &end, 0);
    if (*end != ':')
        die("field", word);
    *width = (unsigned)strtoul(end + 1, &end, 0);
    if (*width > 8)
        die("field", word);
    *rest = *end ? end + 1 : end;
    return *end;
}

static uint64_t load(const unsigned char *data, unsigned width)
{
    uint64_t value = 0;

    memcpy(&value, data, width);
    return value;
}

static char *next(char **save)
{
    return strtok_r(NULL, " \t\r\n", save);
}

static void run_ioctl(int line, char **save)
{
    static unsigned char data[4096];
    char *words[512];
    unsigned slot = slot_of(next(save)), offset, width;
    uint64_t request = number(next(save)), size = number(next(save)), value;
    int count = 0, result, error;
    const char *rest;
    char operator;

    if (size > sizeof(data))
        die("size", NULL);
    memset(data, 0, sizeof(data));
    while (count < 512 && (words[count] = next(save)))
        count++;
    for (int i = 0; i < count; i++) {
        if (field(words[i], &offset, &width, &rest) != '=')
            continue;
        value = expression(rest);
        memcpy(data + offset, &value, width);
    }
    errno = 0;
    result = do_ioctl((int)slots[slot], request, data);
    error = result < 0 ? errno : 0;
    last_failed = result < 0;
    printf("%d %d %d", line, result, error);
    for (int i = 0; i < count; i++) {
        operator = field(words[i], &offset, &width, &rest);
        if (operator == '>' && result >= 0)
            slots[slot_of(rest)] = load(data + offset, width);
        if (operator == '!' || (operator == '?' && result >= 0))
            printf(" %u:%u=%#llx", offset, width, (unsigned long long)load(data + offset, width));
    }
    printf("\n");
}

static void access_memory(int line, char **save, bool store)
{
    unsigned char *base = (unsigned char *)(uintptr_t)slots[slot_of(next(save))];
    const char *word = next(save), *rest;
    unsigned offset, width;
    uint64_t value = 0;
    int signal_number;

    field(word ? word : "", &offset, &width, &rest);
    if (store)
        value = expression(rest);
    signal_number = sigsetjmp(trap, 1);
    if (signal_number) {
        printf("%d signal %d\n", line, signal_number);
        return;
    }
    if (store)
        memcpy(base + offset, &value, width);
    else
        value = load(base + offset, width);
    printf("%d 0 0 %#llx\n", line, (unsigned long long)value);
}

static void plain(int line, long result, int error)
{
    printf("%d %d %d\n", line, result < 0 ? -1 : 0, result < 0 ? error : 0);
}

static void command(int line, char *text, unsigned base)
{
    char *save, *verb = strtok_r(text, " \t\r\n", &save), *word;
    unsigned slot, offset, width;
    struct stat a = {0}, b = {0};
    uint64_t value, size;
    unsigned char *data;
    const char *rest;
    long result;

    if (!verb)
        return;
    if (skip) {
        skip = false;
        return;
    }
    switch (verb[0]) {
    case 'O':
        slot = slot_of(next(&save));
        result = node_open((unsigned)number(next(&save)), base);
        slots[slot] = (uint64_t)result;
        is_node[slot] = true;
        plain(line, result, errno);
        break;
    case 'E':
        skip = last_failed != (number(next(&save)) != 0);
        break;
    case 'I':
        run_ioctl(line, &save);
        break;
    case 'B':
        slot = slot_of(next(&save));
        if (slot >= BUFFERS)
            die("buffer", NULL);
        size = number(next(&save));
        buffers[slot] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        break;
    case 'W':
        data = buffer_of(next(&save));
        while ((word = next(&save))) {
            field(word, &offset, &width, &rest);
            value = expression(rest);
            memcpy(data + offset, &value, width);
        }
        break;
    case 'R':
        data = buffer_of(next(&save));
        printf("%d 0 0", line);
        while ((word = next(&save))) {
            field(word, &offset, &width, &rest);
            printf(" %u:%u=%#llx", offset, width, (unsigned long long)load(data + offset, width));
        }
        printf("\n");
        break;
    case 'M': {
        int prot, flags, fd;
        void *map;

        slot = slot_of(next(&save));
        size = number(next(&save));
        prot = (int)number(next(&save));
        flags = (int)number(next(&save));
        fd = (int)expression(next(&save));
        map = do_mmap(size, prot, flags, fd, (int64_t)expression(next(&save)));
        slots[slot] = (uint64_t)(uintptr_t)map;
        plain(line, map == MAP_FAILED ? -1 : 0, errno);
        break;
    }
    case 'U':
        slot = slot_of(next(&save));
        plain(line, munmap((void *)(uintptr_t)slots[slot], number(next(&save))), errno);
        break;
    case 'G':
    case 'T':
        access_memory(line, &save, verb[0] == 'T');
        break;
    case 'V':
        slot = slot_of(next(&save));
        slots[slot] = (uint64_t)memfd_create("foreign", MFD_CLOEXEC);
        plain(line, ftruncate((int)slots[slot], (off_t)number(next(&save))), errno);
        break;
    case 'D':
        slot = slot_of(next(&save));
        result = dup((int)slots[slot_of(next(&save))]);
        slots[slot] = (uint64_t)result;
        plain(line, result, errno);
        break;
    case 'X':
        slot = slot_of(next(&save));
        plain(line, do_close(slot), errno);
        break;
    case 'K':
        slot = slot_of(next(&save));
        value = number(next(&save));
        result = lseek((int)slots[slot], (off_t)value, (int)number(next(&save)));
        printf("%d %ld %d\n", line, result, result < 0 ? errno : 0);
        break;
    case 'Q':
        fstat((int)slots[slot_of(next(&save))], &a);
        fstat((int)slots[slot_of(next(&save))], &b);
        printf("%d 0 0 same=%d\n", line, a.st_ino == b.st_ino && a.st_dev == b.st_dev);
        break;
    case 'A':
        slot = slot_of(next(&save));
        slots[254] = slots[slot] + number(next(&save));
        break;
    case 'Z': {
        uint64_t ms = number(next(&save));
        struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

        nanosleep(&t, NULL);
        break;
    }
    default:
        die("command", verb);
    }
}

// The kernel's log then tells which script a warning belongs to.
static void log_name(const char *line)
{
#ifndef RUNNER_MOCK
    static int log = -2;

    if (log == -2)
        log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
    if (log >= 0)
        dprintf(log, "<7>script %s", line + 2);
#else
    (void)line;
#endif
}

static void run_script(char *text, unsigned base)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    char *save, *line = strtok_r(text, "\n", &save);
    int status, number_of_line = 1;
    pid_t pid;

    printf("%s\n", line);
    fflush(stdout);
    log_name(line);
    pid = fork();
    if (!pid) {
        sigaction(SIGBUS, &action, NULL);
        sigaction(SIGSEGV, &action, NULL);
        alarm(20);
        while ((line = strtok_r(NULL, "\n", &save))) {
            command(number_of_line++, line, base);
            fflush(stdout);
        }
        _exit(0); // exit() would move the shared position of standard input
    }
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        printf("signal %d\n", WTERMSIG(status));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t room = LINE, used = 0;
    char *line = NULL, *script = malloc(room);
    unsigned base = argc > 1 ? (unsigned)atoi(argv[1]) : 128;
    size_t line_room = 0;
    ssize_t length;

    while ((length = getline(&line, &line_room, stdin)) > 0) {
        if (line[0] == 'S' && used) {
            run_script(script, base);
            used = 0;
        }
        if (used + (size_t)length + 1 > room) {
            room = 2 * (used + (size_t)length + 1);
            script = realloc(script, room);
        }
        memcpy(script + used, line, (size_t)length + 1);
        used += (size_t)length;
    }
    if (used)
        run_script(script, base);
    return 0;
}
