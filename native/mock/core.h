#pragma once
/* The device core of the mock: what its files know of each other. Who opened the descriptor, and how, is not known
   here: a struct drm_file is the kernel's open file description and everything is asked of it.

   LOCKS, outermost first. A thread takes a lock only while it holds none that stands below it.
     registry_lock     the table of devices (device.c); also dev->files
     file->lock        a file's tables of VMs, queues and syncobjs, its client name
     vm->lock          a VM's mappings, its pending bind jobs, `closed`, `banned`
     dev->lock         everything GEM: handle tables of all files of the device, every field of a bo not marked
   constant, the inode and offset tables, memory accounting, the fault plan leaves            fence callbacks (fence.c),
   CPU mappings (bo_map.c), the store (store.c): take nothing below A queue's or syncobj's own lock stands between
   file->lock and vm->lock. Held by nobody: while memory of the program is copied, while a fence is signalled or waited
   for, while anything sleeps.

   REFERENCES. *_get gives one, *_put takes one; a lookup by id returns one. bo_put, vm_put, drm_file_put, queue_put may
   take vm->lock and dev->lock: call them with no lock held (bo_put_locked: with dev->lock).

   ERRORS are negative errnos. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence.h"
#include "idr.h"
#include "uaccess.h"
#include "xe_mock.h"
#include "xe_uapi.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define PAGE_SIZE 4096u
#define ARRAY_SIZE(a) (sizeof(a) / sizeof(*(a)))
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

struct bo;
struct device;
struct drm_file;
struct exec_queue;
struct syncobj;
struct vm;
struct vma;

/* ---- ioctls (ioctl_table.c: one row each) ---- */

#define IOCTL_RENDER 1 /* allowed on a render node */
#define IOCTL_ROOT 2   /* needs CAP_SYS_ADMIN */

struct ioctl_row {
    uint32_t request; /* the kernel's own number, size and direction */
    uint32_t flags;
    /* data: a copy of the argument, zero-extended to the row's size; written back for _IOR and _IOWR even on failure.
     */
    int (*handler)(struct drm_file *file, void *data);
    const char *name;
};

/* Indexed by the number's low byte; a hole has no handler. */
extern const struct ioctl_row ioctl_table[XE_MOCK_MAX_IOCTLS];
/* The whole of an ioctl on a DRM file; 0 (or a positive result) or -errno. */
int drm_ioctl(struct drm_file *file, unsigned long request, void *argument);
/* One line on stderr for a request nobody implements; each request once. */
void warn_unknown_request(unsigned long request);

/* ---- devices (device.c, profile.c) ---- */

struct pat_entry {
    bool valid;
    bool coherent; /* at least 1-way */
    bool compressed;
};

struct profile {
    const char *name;
    const char *description;
    uint16_t device_id;
    uint16_t revision;
    bool discrete;
    bool has_usm;            /* fault mode, CPU_ADDR_MIRROR */
    bool scratch_with_fault; /* SCRATCH_PAGE together with FAULT_MODE */
    uint32_t graphics_ver;   /* 20: Xe2 */
    uint32_t va_bits;
    uint32_t min_page_size; /* of VRAM */
    uint32_t num_pat;
    const struct pat_entry *pat;
    uint64_t vram_size;
    uint64_t system_size;
    uint32_t max_deferred_binds;
    const struct drm_xe_engine_class_instance *engines;
    uint32_t num_engines;
    const struct drm_xe_gt *gts; /* reference_clock, ip version, type; memory masks are for this profile */
    uint32_t num_gts;
    const void *hwconfig;
    uint32_t hwconfig_size;
    const void *topology;
    uint32_t topology_size;
    uint32_t guc_version[3];
    uint32_t huc_version[3];
};

const struct profile *profile_by_name(const char *name);
const struct drm_xe_engine_class_instance *profile_engine(const struct profile *profile, uint16_t engine_class,
                                                          uint16_t instance, uint16_t gt);

#define REGION_SYSTEM 0
#define REGION_VRAM 1

struct device {
    uint32_t index;
    const struct profile *profile; /* constant */
    uint64_t region_size[2];       /* constant; [REGION_VRAM] is 0 on integrated devices */
    uint32_t max_bind_ops;         /* constant */
    uint32_t max_deferred_binds;   /* constant */
    bool no_peer;

    struct drm_file *files; /* registry_lock; linked by next_file */
    struct device *retired; /* registry_lock; list of those replaced by another configuration */

    pthread_mutex_t lock;
    struct bo_table *by_inode;  /* bo.c */
    struct bo_table *by_offset; /* bo.c */
    struct idr flink_names;
    uint64_t next_offset;
    uint64_t region_used[2];
    /* Bytes of objects that may live in device memory only and had no room there: counted under system memory. */
    uint64_t displaced;
    uint64_t residency_mark; /* residency.c */
    uint64_t num_objects;
    uint64_t num_handles;
    struct bo *dontneed;         /* purge.c */
    struct leftovers *leftovers; /* leftover.c */
    struct fault_plan *faults;
    atomic_uint num_faults;
    atomic_ullong counts[XE_MOCK_MAX_IOCTLS];

    atomic_ullong num_vms;
    atomic_ullong num_mappings;
    /* Threads in WAIT_USER_FENCE: kicked whenever a user fence was written. */
    struct waiter user_fences;
};

static inline uint32_t device_region_mask(const struct device *dev)
{
    return dev->profile->discrete ? 3 : 1;
}
/* The device of an index, made at the first call; NULL with *error. */
struct device *device_get(uint32_t index, int *error);
/* The device if it is alive, else NULL. */
struct device *device_peek(uint32_t index);
/* Whether dev's engines and copies may reach memory of the device with this index. */
bool device_peers(const struct device *dev, uint32_t other_index);
/* Fault plan (fault.c): what to do with this call of ioctl nr; 0 or -errno after the delay. Counts it, too. */
int device_fault(struct device *dev, uint32_t nr);

/* A user fence was written: wakes everybody in WAIT_USER_FENCE on the device. */
static inline void user_fence_written(struct device *dev)
{
    waiter_kick(&dev->user_fences);
}

/* ---- open files (drm_file.c) ---- */

/* Classes that run batches: DRM_XE_ENGINE_CLASS_RENDER to _COMPUTE. */
#define ENGINE_CLASSES 5

struct drm_file {
    atomic_uint refs;
    struct device *dev;
    struct drm_file *next_file, *prev_file;
    bool render;
    uint64_t client_id;
    pthread_mutex_t lock;
    struct idr handles;                    /* dev->lock; GEM handle -> struct handle */
    struct idr vms;                        /* file->lock */
    struct idr queues;                     /* file->lock; streamer */
    uint64_t engine_ticks[ENGINE_CLASSES]; /* file->lock; of queues that are gone */
    struct idr syncobjs;                   /* file->lock; streamer */
    char client_name[DRM_CLIENT_NAME_MAX_LEN + 1];
};

struct drm_file *drm_file_open(struct device *dev, bool render);
struct drm_file *drm_file_get(struct drm_file *file);
/* The last reference closes: queues first (killed), then VMs, then syncobjs, then GEM handles. */
void drm_file_put(struct drm_file *file);

/* ---- buffer objects (bo.c, gem.c, prime.c, bo_map.c) ---- */

enum bo_kind {
    BO_NATIVE,  /* created here, or by another process on the same device */
    BO_FOREIGN, /* a dma-buf of somebody else: no CPU mapping through the DRM file, system placement */
};

enum bo_purge {
    BO_WILLNEED,
    BO_DONTNEED,
    BO_PURGED,
};

struct bo {
    atomic_uint refs;
    uint32_t placement; /* constant; mask of regions */
    uint32_t flags;     /* constant; DRM_XE_GEM_CREATE_FLAG_* */
    uint16_t caching;   /* constant; DRM_XE_GEM_CPU_CACHING_* or 0: unknown (foreign) */
    uint8_t kind;       /* constant; enum bo_kind */
    uint8_t purge;      /* enum bo_purge */
    uint8_t region;     /* where it is accounted */
    bool resident;      /* backing was accounted */
    bool cpu_mapped;    /* by offset: a mapping may be left when the last handle is gone */
    bool exported;      /* a dma-buf of it was made or imported: not purgeable, access mode fixed */
    uint8_t exporter;   /* constant; foreign BOs: device index it came from, else 0xff */
    int access;         /* O_RDWR or O_RDONLY of its dma-buf, once exported */
    uint64_t size;      /* constant */
    struct device *dev; /* constant */
    struct vm *vm;      /* constant; private BOs: their VM (a reference), else NULL */

    struct store *home; /* store.c: where the bytes will be, and their number there */
    uint64_t serial;
    struct storage *storage;   /* NULL until the bytes exist */
    uint64_t inode_dev, inode; /* 0 until the file exists */
    struct bo *next_by_inode, *next_by_offset;
    uint64_t mmap_offset; /* 0: never asked for */
    struct handle *handles;
    struct vma *vmas; /* mappings of it in any VM */
    uint32_t flink;
    struct bo_view *view;     /* bo_map.c; cached CPU mapping */
    struct bo *next_dontneed; /* purge.c */
    uint64_t residency_mark;  /* residency.c */
};

/* A file's name for a bo. */
struct handle {
    struct bo *bo;
    struct drm_file *file;
    struct handle *next; /* of bo->handles */
    uint32_t id;
    bool prime; /* exported or imported under this number: a repeated import finds it */
};

/* By handle; NULL if the file has no such handle. */
struct bo *bo_lookup(struct drm_file *file, uint32_t handle);
struct bo *bo_get(struct bo *bo);
void bo_put(struct bo *bo);
void bo_put_locked(struct bo *bo);
/* For residency: account the backing in a region it may live in; -ENOSPC or -ENOMEM. Idempotent. dev->lock held. */
int bo_populate_locked(struct bo *bo);
/* Gives back the room it takes; nothing if it has none. dev->lock is held. */
void bo_unpopulate_locked(struct bo *bo);

/* The whole object in this process's memory, readable and writable, sparse until touched; pinned until bo_unmap().
   Unpinned mappings stay cached (a bounded number of them). NULL when the process is out of maps, descriptors or
   memory. */
void *bo_map(struct bo *bo);
void bo_unmap(struct bo *bo);
/* A new descriptor on the bo's file, O_RDWR, O_CLOEXEC; -errno. */
int bo_open_file(struct bo *bo, int flags);

/* ---- address spaces (vm.c, vma.c, bind*.c) ---- */

/* One mapping: a leaf of the VM's treap, ordered by start. */
struct vma {
    struct vma *left, *right;
    uint32_t priority;
    uint16_t pat;
    uint16_t flags; /* VMA_* */
    uint64_t start, end;
    /* Of the object, or the CPU address for a userptr, or 0. */
    uint64_t offset;
    struct bo *bo;                        /* a reference; NULL for userptr, null and mirror mappings */
    struct vma *next_in_bo, **link_in_bo; /* bo->vmas; dev->lock */
    struct vm *vm;
    uint64_t job; /* serial of the bind that made it and carried a user fence; 0: none */
    /* madvise */
    int32_t preferred_loc; /* devmem_fd: DRM_XE_PREFERRED_LOC_* or a descriptor */
    uint16_t region_instance;
    uint8_t migration_policy;
    uint8_t atomic;
    uint8_t purge;
    uint16_t default_pat; /* as bound: what AUTORESET returns to */
};

#define VMA_READONLY 1
#define VMA_NULL 2
#define VMA_DUMPABLE 4
#define VMA_USERPTR 8
#define VMA_MIRROR 16
#define VMA_AUTORESET 32

struct vm {
    atomic_uint refs;
    struct device *dev;
    uint32_t flags; /* constant; DRM_XE_VM_CREATE_FLAG_* */
    uint64_t size;  /* constant; 1 << va_bits */
    pthread_mutex_t lock;
    bool closed;
    bool banned;
    struct vma *root;
    uint64_t num_vmas;
    struct bind_job *jobs, **jobs_tail; /* pending, oldest first */
    uint32_t num_user_fences;           /* pending jobs with one */
    /* Streamer: unsignalled exec fences of a dma-fence VM, which unbinds wait for. vm->lock. */
    struct fence **execs;
    uint32_t num_execs, max_execs;
    /* Streamer: live exec queues; with LR_MODE and without FAULT_MODE they make VM_DESTROY EBUSY. vm->lock. */
    uint32_t num_queues;
    /* Streamer: VM_GET_PROPERTY FAULTS. vm->lock. */
    struct xe_vm_fault *faults;
    uint32_t num_faults;
};

static inline bool vm_is_lr(const struct vm *vm)
{
    return vm->flags & DRM_XE_VM_CREATE_FLAG_LR_MODE;
}
static inline bool vm_is_fault_mode(const struct vm *vm)
{
    return vm->flags & DRM_XE_VM_CREATE_FLAG_FAULT_MODE;
}
/* LR without faults. */
static inline bool vm_is_preempt_mode(const struct vm *vm)
{
    return vm_is_lr(vm) && !vm_is_fault_mode(vm);
}

/* By id, even closed or banned ones as long as the id exists; NULL if there is none. */
struct vm *vm_lookup(struct drm_file *file, uint32_t id);
struct vm *vm_get(struct vm *vm);
void vm_put(struct vm *vm);

/* What the GPU sees at an address. */
struct gpu_span {
    /* Readable for size bytes, and writable ones if `writable`; NULL for a null mapping (reads give 0, writes vanish).
     */
    void *cpu;
    uint64_t size;
    bool writable;
    bool scratch;    /* nothing mapped here, but the VM has scratch pages: reads give 0, writes vanish */
    struct bo *bo;   /* pinned; NULL for userptr and mirror */
    uint64_t offset; /* in bo */
};

/* The longest stretch from va on, at most size bytes, that lies in one mapping as the page tables are at this moment (a
   bind that still waits for its in-fences has not happened yet). -EFAULT: not mapped, or its memory is gone (span->size
   then says how far the hole is known to reach, at least 1); -EPERM: write to a read-only mapping; -ENOMEM. */
int vm_span(struct vm *vm, uint64_t va, uint64_t size, bool write, struct gpu_span *span);
void vm_span_put(struct gpu_span *span);
/* Copies through vm_span; *fault_va is the first address that failed. */
int vm_read(struct vm *vm, uint64_t va, void *to, uint64_t size, uint64_t *fault_va);
int vm_write(struct vm *vm, uint64_t va, const void *from, uint64_t size, uint64_t *fault_va);

/* An exec was submitted on a dma-fence VM: later unbinds wait for its fence. -ENOMEM. */
int vm_add_exec(struct vm *vm, struct fence *fence);
/* Mappings in order, under vm->lock: the first that ends after va, and the one after a given one. */
struct vma *vma_first(const struct vm *vm, uint64_t va);
struct vma *vma_next(const struct vm *vm, const struct vma *vma);
/* Cuts the mapping that strictly contains va in two at it; 0 or -ENOMEM. vm->lock held. */
int vma_split(struct vm *vm, uint64_t va);

/* ---- sync entries of VM_BIND and EXEC (sync.c) ---- */

struct sync_entry {
    uint32_t type;
    bool signal;
    struct syncobj *syncobj; /* a reference */
    uint64_t point;          /* timeline point; user fences: the value */
    uint64_t addr;           /* user fences */
    struct fence *fence;     /* in-syncs: what to wait for, a reference */
};

struct sync_list {
    struct sync_entry *entries;
    uint32_t count;
    uint32_t num_in;
    struct sync_entry *user_fence; /* at most one */
};

#define SYNC_EXEC 1      /* a user fence is a GPU address, unchecked */
#define SYNC_LR 2        /* long-running VM: syncobjs cannot be signalled */
#define SYNC_NO_UFENCE 4 /* num_binds == 0 */
/* Reads and checks in the order of the facts, section 10; on failure nothing is held. num_syncs is checked by the
 * caller. */
int sync_parse(struct drm_file *file, uint64_t user, uint32_t num, uint32_t flags, struct sync_list *list);
/* Every out-syncobj gets the fence. */
int sync_install(struct sync_list *list, struct fence *fence);
void sync_free(struct sync_list *list);

/* ---- sync objects and queues (syncobj.c, queue.c, queue_order.c) ---- */

/* NULL: no such handle. */
struct syncobj *syncobj_lookup(struct drm_file *file, uint32_t handle);
void syncobj_put(struct syncobj *syncobj);
/* The fence to wait for, with a reference: of the binary syncobj (point 0) or of a timeline point; NULL: no fence yet.
 */
struct fence *syncobj_fence(struct syncobj *syncobj, uint64_t point);
/* point 0 replaces the binary fence. 0 or -ENOMEM. */
int syncobj_install(struct syncobj *syncobj, uint64_t point, struct fence *fence);
/* Always a point of the timeline, also 0: the number stays where it is. */
int syncobj_add_point(struct syncobj *syncobj, uint64_t point, struct fence *fence);
void syncobj_file_close(struct drm_file *file);

/* NULL: no such id. */
struct exec_queue *queue_lookup(struct drm_file *file, uint32_t id);
void queue_put(struct exec_queue *queue);
/* The VM of a queue of class VM_BIND, borrowed; NULL for other classes. */
struct vm *queue_bind_vm(struct exec_queue *queue);
/* Banned or reset: WAIT_USER_FENCE answers EIO. */
bool queue_is_reset(struct exec_queue *queue);
void queue_file_close(struct drm_file *file);
/* Engine clock that all queues of the file have used, by class. No lock held. */
void queue_file_ticks(struct drm_file *file, uint64_t ticks[ENGINE_CLASSES]);
/* Program memory is about to be unmapped or replaced: returns when no job of a dma-fence VM uses it any more, as the
   kernel's notifier does. Cheap when no job runs. No lock held. */
void program_memory_changes(uint64_t address, uint64_t size);

/* Queues have no threads in a forked child. All core locks are held. */
void streamer_fork_child(void);

/* ---- DRM file mmap (mmap.c), dma-buf descriptors (prime.c) ---- */

void *drm_mmap(struct drm_file *file, void *address, size_t size, int prot, int flags, int64_t offset);
/* Whether the descriptor is a dma-buf of any mock device, by its inode's name. */
bool dma_buf_is_ours(int fd);
/* Extended attribute of the inode: what SET_NAME gave, without an end. */
#define DMA_BUF_NAME_ATTRIBUTE "user.ze_ipc.name"
/* Ioctls and mmap of such a descriptor; -errno, MAP_FAILED with errno. */
int dma_buf_ioctl(int fd, unsigned long request, void *argument);
void *dma_buf_mmap(int fd, void *address, size_t size, int prot, int flags, int64_t offset);
