"""CPU access to extents of objects."""

from __future__ import annotations

import contextlib
import errno
import warnings
from array import array
from pathlib import Path
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.errors import InvalidSize
from ze_ipc.xe import held
from ze_ipc.xe.device import Device, u64
from ze_ipc.xe.errors import kernel_error

_COPY = held.function("xe_cpu_copy")
_MAP = held.function("xe_cpu_map")
_MANY = 1024
"""Extents from which on the kernel's bound on maps is looked at first."""


class NotCpuVisible(Exception):
    """The object may lie in device memory that the CPU cannot reach; inside this package only."""


class XeCpuMapping:
    """A contiguous CPU view of extents; it outlives its device, and close() unmaps it."""

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        self._size = size

    @property
    def address(self) -> int:
        """CPU address; 0 once closed."""
        return self._address

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def closed(self) -> bool:
        return self._address == 0

    def close(self) -> None:
        """Unmap; idempotent. No view of the memory may be in use."""
        address, self._address = self._address, 0
        if address:
            lib.xe_cpu_unmap(address, self._size)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._address:#x}"
        return f"<XeCpuMapping {state} of {self._size} bytes>"

    def __del__(self) -> None:
        if self._address:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self.close()


def cpu_map(
    device: Device,
    objects: array[int],
    offsets: array[int],
    sizes: array[int],
    writable: bool,
    refuse: int,
) -> XeCpuMapping:
    """Map extents back to back, or raise BufferError that says why it cannot be."""
    if len(objects) >= _MANY:
        _check_map_count(len(objects))
    keep = u64(objects), u64(offsets), u64(sizes)
    state = ffi.new("struct xe_cpu_map *", (*keep, len(objects), writable, refuse))
    rc = -errno.EINTR
    with device as pointer:
        try:
            if len(objects) <= held.FEW:
                rc = held.call(_MAP, pointer, state)
            while rc == -errno.EINTR:
                rc = lib.xe_cpu_map(pointer, state)
        finally:
            if rc == -errno.EINTR and state.address:
                lib.xe_cpu_unmap(state.address, state.size)
    if rc == 0:
        return XeCpuMapping(state.address, state.size)
    raise BufferError(_why_not(rc, state.done)) from kernel_error(
        rc, "mmap", object_index=state.done
    )


def _why_not(rc: int, index: int) -> str:
    if rc == -errno.ENXIO:
        return (
            f"object {index} may lie in device memory beyond the CPU's window (small PCI BAR): "
            "use read() and write(), or enable Resizable BAR in the firmware"
        )
    if rc == -errno.ENOMEM:
        return (
            "this process has no room for another memory map: raise vm.max_map_count, "
            "or use read() and write()"
        )
    return f"object {index} cannot be mapped for the CPU: {errno.errorcode.get(-rc, -rc)}"


def _check_map_count(count: int) -> None:
    """One extent is one map, and the kernel allows vm.max_map_count of them in a process."""
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/proc/sys/vm/max_map_count").read_text())
        with Path("/proc/self/maps").open("rb") as maps:
            used = sum(1 for _ in maps)
        # A few more come with every thread and library.
        if used + count + 64 > limit:
            raise BufferError(
                f"a CPU view of {count} extents needs as many memory maps, but of "
                f"vm.max_map_count={limit} {used} are in use: raise it "
                "(sysctl vm.max_map_count), view a smaller range, or use read() and write()"
            )


def cpu_copy(
    device: Device,
    objects: array[int],
    offsets: array[int],
    sizes: array[int],
    data: Any,
    write: bool,
    refuse: int,
) -> None:
    """Copy between extents and a buffer of exactly their total size, byte-granular."""
    total = sum(sizes)
    buffer = ffi.from_buffer("uint8_t[]", data, require_writable=not write)
    if len(buffer) != total:
        raise InvalidSize("the buffer must be as long as the extents", size=len(buffer), of=total)
    keep = u64(objects), u64(offsets), u64(sizes)
    state = ffi.new("struct xe_cpu_copy *", (*keep, len(objects), buffer, write, refuse))
    rc = -errno.EINTR
    with device as pointer:
        if total <= held.FEW_BYTES and len(objects) <= held.FEW:
            rc = held.call(_COPY, pointer, state)
        while rc == -errno.EINTR:
            rc = lib.xe_cpu_copy(pointer, state)
    if rc == -errno.ENXIO:
        raise NotCpuVisible
    if rc < 0:
        raise kernel_error(rc, "mmap", object_index=state.extent)
