#pragma once
/* What the two halves of the yardstick share: the device, the messages, the times. */
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <time.h>

#include "xe_device.h"
#include "xe_uapi.h"

#define VA_BASE 0x100000000ull
#define BATCH 253
#define WINDOW 2
#define FIRST_PART (32u << 10)
#define PART (64u << 10)

struct device {
    const struct xe_ops *ops;
    int fd;
    uint32_t vm;
    uint32_t placement;
    uint16_t caching;
    uint16_t pat;
};

struct row {
    uint64_t start;
    uint64_t end;
    uint64_t object;
    uint64_t offset;
    uint64_t access;
};

struct extent {
    uint64_t offset;
    uint64_t size;
    uint32_t index;
    uint32_t access;
};

struct request {
    uint8_t handle[72];
};

struct reply {
    uint64_t manifest_size;
    uint64_t objects;
    uint64_t status;
};

/* Of one open; nanoseconds. */
struct times {
    uint64_t connect;
    uint64_t manifest;
    /* Waiting for and receiving descriptors, without what import took. */
    uint64_t receive;
    uint64_t import;
    uint64_t bind;
    uint64_t view;
    /* All but the view. */
    uint64_t open;
    uint64_t bind_calls;
};

/* Of the object stream. */
struct batch {
    uint64_t first;
    uint32_t count;
    uint32_t zero;
};

struct ack {
    uint64_t received;
    uint32_t credit;
    uint32_t zero;
};

_Noreturn void fail(const char *what);
uint64_t now(void);
void device_open(struct device *device, char **argv);
void device_ioctl(const struct device *device, unsigned long request, void *argument, const char *name);
void send_all(int fd, const void *data, size_t size);
void receive_all(int fd, void *data, size_t size);

void send_objects(const struct device *device, int fd, const struct row *rows, uint64_t count);
void receive_objects(const struct device *device, int fd, const struct extent *extents, uint64_t count,
                     uint32_t *handles, struct times *times);
void run_importer(const struct device *device);
