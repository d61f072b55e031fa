"""CPU views of objects, through their dma-bufs."""

from __future__ import annotations

import errno
import warnings
from array import array
from pathlib import Path

from ze_ipc._ze import ffi, lib
from ze_ipc.backend import DeviceInfo
from ze_ipc.level_zero.context import Context, refused, u64

_MEMORY_BAR = 2
"""The PCI BAR through which the CPU sees device memory."""


class DmaBufMapping:
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
            lib.ze_cpu_unmap(address, self._size)

    def __del__(self) -> None:
        if self._address:
            cause = f"unclosed CPU view of {self._size} bytes"
            warnings.warn(cause, ResourceWarning, source=self, stacklevel=2)
            self.close()


def cpu_map(
    context: Context,
    info: DeviceInfo,
    objects: array[int],
    offsets: array[int],
    sizes: array[int],
    writable: bool,
) -> DmaBufMapping:
    """Map extents back to back, or raise BufferError that says why it cannot be."""
    reason = _out_of_reach(info)
    if reason:
        raise BufferError(reason)
    keep = u64(objects), u64(offsets), u64(sizes)
    state = ffi.new("struct ze_cpu_map *", (*keep, len(objects), writable))
    rc = -errno.EINTR
    with context as space:
        try:
            while rc == -errno.EINTR:
                rc = lib.ze_cpu_map(space, state)
        finally:
            if rc == -errno.EINTR and state.address:
                lib.ze_cpu_unmap(state.address, state.size)
    if rc == 0:
        return DmaBufMapping(state.address, state.size)
    if rc == -errno.ENOMEM:
        raise BufferError(
            "this process has no room for another memory map: raise vm.max_map_count, "
            "or use read() and write()"
        )
    result = ffi.new("uint32_t *", state.result)
    error = refused(rc, result, "mmap", object_index=state.done)
    raise BufferError(f"object {state.done} cannot be mapped for the CPU: {error}") from error


def _out_of_reach(info: DeviceInfo) -> str:
    """Why the CPU may not reach all of the device's memory, where a touch would be SIGBUS."""
    if info.is_mock or not info.device_memory:
        return ""
    window = _bar_size(info.pci_address)
    if window >= info.device_memory:
        return ""
    return (
        f"the CPU's window to the device memory has {window:,} bytes of {info.device_memory:,} "
        "(small PCI BAR): use read() and write(), or enable Resizable BAR in the firmware"
    )


def _bar_size(pci_address: str) -> int:
    """Bytes of the BAR that shows device memory; 0 where the system does not say."""
    try:
        lines = Path("/sys/bus/pci/devices", pci_address, "resource").read_text().splitlines()
        start, end, _ = (int(word, 16) for word in lines[_MEMORY_BAR].split())
    except (OSError, ValueError, IndexError):
        return 0
    return end - start + 1 if end else 0
