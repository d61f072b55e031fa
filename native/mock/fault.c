/* The fault plan: calls that shall fail or be late. And how often each ioctl was called. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core.h"
#include "fault.h"

struct fault_plan {
    struct fault_plan *next;
    uint64_t after; /* calls that still pass; unused if every */
    uint32_t delay_us;
    int error;
    uint8_t nr;
    bool every;
};

int device_fault(struct device *dev, uint32_t nr)
{
    atomic_fetch_add_explicit(&dev->counts[nr], 1, memory_order_relaxed);
    if (atomic_load_explicit(&dev->num_faults, memory_order_relaxed) == 0)
        return 0;
    uint64_t delay_us = 0;
    int error = 0;
    pthread_mutex_lock(&dev->lock);
    struct fault_plan **link = &dev->faults;
    while (*link) {
        struct fault_plan *fault = *link;
        bool due = fault->nr == nr && (fault->every || fault->after-- == 1);
        if (due) {
            delay_us += fault->delay_us;
            if (!error)
                error = fault->error;
        }
        if (due && !fault->every) {
            *link = fault->next;
            free(fault);
            atomic_fetch_sub(&dev->num_faults, 1);
        } else {
            link = &fault->next;
        }
    }
    pthread_mutex_unlock(&dev->lock);

    if (delay_us) {
        struct timespec left = {.tv_sec = (time_t)(delay_us / 1000000), .tv_nsec = (long)(delay_us % 1000000 * 1000)};
        if (nanosleep(&left, NULL) && !error)
            return -EINTR;
    }
    return error;
}

int device_add_fault(struct device *dev, uint32_t request, uint64_t nth, int error, uint32_t delay_us)
{
    uint8_t nr = request & 0xff;
    if (!ioctl_table[nr].handler || error < 0 || error > 4095 || (!error && !delay_us))
        return -EINVAL;
    struct fault_plan *fault = malloc(sizeof(*fault));
    if (!fault)
        return -ENOMEM;
    *fault = (struct fault_plan){.after = nth, .delay_us = delay_us, .error = -error, .nr = nr, .every = nth == 0};
    pthread_mutex_lock(&dev->lock);
    struct fault_plan **link = &dev->faults;
    while (*link)
        link = &(*link)->next;
    *link = fault;
    atomic_fetch_add(&dev->num_faults, 1);
    pthread_mutex_unlock(&dev->lock);
    return 0;
}

void device_clear_faults(struct device *dev)
{
    pthread_mutex_lock(&dev->lock);
    while (dev->faults) {
        struct fault_plan *fault = dev->faults;
        dev->faults = fault->next;
        free(fault);
    }
    atomic_store(&dev->num_faults, 0);
    pthread_mutex_unlock(&dev->lock);
}

static int nr_by_name(const char *name, size_t length)
{
    for (int nr = 0; nr < XE_MOCK_MAX_IOCTLS; nr++) {
        const char *row = ioctl_table[nr].name;
        if (!row)
            continue;
        if (strlen(row) == length && !strncmp(row, name, length))
            return nr;
        if (!strncmp(row, "XE_", 3) && strlen(row + 3) == length && !strncmp(row + 3, name, length))
            return nr;
    }
    return -1;
}

static int errno_by_name(const char *name)
{
    static const char *const none = "";
    for (int number = 1; number < 134; number++) {
        const char *known = strerrorname_np(number);
        if (!strcmp(known ? known : none, name))
            return number;
    }
    return atoi(name);
}

/* NAME:NTH=ERRNO or NAME:NTH~MICROSECONDS; NTH may be *. */
static int add_entry(struct device *dev, const char *entry)
{
    const char *colon = strchr(entry, ':');
    int nr = colon ? nr_by_name(entry, (size_t)(colon - entry)) : -1;
    if (nr < 0)
        return -EINVAL;
    char *end;
    uint64_t nth = 0;
    if (colon[1] == '*')
        end = (char *)colon + 2;
    else if ((nth = strtoull(colon + 1, &end, 10)) == 0)
        return -EINVAL;
    if (*end == '=')
        return device_add_fault(dev, (uint32_t)nr, nth, errno_by_name(end + 1), 0);
    if (*end == '~')
        return device_add_fault(dev, (uint32_t)nr, nth, 0, (uint32_t)strtoul(end + 1, NULL, 10));
    return -EINVAL;
}

void device_read_fault_environment(struct device *dev)
{
    const char *plan = getenv("ZE_IPC_MOCK_FAULTS");
    char *copy = plan ? strdup(plan) : NULL;
    char *rest = NULL;
    for (char *entry = copy ? strtok_r(copy, ", ", &rest) : NULL; entry; entry = strtok_r(NULL, ", ", &rest)) {
        if (add_entry(dev, entry))
            fprintf(stderr, "ze_ipc mock: ZE_IPC_MOCK_FAULTS: cannot understand \"%s\"\n", entry);
    }
    free(copy);
}
