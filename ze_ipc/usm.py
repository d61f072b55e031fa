"""An ordinary (USM) allocation: mapped memory that no range handle can carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ze_ipc.owner import Owner

if TYPE_CHECKING:
    from ze_ipc.backend import UsmKind
    from ze_ipc.device import Device


class UsmAllocation(Owner):
    """Owns one allocation as zeMemAllocDevice, zeMemAllocHost and zeMemAllocShared make them."""

    def __init__(
        self, device: Device, ptr: int, size: int, mapped: int, obj: int, kind: UsmKind
    ) -> None:
        self._device = device
        self._mapped = mapped
        self._object = obj
        self.ptr = ptr
        """GPU VA."""
        self.size = size
        """Bytes that were asked for; the mapping is rounded up to pages."""
        self.kind: UsmKind = kind
        """``"device"``, ``"host"`` or ``"shared"``."""
        self._open(device._abandoned, device._owned)

    def _release(self) -> None:
        self._device._free_usm(self.ptr, self._mapped, self._object)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"ptr={self.ptr:#x}"
        return f"<UsmAllocation {self.kind} size={self.size:#x} {state}>"
