#pragma once
/* A client of Level Zero that does what applications do and looks at every byte. Through the real loader only. */
#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define MAX_DEVICES 8
#define CANARY 0xee

/* A call that must succeed: anything else is a broken environment, exit code 2. */
#define MUST(call) must((call), #call, __FILE__, __LINE__)
void must(ze_result_t result, const char *call, const char *file, int line);

/* Exit codes: the bytes were right, were wrong, could not be looked at. */
enum verdict { RIGHT = 0, WRONG = 3, BROKEN = 2 };

struct gpu {
    ze_driver_handle_t driver;
    ze_context_handle_t context;
    uint32_t count;
    ze_device_handle_t devices[MAX_DEVICES];
    /* One synchronous list on the copy engine a device. */
    ze_command_list_handle_t copy_lists[MAX_DEVICES];
    size_t max_pattern;
    /* The negative control: nothing is copied or filled, so that every check must go red. */
    bool sabotage;
    /* Bytes seen to be wrong so far, and bytes looked at. */
    size_t bad, looked_at;
};

void gpu_open(struct gpu *gpu, bool sabotage);
void gpu_copy(struct gpu *gpu, unsigned int device, void *to, const void *from, size_t size);
void gpu_fill(struct gpu *gpu, unsigned int device, void *to, const void *pattern, size_t pattern_size, size_t size);
void *gpu_host(struct gpu *gpu, size_t size);
void *gpu_device(struct gpu *gpu, unsigned int device, size_t size);
void *gpu_shared(struct gpu *gpu, unsigned int device, size_t size);
void gpu_free(struct gpu *gpu, void *pointer);

/* Bytes that depend on the seed and on their place, so that shifted or swapped data shows. */
uint8_t pattern_byte(uint32_t seed, size_t place);
/* Write the pattern of `seed` to [to, to+size) through the copy engine of a device. */
void pattern_write(struct gpu *gpu, unsigned int device, void *to, size_t size, uint32_t seed);
/* Read [from, from+size) through the copy engine and count what is not byte `place + i` of the pattern. */
void pattern_check(struct gpu *gpu, unsigned int device, const void *from, size_t size, uint32_t seed, size_t place,
                   const char *what);
/* The same for one repeated byte. */
void value_check(struct gpu *gpu, unsigned int device, const void *from, size_t size, uint8_t value, const char *what);
/* Add to what was looked at, and say so if some of it is wrong. */
void bytes_report(struct gpu *gpu, const char *what, size_t bad, size_t size, size_t first);
/* Count CPU-visible bytes that differ. */
void bytes_check(struct gpu *gpu, const uint8_t *found, const uint8_t *wanted, size_t size, const char *what);

/* Run this program again with these arguments (NULL-terminated, without argv[0]); its verdict is added to ours. */
void child_run(struct gpu *gpu, char *const arguments[]);
void hex_encode(char *text, const void *bytes, size_t size);
void hex_decode(void *bytes, const char *text, size_t size);
