#pragma once
/* What this process maps of the mock's objects, as /proc/self tells it. */
#include <stdbool.h>
#include <stdint.h>

/* Whether any of [address, address + size) is a mapping of an object's bytes. */
bool self_maps_object(uint64_t address, uint64_t size);
/* Whether the object's file is mapped, or open, anywhere in this process. Slow: reads all of both lists. */
bool self_keeps_file(uint64_t inode_dev, uint64_t inode);
