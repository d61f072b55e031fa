#include "neo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct gpu *gpu);
} cases[] = {
    {"devices", case_devices},
    {"usm", case_usm},
    {"copy", case_copy},
    {"fill", case_fill},
    {"vmm", case_vmm},
    {"peer", case_peer},
    {"ipc-physical", case_ipc_physical},
    {"ipc-mapped", case_ipc_mapped},
    {"ipc-usm", case_ipc_usm},
    {"ipc-peer", case_ipc_peer},
};

static int finish(const struct gpu *gpu, const char *name)
{
    printf("%s: %zu looked at, %zu wrong\n", name, gpu->looked_at, gpu->bad);
    fflush(stdout);
    return gpu->bad ? WRONG : gpu->looked_at ? RIGHT : BROKEN;
}

int main(int argc, char **argv)
{
    struct gpu gpu;
    bool sabotage = argc > 2 && strcmp(argv[argc - 1], "--sabotage") == 0;
    if (argc >= 5 && strcmp(argv[1], "ipc-child") == 0) {
        gpu_open(&gpu, sabotage);
        ipc_child(&gpu, (unsigned int)strtoul(argv[2], NULL, 10), argv[3], strtoull(argv[4], NULL, 10));
        return finish(&gpu, "ipc-child");
    }
    if (argc >= 7 && strcmp(argv[1], "vmm-child") == 0) {
        gpu_open(&gpu, sabotage);
        vmm_child(&gpu, argv + 2);
        return finish(&gpu, "vmm-child");
    }
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(*cases); i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            gpu_open(&gpu, sabotage);
            cases[i].run(&gpu);
            return finish(&gpu, cases[i].name);
        }
    }
    fprintf(stderr, "usage: neo CASE [--sabotage]; the cases:");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        fprintf(stderr, " %s", cases[i].name);
    fprintf(stderr, "\n");
    return BROKEN;
}
