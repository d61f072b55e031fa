"""A physical memory object, to be mapped into reservations."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from ze_ipc.owner import Owner

if TYPE_CHECKING:
    from ze_ipc.backend import Placement
    from ze_ipc.device import Device


class PhysicalMemory(Owner):
    """Owns one reference to a physical memory object (zePhysicalMemCreate, DRM GEM).

    Closing it does not unmap it: the memory lives while a mapping, an export or an importer holds
    it.
    """

    def __init__(self, device: Device, obj: int, size: int, placement: Placement) -> None:
        self._device = device
        self._object = obj
        self.size = size
        """Bytes."""
        self.placement: Placement = placement
        """``"device"`` or ``"host"``."""
        self._open(device._abandoned, device._owned)

    def _release(self) -> None:
        self._device._release_objects(array("Q", (self._object,)))

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"object={self._object}"
        return f"<PhysicalMemory size={self.size:#x} placement={self.placement} {state}>"
