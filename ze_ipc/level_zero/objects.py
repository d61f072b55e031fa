"""Physical memory objects with counted references."""

from __future__ import annotations

from array import array
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.backend import Placement
from ze_ipc.errors import InvalidSize, Result
from ze_ipc.level_zero.context import Context, refused, u64


def page_size(context: Context, size: int) -> int:
    """Bytes that sizes and offsets of objects of about this size must be multiples of."""
    found = ffi.new("size_t *")
    with context:
        arguments = context.handle, context.gpu.handle, size, found
        context.table.call("VirtualMemQueryPageSize", *arguments)
    return int(found[0])


class Objects:
    """The objects of one context; thread-safe."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def live(self) -> int:
        """How many distinct objects have references."""
        with self.context as space:
            return int(lib.ze_objects_live(space))

    def create(self, size: int, placement: Placement) -> int:
        """A new object with one reference."""
        if size <= 0:
            raise InvalidSize("an object must have bytes", size=size)
        on_host = placement == "host"
        flags = (
            lib.ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST
            if on_host
            else lib.ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE
        )
        made, result = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        with self.context as space:
            rc = lib.ze_object_create(space, size, flags, made, result)
        if rc:
            values: dict[str, Any] = {"size": size, "placement": placement}
            if result[0] in (Result.UNSUPPORTED_SIZE, Result.INVALID_SIZE):
                page = page_size(self.context, size)
                values |= {"page_size": page, "hint": f"a multiple of {page} bytes at this size"}
            raise refused(rc, result, "zePhysicalMemCreate", **values)
        return int(made[0])

    def adopt(self, size: int) -> int:
        """A number for memory that no range handle can carry."""
        made = ffi.new("uint64_t *")
        with self.context as space:
            rc = lib.ze_object_adopt(space, size, made)
        if rc:
            raise refused(rc, None, "allocate")
        return int(made[0])

    def retain(self, objects: array[int]) -> None:
        """One more reference for every entry; all or nothing."""
        done = ffi.new("uint64_t *")
        with self.context as space:
            rc = lib.ze_objects_retain(space, u64(objects), len(objects), done)
        if rc:
            raise refused(rc, None, "retain_objects", object_index=done[0])

    def release(self, objects: array[int]) -> None:
        """One reference less for every entry; goes through to the end whatever fails."""
        done, result = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        with self.context as space:
            rc = lib.ze_objects_release(space, u64(objects), len(objects), done, result)
        if rc:
            raise refused(rc, result, "zePhysicalMemDestroy", object_index=done[0])

    def sizes(self, objects: array[int]) -> array[int]:
        """The size of every object, in bytes; objects must be held."""
        found = array("Q", bytes(8 * len(objects)))
        done = ffi.new("uint64_t *")
        with self.context as space:
            rc = lib.ze_objects_sizes(space, u64(objects), len(objects), u64(found), done)
        if rc:
            raise refused(rc, None, "object_sizes", object_index=done[0])
        return found
