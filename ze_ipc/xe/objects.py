"""Memory objects: GEM handles with counted references."""

from __future__ import annotations

import errno
from array import array

from ze_ipc._xe import ffi, lib
from ze_ipc.backend import Placement
from ze_ipc.errors import InvalidSize, UnsupportedAlignment
from ze_ipc.xe import held
from ze_ipc.xe.device import Device, u64
from ze_ipc.xe.errors import kernel_error
from ze_ipc.xe.query import Facts, MemoryRegion

_CREATE = "DRM_IOCTL_XE_GEM_CREATE"
_RELEASE = held.function("xe_column_release")


class Objects:
    """The objects of one open device; thread-safe."""

    def __init__(self, device: Device, facts: Facts) -> None:
        self.device = device
        self.facts = facts
        vram = facts.vram
        self.small_bar = vram is not None and vram.cpu_visible_size < vram.total_size
        """The CPU reaches only part of the device memory."""

    @property
    def live(self) -> int:
        """How many distinct objects have references."""
        with self.device as pointer:
            return int(lib.xe_handles_live(pointer))

    @property
    def device_kind(self) -> tuple[int, int]:
        """(placement mask, cpu_caching) of objects in device memory, as GEM_CREATE takes them."""
        region = self.facts.vram or self.facts.system
        return region.placement, _caching(region)

    @property
    def untouchable(self) -> int:
        """Flags of objects that the CPU must not touch: a fault beyond a small BAR is SIGBUS, and
        of an import nobody knows where it lies.
        """
        unknown = lib.XE_HANDLE_IMPORTED if self.small_bar else 0
        return int(lib.XE_HANDLE_INVISIBLE | unknown)

    def create(self, size: int, placement: Placement, count: int) -> array[int]:
        """``count`` objects of ``size`` bytes each, in one C call; all or nothing."""
        if size <= 0:
            raise InvalidSize("an object must have bytes", size=size)
        if size % self.facts.page_size:
            raise UnsupportedAlignment(
                "the size of an object is a multiple of the page size",
                size=size,
                page_size=self.facts.page_size,
            )
        objects = array("Q", bytes(8 * count))
        vram = self.facts.vram
        region = vram if placement == "device" and vram else self.facts.system
        if region is vram and self.small_bar:
            # With a small BAR the CPU reaches only part of the memory. First ask for a place there;
            # when that part is full, rather have an object that only the GPU reaches than none.
            visible = lib.DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM
            rc, made = self._create(objects, 0, size, region, visible, 0)
            if rc in (-errno.ENOSPC, -errno.ENOMEM):
                rc, made = self._create(objects, made, size, region, 0, lib.XE_HANDLE_INVISIBLE)
        else:
            rc, made = self._create(objects, 0, size, region, 0, 0)
        if rc < 0:
            self.release(objects[:made])
            raise kernel_error(
                rc, _CREATE, on_device=region.is_vram, size=size, placement=placement
            )
        return objects

    def _create(
        self,
        objects: array[int],
        made: int,
        size: int,
        region: MemoryRegion,
        flags: int,
        handle_flags: int,
    ) -> tuple[int, int]:
        """(0 or -errno, objects made); goes on from ``made``."""
        caching = _caching(region)
        done = ffi.new("uint64_t *", made)
        column = u64(objects)
        rc = -errno.EINTR
        with self.device as pointer:
            try:
                while rc == -errno.EINTR:
                    rc = lib.xe_objects_create(
                        pointer,
                        size,
                        region.placement,
                        flags,
                        caching,
                        handle_flags,
                        column,
                        len(objects),
                        done,
                    )
            except BaseException:
                lib.xe_objects_release(pointer, column, done[0], ffi.new("uint64_t *"))
                raise
        return rc, int(done[0])

    def retain(self, objects: array[int]) -> None:
        """One more reference for every entry; all or nothing."""
        done = ffi.new("uint64_t *")
        with self.device as pointer:
            rc = lib.xe_objects_retain(pointer, u64(objects), len(objects), done)
        if rc < 0:
            raise kernel_error(rc, "retain_objects", object_index=done[0])

    def release(self, objects: array[int]) -> None:
        """One reference less for every entry; goes through to the end whatever fails."""
        handles = u64(objects)
        column = ffi.new("struct xe_column *", (handles, len(objects)))
        with self.device as pointer:
            if len(objects) <= held.FEW:
                rc = held.call(_RELEASE, pointer, column)
            else:
                rc = lib.xe_column_release(pointer, column)
        if rc < 0:
            raise kernel_error(rc, "DRM_IOCTL_GEM_CLOSE", object_index=column.done)

    def sizes(self, objects: array[int]) -> array[int]:
        """The size of every object, in bytes; objects must be held."""
        found = array("Q", bytes(8 * len(objects)))
        done = ffi.new("uint64_t *")
        with self.device as pointer:
            rc = lib.xe_objects_sizes(pointer, u64(objects), len(objects), u64(found), done)
        if rc < 0:
            raise kernel_error(rc, "object_sizes", object_index=done[0])
        return found


def _caching(region: MemoryRegion) -> int:
    """Memory that may be in VRAM must be write-combined for the CPU; system memory is cached, which
    every mapping of ours is coherent with (pat.py).
    """
    wc, wb = lib.DRM_XE_GEM_CPU_CACHING_WC, lib.DRM_XE_GEM_CPU_CACHING_WB
    return int(wc if region.is_vram else wb)
