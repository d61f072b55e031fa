"""Copies and fills by the GPU's copy engine: the CPU writes a batch, EXEC runs it."""

from __future__ import annotations

import contextlib
import errno
import mmap
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from ze_ipc._xe import ffi, lib
from ze_ipc.errors import (
    DeviceLost,
    InvalidArgument,
    OpenTimeout,
    UnsupportedFeature,
    ZeIpcError,
)
from ze_ipc.xe.bind import UNDO_TIMEOUT, AddressSpace
from ze_ipc.xe.device import nanoseconds
from ze_ipc.xe.errors import kernel_error
from ze_ipc.xe.objects import Objects
from ze_ipc.xe.query import Engine, Facts
from ze_ipc.xe.va import VaHeap

AREA = 64 << 10
"""Bytes of the object that holds a batch and its fence."""
_FENCE = AREA - 64
"""Offset of the fence. The command parser reads some way beyond a batch: a page lies between."""
_BATCH = AREA - 8192

_EXEC = "DRM_IOCTL_XE_EXEC"


@dataclass(frozen=True, slots=True)
class Commands:
    """Which copy commands a platform has."""

    kind: int
    graphics: int
    """Major * 100 + minor."""
    mocs: int
    """Index of its uncached entry."""
    integrated: bool


_UNCACHED_MOCS: tuple[tuple[int, int], ...] = ((2000, 3), (1270, 9), (1260, 1), (1255, 1), (0, 3))
"""Graphics IP version from which on -> index of the uncached MOCS entry."""


def commands_of(facts: Facts, graphics: tuple[int, int]) -> Commands:
    """The commands for a platform; ``graphics`` is the version that pat.platform() found."""
    version = graphics[0] * 100 + graphics[1]
    newer = version >= 2000 or version == 1260
    return Commands(
        kind=lib.XE_BLIT_MEM if newer else lib.XE_BLIT_XY,
        graphics=version,
        mocs=next(index for since, index in _UNCACHED_MOCS if version >= since),
        integrated=facts.vram is None,
    )


@dataclass(slots=True)
class _Area:
    """A batch and its fence: one object, mapped for both sides."""

    obj: int
    gpu: int
    cpu: int
    queue: int
    value: int = 0
    """What the fence holds once the last submission is done."""


class CopyEngine:
    """One queue on one copy engine; calls from several threads take turns."""

    def __init__(
        self, objects: Objects, heap: VaHeap, space: AddressSpace, commands: Commands
    ) -> None:
        self._objects = objects
        self._device = objects.device
        self._heap = heap
        self._space = space
        self._commands = commands
        self._engine = _copy_engine(objects.facts)
        self._page_size = objects.facts.page_size
        self._lock = threading.Lock()
        self._area: _Area | None = None
        self._parked: list[_Area] = []

    def copy(self, dst: int, src: int, size: int, deadline: float) -> None:
        """Copy between GPU addresses; the ranges must not overlap."""
        if dst < src + size and src < dst + size:
            raise InvalidArgument("the ranges of a copy overlap", dst=dst, src=src, size=size)
        self._run({"fill": 0, "dst": dst, "src": src, "size": size}, deadline)

    def fill(self, dst: int, value: int, size: int, deadline: float) -> None:
        """Set bytes at a GPU address to one value."""
        if not 0 <= value <= 255:
            raise InvalidArgument("a fill value is one byte", value=value)
        self._run({"fill": 1, "value": value, "dst": dst, "size": size}, deadline)

    def close(self) -> None:
        """Destroy the queue and free the batches; idempotent. A running job is killed."""
        with self._lock:
            area, self._area = self._area, None
            if area is not None:
                self._parked.append(area)
            self._end_parked()

    def _run(self, job: dict[str, int], deadline: float) -> None:
        blit = ffi.new(
            "struct xe_blit *",
            {
                "commands": self._commands.kind,
                "graphics": self._commands.graphics,
                "mocs": self._commands.mocs,
                "integrated": self._commands.integrated,
                **job,
            },
        )
        with self._turn(deadline):
            while blit.done < blit.size:
                area = self._area = self._area or self._new_area(deadline)
                batch = ffi.cast("uint32_t *", area.cpu)
                lib.xe_blit_emit(blit, batch, _BATCH // 4)
                try:
                    self._submit(area)
                    self._wait(area, deadline)
                except BaseException:
                    # Banned, or its job may still run: the next call gets a new queue.
                    self._area = None
                    self._end(area)
                    raise

    @contextlib.contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        """The engine to itself, when the calls of other threads leave it in time."""
        left = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=left):
            raise OpenTimeout(
                "other threads' copies kept the engine busy",
                call=_EXEC,
                hint="pass a longer timeout, or copy less at once",
            )
        try:
            yield
        finally:
            self._lock.release()

    def _submit(self, area: _Area) -> None:
        sync = ffi.new(
            "struct drm_xe_sync *",
            {
                "type": lib.DRM_XE_SYNC_TYPE_USER_FENCE,
                "flags": lib.DRM_XE_SYNC_FLAG_SIGNAL,
                "addr": area.gpu + _FENCE,
                "timeline_value": area.value + 1,
            },
        )
        run = ffi.new(
            "struct drm_xe_exec *",
            {
                "exec_queue_id": area.queue,
                "num_syncs": 1,
                "syncs": int(ffi.cast("uintptr_t", sync)),
                "address": area.gpu,
                "num_batch_buffer": 1,
            },
        )
        rc = self._device.try_ioctl(lib.DRM_IOCTL_XE_EXEC, run)
        if rc < 0:
            raise self._error(rc, _EXEC, area.queue)
        area.value += 1

    def _wait(self, area: _Area, deadline: float) -> None:
        fence = ffi.cast("uint64_t *", area.cpu + _FENCE)
        until = nanoseconds(deadline)
        with self._device as pointer:
            rc = -errno.EINTR
            while rc == -errno.EINTR:
                rc = lib.xe_wait_value(pointer, fence, area.value, area.queue, until)
        if rc < 0:
            raise self._error(rc, "DRM_IOCTL_XE_WAIT_USER_FENCE", area.queue)

    def _error(self, rc: int, call: str, queue: int) -> ZeIpcError:
        """Ask the kernel why: a banned queue and the address of the fault, where it keeps them."""
        ban = ffi.new("struct drm_xe_exec_queue_get_property *", {"exec_queue_id": queue})
        ban.property = lib.DRM_XE_EXEC_QUEUE_GET_PROPERTY_BAN
        banned = (
            self._device.try_ioctl(lib.DRM_IOCTL_XE_EXEC_QUEUE_GET_PROPERTY, ban) == 0
            and ban.value != 0
        )
        if not banned:
            return kernel_error(rc, call, on_device=True)
        return DeviceLost(
            "the GPU faulted on this copy and its queue was banned",
            call=call,
            errno=-rc,
            address=self._last_fault(),
            hint="copy and fill mapped addresses only; see the kernel log",
        )

    def _last_fault(self) -> int | None:
        """The address of the VM's last fault, from kernels that keep it (7.1 on)."""
        arg = ffi.new("struct drm_xe_vm_get_property *", {"vm_id": self._space.vm_id})
        arg.property = lib.DRM_XE_VM_GET_PROPERTY_FAULTS
        if self._device.try_ioctl(lib.DRM_IOCTL_XE_VM_GET_PROPERTY, arg) < 0 or arg.size == 0:
            return None
        faults = ffi.new("struct xe_vm_fault[]", arg.size // ffi.sizeof("struct xe_vm_fault") + 1)
        arg.data = int(ffi.cast("uintptr_t", faults))
        if self._device.try_ioctl(lib.DRM_IOCTL_XE_VM_GET_PROPERTY, arg) < 0:
            return None
        count = arg.size // ffi.sizeof("struct xe_vm_fault")
        return int(faults[count - 1].address) if count else None

    def _new_area(self, deadline: float) -> _Area:
        self._end_parked()
        with contextlib.ExitStack() as undo:
            size = max(AREA, self._page_size)
            column = self._objects.create(size, "host", 1)
            obj = column[0]
            undo.callback(self._objects.release, column)
            gpu = self._heap.reserve(size, self._page_size)
            undo.callback(self._heap.release, gpu, size)
            self._space.map(
                gpu, column, array("Q", [0]), array("Q", [size]), array("B", [0]), deadline
            )
            undo.callback(self._space.unmap, gpu, size, deadline)
            cpu = self._map_cpu(obj, size)
            undo.callback(lib.xe_cpu_unmap, cpu, size)
            queue = self._create_queue()
            undo.pop_all()
        return _Area(obj, gpu, cpu, queue)

    def _map_cpu(self, obj: int, size: int) -> int:
        arg = ffi.new("struct drm_xe_gem_mmap_offset *", {"handle": obj})
        self._device.ioctl(lib.DRM_IOCTL_XE_GEM_MMAP_OFFSET, arg, "DRM_IOCTL_XE_GEM_MMAP_OFFSET")
        error = ffi.new("int *")
        with self._device as pointer:
            address = lib.xe_mmap(
                pointer,
                0,
                size,
                mmap.PROT_READ | mmap.PROT_WRITE,
                mmap.MAP_SHARED,
                lib.xe_device_fd(pointer),
                arg.offset,
                error,
            )
        if error[0] < 0:
            raise kernel_error(error[0], "mmap")
        return int(address)

    def _create_queue(self) -> int:
        if self._engine is None:
            raise UnsupportedFeature("this device has no copy engine")
        instance = ffi.new(
            "struct drm_xe_engine_class_instance *",
            (self._engine.engine_class, self._engine.instance, self._engine.gt_id, 0),
        )
        arg = ffi.new(
            "struct drm_xe_exec_queue_create *",
            {
                "width": 1,
                "num_placements": 1,
                "vm_id": self._space.vm_id,
                "instances": int(ffi.cast("uintptr_t", instance)),
            },
        )
        self._device.ioctl(
            lib.DRM_IOCTL_XE_EXEC_QUEUE_CREATE, arg, "DRM_IOCTL_XE_EXEC_QUEUE_CREATE"
        )
        return int(arg.exec_queue_id)

    def _end_parked(self) -> None:
        areas, self._parked = self._parked, []
        for area in areas:
            self._end(area)

    def _end(self, area: _Area) -> None:
        """Kill what runs and free its batch: the kernel unmaps only when the GPU is done with it.
        Memory that the GPU may still use is parked, to be tried again.
        """
        size = max(AREA, self._page_size)
        if area.cpu:
            lib.xe_cpu_unmap(area.cpu, size)
            area.cpu = 0
        arg = ffi.new("struct drm_xe_exec_queue_destroy *", {"exec_queue_id": area.queue})
        try:
            if area.queue:
                self._device.try_ioctl(lib.DRM_IOCTL_XE_EXEC_QUEUE_DESTROY, arg)
                area.queue = 0
            self._space.unmap(area.gpu, size, time.monotonic() + UNDO_TIMEOUT)
        except ZeIpcError:
            self._parked.append(area)
            return
        self._heap.release(area.gpu, size)
        with contextlib.suppress(ZeIpcError):
            self._objects.release(array("Q", [area.obj]))


def _copy_engine(facts: Facts) -> Engine | None:
    copies = [e for e in facts.engines if e.engine_class == lib.DRM_XE_ENGINE_CLASS_COPY]
    return min(copies, key=lambda e: (e.gt_id, e.instance), default=None)
