#pragma once
/* The command streamer: executes a batch of GPU commands out of a GPU address space.
   Pure: memory, time limits and sleep come from its owner, nothing here knows ioctls. One streamer is one hardware
   context and belongs to one thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of drm_xe_vm_fault's access_type and fault_type. */
enum gpu_access { GPU_READ = 0, GPU_WRITE = 1, GPU_ATOMIC = 2 };
enum gpu_fault_type { GPU_FAULT_NOT_PRESENT = 0, GPU_FAULT_WRITE = 1, GPU_FAULT_ATOMIC = 2 };

struct gpu_fault {
    uint64_t address;
    enum gpu_access access;
    enum gpu_fault_type type;
};

/* Bytes of the address space that lie together. `bytes` NULL: reads give zero and writes vanish (NULL mapping, scratch
 * page). */
struct gpu_bytes {
    unsigned char *bytes;
    uint64_t size;
};

struct gpu_memory {
    /* The bytes at `address`, at least one and at most `size` of them. False: *fault says why. */
    bool (*span)(void *owner, uint64_t address, uint64_t size, enum gpu_access access, struct gpu_bytes *span,
                 struct gpu_fault *fault);
    /* Spans given since the last release are not used any more. */
    void (*release)(void *owner);
    void *owner;
};

enum streamer_result {
    STREAMER_RUNNING,
    STREAMER_DONE,    /* the batch ended by itself */
    STREAMER_KILLED,  /* the owner wants it ended */
    STREAMER_TIMEOUT, /* the owner's time limit */
    STREAMER_FAULT,   /* `fault` tells */
    STREAMER_REFUSED, /* `reason` tells: a command that this streamer cannot execute and must not skip */
};

struct streamer_control {
    /* Asked often: STREAMER_RUNNING, or why to end now. */
    enum streamer_result (*poll)(void *owner);
    /* Sleeps, at most so long; returns early when poll() would end the batch. */
    void (*relax)(void *owner, unsigned microseconds);
    /* The batch raised an interrupt, or wrote what somebody may wait for. */
    void (*interrupt)(void *owner);
    void *owner;
};

enum { STREAMER_WINDOW = 0x2000, STREAMER_LEVELS = 3, STREAMER_FOREIGN_REGISTERS = 64 };

struct streamer {
    struct gpu_memory memory;
    struct streamer_control control;
    uint32_t engine_base; /* MMIO address of this engine's registers */
    unsigned address_bits;

    uint64_t address; /* of the next command */
    uint64_t returns[STREAMER_LEVELS];
    unsigned depth;
    bool predicated; /* MI_SET_PREDICATE: commands are no-ops */
    unsigned loops;  /* backward jumps since the batch began */
    unsigned unpolled_commands;
    uint64_t unpolled_bytes;

    uint32_t registers[STREAMER_WINDOW / 4]; /* this engine's, by offset from engine_base */
    struct {
        uint32_t address, value;
    } foreign[STREAMER_FOREIGN_REGISTERS];
    unsigned foreign_count;
    uint64_t context_ticks; /* run time of the batches before this one */
    uint64_t batch_start_ticks;

    enum streamer_result result;
    struct gpu_fault fault;
    char reason[160];
};

/* `engine_class` is DRM_XE_ENGINE_CLASS_*. */
void streamer_init(struct streamer *streamer, uint16_t engine_class, uint16_t instance);
/* Runs the batch at `address` to its end. Registers survive from batch to batch, as in a hardware context. */
enum streamer_result streamer_run(struct streamer *streamer, uint64_t address);

/* The engines' clock, 19.2 MHz on CLOCK_MONOTONIC: what DEVICE_QUERY ENGINE_CYCLES reports too. */
uint64_t streamer_ticks(void);
/* Time this context has run, in ticks. */
uint64_t streamer_context_ticks(const struct streamer *streamer);

/* Helpers of the commands. Those that return bool have set `result` when they return false. */
bool streamer_refuse(struct streamer *streamer, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool streamer_poll(struct streamer *streamer, uint64_t bytes_done);
void streamer_interrupt(struct streamer *streamer);
bool streamer_span(struct streamer *streamer, uint64_t address, uint64_t size, enum gpu_access access,
                   struct gpu_bytes *span);
bool streamer_read(struct streamer *streamer, uint64_t address, void *buffer, uint64_t size);
bool streamer_write(struct streamer *streamer, uint64_t address, const void *buffer, uint64_t size);
bool streamer_load(struct streamer *streamer, uint64_t address, unsigned size, uint64_t *value);
bool streamer_store(struct streamer *streamer, uint64_t address, unsigned size, uint64_t value);
bool streamer_copy(struct streamer *streamer, uint64_t to, uint64_t from, uint64_t size);
bool streamer_fill(struct streamer *streamer, uint64_t to, const unsigned char *pattern, unsigned pattern_size,
                   uint64_t size);

/* `relative`: the command adds the engine's base itself. */
uint32_t streamer_register_read(struct streamer *streamer, uint32_t address, bool relative);
bool streamer_register_write(struct streamer *streamer, uint32_t address, bool relative, uint32_t value);
uint64_t streamer_gpr(const struct streamer *streamer, unsigned index);
void streamer_set_gpr(struct streamer *streamer, unsigned index, uint64_t value);
