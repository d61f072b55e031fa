#include "client.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARGUMENTS 16

extern char **environ;

void child_run(struct gpu *gpu, char *const arguments[])
{
    char self[4096], *all[MAX_ARGUMENTS] = {self};
    int count = 1, status;
    pid_t child;
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0)
        exit(BROKEN);
    self[length] = 0;
    for (int i = 0; arguments[i] && count < MAX_ARGUMENTS - 2; i++)
        all[count++] = arguments[i];
    if (gpu->sabotage)
        all[count++] = "--sabotage";
    all[count] = NULL;
    if (posix_spawn(&child, self, NULL, NULL, all, environ) != 0 || waitpid(child, &status, 0) != child)
        exit(BROKEN);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != RIGHT && WEXITSTATUS(status) != WRONG)) {
        fprintf(stderr, "the other process ended with status 0x%x\n", (unsigned int)status);
        exit(BROKEN);
    }
    gpu->bad += WEXITSTATUS(status) == WRONG;
}

void hex_encode(char *text, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
}

void hex_decode(void *bytes, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned int byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            exit(BROKEN);
        ((unsigned char *)bytes)[i] = (unsigned char)byte;
    }
}
