#pragma once
/* The mock xe device: what programs outside the device core may call.

   A device is named by its index, 0 to XE_MOCK_MAX_DEVICES - 1; index N is render node renderD(128+N) and card N. A
   device comes to life with the first open and keeps the configuration it had then. Two processes that open the same
   index with the same profile see one device: what one exports the other imports as its own. Every function is
   thread-safe and returns 0 (or a descriptor) or -errno, unless said otherwise. */
#include <stdbool.h>
#include <stdint.h>

#include "xe_ops.h"

#define XE_MOCK_MAX_DEVICES 16
#define XE_MOCK_MAX_IOCTLS 0x100

/* A field that is 0 (or NULL) takes its default: the environment's, else the profile's. */
struct xe_mock_config {
    /* "bmg" (Battlemage, VRAM) or "lnl" (Lunar Lake, integrated); $ZE_IPC_MOCK_PROFILE, else "bmg". */
    const char *profile;
    /* Bytes of device memory, 4 KiB multiple; $ZE_IPC_MOCK_VRAM (with suffix K, M, G). Ignored by integrated profiles.
     */
    uint64_t vram_size;
    /* Bytes of system memory that the device may use. */
    uint64_t system_size;
    /* The most page-table operations of one VM_BIND: more is ENOBUFS for an array, ENOMEM for a single bind. */
    uint32_t max_bind_ops;
    /* The most 2 MiB page-table updates of one VM_BIND array that waits for an in-fence: more is ENOBUFS. */
    uint32_t max_deferred_binds;
    /* Devices that may not peer fail to import each other's device-memory objects with EOPNOTSUPP. */
    bool no_peer;
};

/* Sets what device index will be; -EBUSY once it is alive and the configuration differs, -EINVAL for values that cannot
 * be. */
int xe_mock_configure(uint32_t index, const struct xe_mock_config *config);

/* A new open file of the device, O_CLOEXEC if asked for in flags. card: the card node instead of the render node. */
int xe_mock_open(uint32_t index, bool card, int flags);

/* open: "mock:N", "mock:N:card", or any path that ends in renderD(128+N) or cardN. ioctl and mmap also take dma-buf
 * descriptors. */
const struct xe_ops *xe_mock_ops(void);
/* The ioctl of xe_mock_ops(), but 0 (or more) or -errno. */
int xe_mock_ioctl(int fd, unsigned long request, void *argument);
/* Its close; 0 or -errno. */
int xe_mock_close(int fd);

/* Fault plan: the nth call from now (1 is the next; 0: every call) of the ioctl with this number (only its low byte
   counts) on device index is delayed by delay_us microseconds and, if error is not 0, fails with it before its handler
   runs. Several entries may be pending. $ZE_IPC_MOCK_FAULTS sets entries for every device at its first open:
   "GEM_CREATE:3=ENOMEM,VM_BIND:1~500,XE_VM_BIND:*=ENOBUFS"; a name is that of the ioctl without DRM_IOCTL_, with or
   without XE_. */
int xe_mock_fault(uint32_t index, uint32_t request, uint64_t nth, int error, uint32_t delay_us);
int xe_mock_clear_faults(uint32_t index);

/* Calls so far of the ioctl with this number (its low byte) on device index, successful or not; 0 for a device never
 * opened. */
uint64_t xe_mock_count(uint32_t index, uint32_t request);
void xe_mock_reset_counts(uint32_t index);
/* The row's name for an ioctl number's low byte, e.g. "XE_VM_BIND"; NULL for a number no ioctl has. */
const char *xe_mock_ioctl_name(uint32_t nr);

/* What a device holds at this moment in this process. */
struct xe_mock_stats {
    uint64_t files;
    uint64_t objects;
    uint64_t handles;
    uint64_t vms;
    uint64_t mappings;
    uint64_t vram_used;
    uint64_t system_used;
};
int xe_mock_stats(uint32_t index, struct xe_mock_stats *stats);

/* Whether device a may reach device b's memory (default: yes unless either was configured no_peer). */
int xe_mock_set_peer(uint32_t a, uint32_t b, bool allowed);
