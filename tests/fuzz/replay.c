/* Runs a target in C over files, without a fuzzer: `replay FILE...`. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        uint8_t *data = malloc(1 << 20);
        size_t size;

        if (!file || !data) {
            perror(argv[i]);
            return 1;
        }
        size = fread(data, 1, 1 << 20, file);
        fclose(file);
        /* A copy of just that size: reading beyond it is seen. */
        uint8_t *exact = malloc(size ? size : 1);
        if (!exact)
            return 1;
        memcpy(exact, data, size);
        free(data);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    printf("%d inputs\n", argc - 1);
    return 0;
}
