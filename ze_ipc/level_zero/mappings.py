"""What is mapped where: reservations, mappings, and what a driver refuses about them."""

from __future__ import annotations

import errno
import threading
from array import array
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.errors import InvalidArgument, UnsupportedFeature, ZeIpcError
from ze_ipc.level_zero.context import Context, pointer, refused, u64
from ze_ipc.level_zero.objects import Objects

ONE_ADDRESS = (
    "this driver maps an object of device memory at one address only, and it is mapped already"
)
WHOLE_TILES = "this driver maps an object of several tiles from its beginning only"
_BOTH = (
    lib.ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
    lib.ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One mapping, as it was given to the driver; or something that the driver mapped itself."""

    address: int
    size: int
    obj: int
    offset: int
    read_only: int
    is_usm: bool = False
    is_import: bool = False
    """By an IPC handle of the driver's: unmapped by closing it."""

    @property
    def end(self) -> int:
        return self.address + self.size


class AddressSpace:
    """The GPU addresses of one context; thread-safe. Each mapping holds its object."""

    def __init__(self, context: Context, objects: Objects, tiles: int) -> None:
        self._context = context
        self._table = context.table
        self._objects = objects
        self._tiles = tiles
        self._lock = threading.RLock()
        self._starts: list[int] = []
        self._rows: dict[int, Row] = {}
        self._of_object: dict[int, list[int]] = {}
        self._reserved: dict[int, tuple[int, int]] = {}

    # ---- addresses

    def reserve(self, size: int, address: int | None, alignment: int, phase: int) -> int:
        """Exactly there, or anywhere with ``address % alignment == phase``."""
        with self._lock:
            if address is not None:
                return self._reserve_at(address, size)
            base = self._reserve(0, size)
            if base % alignment == phase:
                self._reserved[base] = base, size
                return base
            # The driver knows of no alignment: take more, and use the part that fits.
            self._table.call("VirtualMemFree", self._context.handle, pointer(base), size)
            whole = size + alignment
            base = self._reserve(0, whole)
            start = base + (phase - base) % alignment
            self._reserved[start] = base, whole
            return start

    def _reserve(self, wish: int, size: int) -> int:
        out = ffi.new("void **")
        with self._context:
            handle = self._context.handle
            self._table.call("VirtualMemReserve", handle, pointer(wish), size, out, size=size)
        return int(ffi.cast("uintptr_t", out[0]))

    def _reserve_at(self, address: int, size: int) -> int:
        base = self._reserve(address, size)
        if base == address:
            self._reserved[base] = base, size
            return base
        self._table.call("VirtualMemFree", self._context.handle, pointer(base), size)
        raise InvalidArgument(
            "the driver gives another address than the one that was wished for",
            call="zeVirtualMemReserve",
            address=address,
            size=size,
            hint="pass address=None to let the driver choose",
        )

    def unreserve(self, address: int) -> None:
        """Give a reservation back; its mappings must be gone."""
        with self._lock:
            base, size = self._reserved.pop(address, (0, 0))
            if not size:
                raise InvalidArgument("not a reserved range", address=address)
            if not base:  # the driver reserved it for an import, and took it back with it
                return
            with self._context:
                handle = self._context.handle
                self._table.call("VirtualMemFree", handle, pointer(base), size, address=base)

    # ---- mappings

    def map(
        self,
        address: int,
        objects: array[int],
        offsets: array[int],
        sizes: array[int],
        access: array[int],
    ) -> None:
        """Map extents back to back where nothing is mapped yet; all or nothing."""
        with self._lock:
            self._check_free(address, sum(sizes))
            self._objects.retain(objects)
            done, result = ffi.new("uint64_t *"), ffi.new("uint32_t *")
            columns = u64(objects), u64(offsets), u64(sizes), ffi.from_buffer("uint8_t[]", access)
            rc = -errno.EINTR
            try:
                with self._context as space:
                    while rc == -errno.EINTR:
                        rc = lib.ze_objects_map(
                            space, address, *columns, len(objects), done, result
                        )
            finally:
                at = address
                for index in range(done[0]):
                    row = Row(at, sizes[index], objects[index], offsets[index], access[index])
                    self._add(row)
                    at = row.end
                if rc:
                    self._undo(address, at, objects[done[0] :])
            if rc:
                raise self._why_not(rc, result, objects, offsets, done[0], at)

    def _undo(self, start: int, end: int, rest: array[int]) -> None:
        self._objects.release(rest)
        self._unmap(start, end)

    def _why_not(
        self,
        rc: int,
        result: Any,
        objects: array[int],
        offsets: array[int],
        index: int,
        address: int,
    ) -> ZeIpcError:
        call, obj = "zeVirtualMemMap", objects[index]
        error = refused(rc, result, call, object_index=index, address=address)
        if not isinstance(error, InvalidArgument):
            return error
        restriction = ""
        if self._of_object.get(obj) or obj in objects[:index]:
            restriction = ONE_ADDRESS
        elif self._tiles > 1 and offsets[index]:
            restriction = WHOLE_TILES
        if not restriction:
            return error
        return UnsupportedFeature(
            restriction,
            call=call,
            object_index=index,
            address=address,
            hint="use host memory, backend xe, or another process for the second mapping",
        )

    def _check_free(self, address: int, size: int) -> None:
        taken = self._overlapping(address, address + size)
        if taken:
            raise InvalidArgument("something is mapped there", address=taken[0].address, size=size)

    def unmap(self, address: int, size: int) -> None:
        """Remove every mapping in the range; what reaches beyond is mapped again."""
        with self._lock:
            self._unmap(address, address + size)

    def _unmap(self, start: int, end: int) -> None:
        for row in self._overlapping(start, end):
            self._remove(row)
            for first, last in ((row.address, start), (end, row.end)):
                if first < last:
                    self._map_part(row, first, last - first)

    def _map_part(self, row: Row, address: int, size: int) -> None:
        self.map(
            address,
            array("Q", [row.obj]),
            array("Q", [row.offset + address - row.address]),
            array("Q", [size]),
            array("B", [row.read_only]),
        )

    def _remove(self, row: Row) -> None:
        """Unmap one row. The caller holds no reference of its own: the objects of parts that stay
        are held by the rows above this layer.
        """
        with self._context:
            handle, at = self._context.handle, pointer(row.address)
            if row.is_import:
                self._table.call("MemCloseIpcHandle", handle, at, address=row.address)
            elif row.offset:
                # Intel's driver 26.27 cannot undo a mapping with an offset on xe. A change of
                # access maps it anew, without one; the driver keeps one access for the whole
                # reservation, so that only one of these two is a change.
                for access in _BOTH:
                    arguments = handle, at, row.size, access
                    self._table.result("VirtualMemSetAccessAttribute", *arguments)
            if not row.is_import:
                self._table.call("VirtualMemUnmap", handle, at, row.size, address=row.address)
        self._starts.remove(row.address)
        del self._rows[row.address]
        self._of_object[row.obj].remove(row.address)
        if not self._of_object[row.obj]:
            del self._of_object[row.obj]
        self._objects.release(array("Q", [row.obj]))

    # ---- the rows

    def add_usm(self, address: int, size: int, obj: int) -> None:
        """An allocation of the driver's, so that its bytes are found."""
        with self._lock:
            self._add(Row(address, size, obj, 0, 0, is_usm=True))

    def add_import(self, address: int, size: int, obj: int) -> None:
        """What an IPC handle of the driver's brought; takes one reference over."""
        with self._lock:
            self._add(Row(address, size, obj, 0, 0, is_import=True))
            self._reserved[address] = 0, size

    def remove_usm(self, address: int) -> None:
        with self._lock:
            row = self._rows.pop(address)
            self._starts.remove(address)
            del self._of_object[row.obj]

    def _add(self, row: Row) -> None:
        insort(self._starts, row.address)
        self._rows[row.address] = row
        self._of_object.setdefault(row.obj, []).append(row.address)

    def _overlapping(self, start: int, end: int) -> list[Row]:
        first = bisect_right(self._starts, start) - 1
        if first < 0 or self._rows[self._starts[first]].end <= start:
            first += 1
        last = bisect_left(self._starts, end)
        return [self._rows[at] for at in self._starts[first:last]]

    def locate(self, obj: int, offset: int, size: int) -> list[tuple[int, int]] | None:
        """(address, size) of mappings that hold these bytes of an object, in order; None where
        some are mapped nowhere.
        """
        found = []
        with self._lock:
            rows = [self._rows[at] for at in self._of_object.get(obj, ())]
            while size:
                for row in rows:
                    inside = offset - row.offset
                    if 0 <= inside < row.size:
                        break
                else:
                    return None
                count = min(size, row.size - inside)
                found.append((row.address + inside, count))
                offset, size = offset + count, size - count
        return found

    def close(self) -> None:
        """Unmap and unreserve everything; the context can go then."""
        with self._lock:
            for row in list(self._rows.values()):
                if not row.is_usm:
                    self._remove(row)
            for address in list(self._reserved):
                self.unreserve(address)
