"""What the emulated GPU can address: guest memory, VRAM, the global and the per-process tables.

Page-table entries as the driver writes them: bit 0 present, bit 1 writable, bits 12..51 the
address; a leaf above level 0 has bit 7; in the per-process tables bit 11 of a leaf means device
memory and bit 9 "null" (reads as zero, drops writes); in the global table bit 1 means device
memory. With VRAM the tables themselves lie in VRAM.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct

PAGE = 4096
PRESENT = 1 << 0
GGTT_DEVICE = 1 << 1
LEAF = 1 << 7
NULL = 1 << 9
DEVICE = 1 << 11
ADDRESS = 0x000F_FFFF_FFFF_F000
TOP_LEVEL = 4
_QWORD = struct.Struct("<Q")


class Fault(Exception):
    """An access through a table found nothing: `address` and whether it was a write."""

    def __init__(self, address: int, write: bool, level: int = 0) -> None:
        super().__init__(f"{'write' if write else 'read'} at {address:#x} (level {level})")
        self.address = address
        self.write = write
        self.level = level


class GuestMemory:
    """The ranges of guest-physical memory that the client mapped for us, by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._maps: list[tuple[int, int, mmap.mmap]] = []

    def add(self, address: int, size: int, fd: int, offset: int) -> None:
        self.remove(address, size)
        at = bisect.bisect_left(self._starts, address)
        area = mmap.mmap(fd, size, offset=offset)
        self._starts.insert(at, address)
        self._maps.insert(at, (address, size, area))

    def remove(self, address: int, size: int) -> None:
        keep = [m for m in self._maps if m[0] + m[1] <= address or m[0] >= address + size]
        for gone in self._maps:
            if gone not in keep:
                gone[2].close()
        self._maps = keep
        self._starts = [m[0] for m in keep]

    def find(self, address: int, size: int) -> tuple[mmap.mmap, int]:
        """The mapping and the offset in it of [address, address + size)."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at >= 0:
            start, length, area = self._maps[at]
            if address + size <= start + length:
                return area, address - start
        raise Fault(address, False)


class Memory:
    """Guest memory and VRAM together, addressed as a page-table leaf does."""

    def __init__(self, vram_size: int, vram_fd: int = -1) -> None:
        self.guest = GuestMemory()
        self.vram_fd = vram_fd
        self._vram: mmap.mmap | None = None
        if vram_size and vram_fd < 0:
            self.vram_fd = os.memfd_create("vram", os.MFD_CLOEXEC)
            os.ftruncate(self.vram_fd, vram_size)
        if vram_size:
            self._vram = mmap.mmap(self.vram_fd, vram_size)

    @property
    def has_vram(self) -> bool:
        return self._vram is not None

    def find(self, address: int, size: int, device: bool) -> tuple[mmap.mmap, int]:
        if not device:
            return self.guest.find(address, size)
        if self._vram is None or address + size > len(self._vram):
            raise Fault(address, False)
        return self._vram, address


class GlobalTable:
    """The global graphics address space: 8 MiB of entries, one a page, written by the driver."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.fd = os.memfd_create("bar0", os.MFD_CLOEXEC)
        self.offset = 8 << 20
        os.ftruncate(self.fd, 16 << 20)
        self._entries = mmap.mmap(self.fd, 16 << 20)

    def find(self, address: int, size: int) -> tuple[mmap.mmap, int]:
        """Where [address, address + size) of one page lies."""
        entry = _QWORD.unpack_from(self._entries, self.offset + address // PAGE * 8)[0]
        if not entry & PRESENT or address % PAGE + size > PAGE:
            raise Fault(address, False)
        return self._memory.find(
            (entry & ADDRESS) + address % PAGE, size, bool(entry & GGTT_DEVICE)
        )

    def read(self, address: int, size: int) -> bytes:
        data = bytearray()
        while size:
            step = min(size, PAGE - address % PAGE)
            area, at = self.find(address, step)
            data += area[at : at + step]
            address, size = address + step, size - step
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            step = min(len(data) - at, PAGE - (address + at) % PAGE)
            area, where = self.find(address + at, step)
            area[where : where + step] = data[at : at + step]
            at += step


class ProcessTable:
    """A per-process address space, named by the entry of its root; translations are remembered.

    Make a new one whenever the driver may have changed the tables: the memory is the lifetime.
    """

    def __init__(self, memory: Memory, root: int) -> None:
        self._memory = memory
        self._root = root & ADDRESS
        self._cache: dict[int, tuple[int, int]] = {}

    def translate(self, address: int, write: bool) -> tuple[int, int]:
        """(leaf entry, its address) of the page that holds `address`, split down to 4 KiB."""
        page = address // PAGE
        known = self._cache.get(page)
        if known is None:
            known = self._cache[page] = self._walk(address, write)
        if write and not known[0] & 2 and not known[0] & NULL:
            raise Fault(address, True)
        return known

    def _walk(self, address: int, write: bool) -> tuple[int, int]:
        table = self._root
        for level in range(TOP_LEVEL, -1, -1):
            shift = 12 + 9 * level
            slot = address >> shift & 0x1FF
            area, at = self._memory.find(table + slot * 8, 8, self._memory.has_vram)
            entry = _QWORD.unpack_from(area, at)[0]
            if not entry & (PRESENT | NULL):
                raise Fault(address, write, level)
            if level == 0 or entry & (LEAF | NULL):
                mask = (1 << shift) - 1
                return entry, (entry & ADDRESS & ~mask) + (address & mask & ~(PAGE - 1))
            table = entry & ADDRESS
        raise AssertionError("the loop returns at level 0")

    def read(self, address: int, size: int) -> bytes:
        data = bytearray()
        while size:
            step = min(size, PAGE - address % PAGE)
            entry, base = self.translate(address, False)
            if entry & NULL:
                data += bytes(step)
            else:
                area, at = self._memory.find(base + address % PAGE, step, bool(entry & DEVICE))
                data += area[at : at + step]
            address, size = address + step, size - step
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            here = address + at
            step = min(len(data) - at, PAGE - here % PAGE)
            entry, base = self.translate(here, True)
            if not entry & NULL:
                area, where = self._memory.find(base + here % PAGE, step, bool(entry & DEVICE))
                area[where : where + step] = data[at : at + step]
            at += step
