"""Reserved GPU virtual address space, and what is mapped into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ze_ipc._buffer import BufferBase
from ze_ipc.array_like import ArrayLike
from ze_ipc.cpu_window import CpuLease, CpuWindow
from ze_ipc.errors import InvalidArgument
from ze_ipc.owner import Owner

if TYPE_CHECKING:
    from ze_ipc.backend import Access, CpuMapping
    from ze_ipc.device import Device
    from ze_ipc.physical_memory import PhysicalMemory


class Reservation(BufferBase, ArrayLike, Owner):
    """Owns a range of GPU VA (zeVirtualMemReserve); close() unmaps what is still mapped in it.

    ``memoryview(reservation)`` and ``array()`` are zero-copy CPU views of what is mapped at that
    moment, without a hole; they stay valid, and stay what they are, whatever is mapped later.
    """

    def __init__(self, device: Device, ptr: int, size: int) -> None:
        self._device = device
        self.ptr = ptr
        """First GPU VA, a multiple of the page size."""
        self.size = size
        """Bytes."""
        self._open(device._abandoned, device._owned)

    def map(
        self,
        phys: PhysicalMemory,
        at: int,
        offset: int = 0,
        size: int | None = None,
        access: Access = "rw",
    ) -> None:
        """Map ``size`` bytes of ``phys`` from its ``offset`` on at ``ptr + at`` (zeVirtualMemMap).

        All three are multiples of the device's page size; ``size`` None means the rest of the
        object. The same
        object may be mapped many times. Raises InvalidArgument where something is mapped already.
        """
        self._check("Reservation.map")
        phys._check("Reservation.map")
        if phys._device is not self._device:
            raise InvalidArgument(
                "the physical memory belongs to another open device",
                call="Reservation.map",
                hint="create it with the device that made the reservation",
            )
        self._device._map(self, phys._object, phys.size, at, offset, size, access)

    def unmap(self, at: int, size: int) -> None:
        """Unmap every byte of ``[ptr + at, ptr + at + size)``; what is mapped partly is split,
        holes are ignored.
        """
        self._check("Reservation.unmap")
        self._device._unmap(self, at, size)

    @property
    def read_only(self) -> bool:
        """Whether something in it is mapped read-only now."""
        self._check("Reservation.read_only")
        return self._device._cpu_access().has_read_only(self.ptr, self.size)

    def _acquire_buffer(self) -> CpuLease:
        window, _ = self._cpu_window(0, self.size)
        return CpuLease(self, window)

    def _cpu_window(self, offset: int, size: int) -> tuple[CpuWindow, int]:
        self._check("memoryview(Reservation)")
        # An array without elements has an address, too.
        offset, size = min(offset, self.size - 1), max(size, 1)
        ptr = self.ptr + offset
        inside = ptr % self._device.page_size

        def make() -> tuple[CpuMapping, bool]:
            return self._device._cpu_access().map(ptr, size)

        return CpuWindow(make, inside, size, keep=False), 0

    def _release(self) -> None:
        self._device._unreserve(self.ptr, self.size)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Reservation ptr={self.ptr:#x} size={self.size:#x} {state}>"
