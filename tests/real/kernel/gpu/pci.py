"""The PCI configuration space of the virtual function.

QEMU emulates BARs, command and MSI itself and only reads what kind they are from here, so this is
an image that remembers the command register and the capabilities. Layout of a type 0 header and
its capabilities: PCI 3.0.
"""

from __future__ import annotations

import struct

CONFIG_SIZE = 256
BAR_MEMORY_64 = 0x4
BAR_PREFETCH = 0x8
COMMAND = 0x04
CAP_POWER = 0x40
CAP_MSI = 0x50


class ConfigSpace:
    """256 bytes: identity, two 64-bit BARs, power management and one 64-bit MSI vector."""

    def __init__(self, device_id: int, revision: int, has_vram: bool) -> None:
        self._data = bytearray(CONFIG_SIZE)
        self._put("<HH", 0x00, 0x8086, device_id)
        self._put("<HH", COMMAND, 0, 1 << 4)  # status: has a capability list
        self._put("<I", 0x08, 0x030000 << 8 | revision)  # display controller, VGA compatible
        self._put("<I", 0x10, BAR_MEMORY_64)
        if has_vram:
            self._put("<I", 0x18, BAR_MEMORY_64 | BAR_PREFETCH)
        self._put("<HH", 0x2C, 0x8086, 0x1100)
        self._put("<B", 0x34, CAP_POWER)
        self._put("<BBHI", CAP_POWER, 0x01, CAP_MSI, 3, 0)  # PM version 3, state D0
        self._put("<BBH", CAP_MSI, 0x05, 0, 1 << 7)  # MSI, 64-bit address, one vector

    def _put(self, form: str, offset: int, *values: int) -> None:
        struct.pack_into(form, self._data, offset, *values)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._data[offset : offset + size]).ljust(size, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        """Remembers what a driver may set; a ROM register that remembers would look like a ROM."""
        for at, value in enumerate(data, start=offset):
            if at in (COMMAND, COMMAND + 1) or CAP_POWER <= at < CONFIG_SIZE:
                self._data[at] = value
