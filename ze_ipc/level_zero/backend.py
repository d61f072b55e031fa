"""The backend over a Level Zero driver: real hardware, or the real driver on the mock device."""

from __future__ import annotations

import contextlib
import warnings
from array import array
from typing import Any, Literal

from ze_ipc._ze import ffi, lib
from ze_ipc.backend import (
    MANY,
    Asked,
    CpuMapping,
    DeviceInfo,
    IpcPath,
    Opening,
    OpenTimings,
    Placement,
    Question,
    SeenWindow,
    UsmKind,
)
from ze_ipc.desk import DeskRules
from ze_ipc.errors import InvalidArgument, InvalidSize, UnsupportedAlignment, ZeIpcError
from ze_ipc.level_zero import stream
from ze_ipc.level_zero.context import Context, pointer
from ze_ipc.level_zero.copies import Copies
from ze_ipc.level_zero.cpu import cpu_map
from ze_ipc.level_zero.drivers import GpuDevice
from ze_ipc.level_zero.mappings import AddressSpace
from ze_ipc.level_zero.native import NativeRanges
from ze_ipc.level_zero.objects import Objects, page_size
from ze_ipc.level_zero.observing import seen_window
from ze_ipc.level_zero.table import Table
from ze_ipc.xe.ask import start_asking, tell
from ze_ipc.xe.byte_stream import receive_bytes, send_bytes

_VA_BITS = 47
_SMALLEST = 4096
"""Bytes: asked for the page size of a small mapping."""


class LevelZeroBackend:
    """One device of a driver, with a context of our own; implements ``ze_ipc.backend.Backend``."""

    name: Literal["xe", "level_zero"] = "level_zero"

    def __init__(
        self,
        table: Table,
        gpu: GpuDevice,
        path: IpcPath,
        node: str,
        mock: bool,
        context: int | None = None,
    ) -> None:
        with contextlib.ExitStack() as undo:
            self._context = Context(table, gpu, context)
            undo.callback(self._context.close)
            page = page_size(self._context, _SMALLEST)
            self._objects = Objects(self._context)
            self._space = AddressSpace(self._context, self._objects, gpu.tiles)
            self._copies = Copies(self._context)
            self.ipc_path = path
            self.native = (
                NativeRanges(self._context, self._space, self._objects)
                if path.way == "native"
                else None
            )
            self.info = DeviceInfo(
                name=gpu.name + (" (mock)" if mock else ""),
                uuid=gpu.uuid,
                pci_address=gpu.pci_address,
                render_node=node,
                is_mock=mock,
                page_size=page,
                va_bits=_VA_BITS,
                device_memory=gpu.memory,
            )
            undo.pop_all()

    @property
    def sycl_place(self) -> int | None:
        """The device's place among the driver's, in another library's context; else None."""
        return self._context.gpu.place if self._context.is_foreign else None

    def in_context(self, context: int) -> LevelZeroBackend:
        """The same device in a ze_context_handle_t that another library owns."""
        self._context.check()
        inside = self._context
        info = self.info
        return LevelZeroBackend(
            inside.table, inside.gpu, self.ipc_path, info.render_node, info.is_mock, context
        )

    def seen(self, start: int, end: int) -> SeenWindow | None:
        """What other code of this process has in ``[start, end)``, while that is observed."""
        return seen_window(self._context, start, end)

    # ---- objects

    def create_object(self, size: int, placement: Placement) -> int:
        """A new physical memory object with one reference."""
        self._whole_pages("object", size)
        return self._objects.create(size, placement)

    def retain_objects(self, objects: array[int]) -> None:
        """One more reference for every entry; all or nothing."""
        self._objects.retain(objects)

    def release_objects(self, objects: array[int]) -> None:
        """One reference less for every entry; goes through to the end whatever fails."""
        self._objects.release(objects)

    def object_sizes(self, objects: array[int]) -> array[int]:
        """The size of every object, in bytes; objects must be held."""
        return self._objects.sizes(objects)

    @property
    def live_objects(self) -> int:
        """How many distinct objects have references."""
        return self._objects.live

    # ---- addresses and mappings

    def describe_few(
        self,
        starts: array[int],
        ends: array[int],
        objects: array[int],
        offsets: array[int],
        access: array[int],
    ) -> None:
        """Always step by step."""

    def reserve(self, size: int, address: int | None, alignment: int, phase: int) -> int:
        """GPU addresses: exactly there, or anywhere with ``address % alignment == phase``."""
        self._context.check()
        self._whole_pages("reservation", size)
        page = self.info.page_size
        alignment = max(alignment, page)
        for number in (address or 0, alignment, phase):
            if number % page:
                raise UnsupportedAlignment(
                    "a reservation starts at a page", address=address, page_size=page
                )
        return self._space.reserve(size, address, alignment, phase)

    def unreserve(self, address: int, size: int) -> None:
        """Give addresses back; their mappings must be gone."""
        self._space.unreserve(address)

    def map_extents(
        self,
        address: int,
        objects: array[int],
        offsets: array[int],
        sizes: array[int],
        access: array[int],
        deadline: float,
    ) -> None:
        """Map extents back to back where nothing is mapped yet; all or nothing."""
        if not len(objects) == len(offsets) == len(sizes) == len(access):
            raise InvalidArgument("the columns of extents differ in length")
        self._space.map(address, objects, offsets, sizes, access)

    def unmap(self, address: int, size: int, deadline: float, mappings: int = MANY) -> None:
        """Remove every mapping in the range, splitting those that reach beyond."""
        self._space.unmap(address, size)

    def allocate_usm(self, size: int, kind: UsmKind) -> tuple[int, int]:
        """An ordinary allocation of the driver's: (address, object)."""
        if size <= 0:
            raise InvalidSize("an allocation must have bytes", size=size)
        device, host = self._usm_descriptors()
        page, out = self.info.page_size, ffi.new("void **")
        gpu = self._context.gpu.handle
        rest = size, page, gpu, out
        calls: dict[UsmKind, tuple[str, tuple[Any, ...]]] = {
            "device": ("MemAllocDevice", (device, *rest)),
            "host": ("MemAllocHost", (host, size, page, out)),
            "shared": ("MemAllocShared", (device, host, *rest)),
        }
        name, arguments = calls[kind]
        with self._context:
            self._context.table.call(name, self._context.handle, *arguments, size=size)
        address = int(ffi.cast("uintptr_t", out[0]))
        obj = self._objects.adopt(size)
        self._space.add_usm(address, size, obj)
        return address, obj

    def _usm_descriptors(self) -> tuple[object, object]:
        device = ffi.new("ze_device_mem_alloc_desc_t *")
        device.stype = lib.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC
        host = ffi.new("ze_host_mem_alloc_desc_t *")
        host.stype = lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC
        return device, host

    def free_usm(self, address: int, size: int, obj: int) -> None:
        """Undo allocate_usm."""
        self._space.remove_usm(address)
        self._objects.release(array("Q", [obj]))
        with self._context:
            self._context.table.call("MemFree", self._context.handle, pointer(address))

    # ---- to and from other processes

    def send_objects(self, socket: int, objects: array[int], deadline: float) -> None:
        """Send one dma-buf descriptor an object over a SOCK_SEQPACKET socket."""
        stream.send_objects(self._context, socket, objects, deadline)

    def receive_objects(
        self,
        socket: int,
        sizes: array[int],
        deadline: float,
        timings: OpenTimings | None = None,
        greeted: bool = False,
    ) -> array[int]:
        """Import what send_objects() sends; one reference each."""
        return stream.receive_objects(self._context, socket, sizes, deadline, timings, greeted)

    def send_bytes(self, socket: int, data: memoryview, message: int, deadline: float) -> int:
        """Send bytes in messages of ``message`` bytes, in one C call: 0 or -errno."""
        return send_bytes(socket, data, message, deadline)

    def receive_bytes(self, socket: int, into: memoryview, message: int, deadline: float) -> int:
        """Fill a buffer from what send_bytes() sends: 0 or -errno."""
        return receive_bytes(socket, into, message, deadline)

    def start_asking(
        self, directory: str, name: str, request: bytes, objects: bool, deadline: float
    ) -> Question | int:
        """Connect to a broker and ask."""
        return start_asking(directory, name, request, objects, deadline)

    def finish_asking(self, question: Question, opening: Opening | None) -> Asked | int:
        """Receive the first message of the answer; all else goes step by step."""
        return question.finish()

    def tell(self, socket: int, directory: str, name: str, message: bytes) -> int:
        """Send one message and close: 0 or -errno."""
        return tell(socket, directory, name, message)

    @property
    def reply_room(self) -> int:
        """How many descriptors could come with a broker's answer now."""
        return stream.reply_room()

    def send_reply(
        self, socket: int, head: bytes, body: bytes | memoryview, objects: array[int]
    ) -> bool:
        """Send an answer with its objects at once, if it can be done without waiting."""
        return stream.send_reply(self._context, socket, head, body, objects)

    def import_fds(self, fds: array[int], sizes: array[int]) -> array[int]:
        """Import what came with an answer; the descriptors are closed in any case."""
        return stream.import_fds(self._context, fds, sizes)

    def open_desk(self, epoll: int, rules: DeskRules) -> None:
        """There is none: every peer is answered by Python."""

    def export_fds(self, objects: array[int]) -> array[int]:
        """One dma-buf fd an object, the caller's to close; all or nothing."""
        return stream.export_fds(self._context, objects)

    # ---- bytes

    def cpu_map(
        self, objects: array[int], offsets: array[int], sizes: array[int], writable: bool
    ) -> CpuMapping:
        """A zero-copy CPU view of extents back to back, or BufferError that says why not."""
        return cpu_map(self._context, self.info, objects, offsets, sizes, writable)

    def read_extents(
        self, objects: array[int], offsets: array[int], sizes: array[int], into: memoryview
    ) -> None:
        """Copy the extents' bytes into a buffer of exactly their total size, by the GPU."""
        with contextlib.ExitStack() as undo:
            self._copies.read(self._pieces(undo, objects, offsets, sizes), into)

    def write_extents(
        self, objects: array[int], offsets: array[int], sizes: array[int], data: memoryview
    ) -> None:
        """Copy a buffer of exactly the extents' total size into them, by the GPU."""
        with contextlib.ExitStack() as undo:
            self._copies.write(self._pieces(undo, objects, offsets, sizes), data)

    def _pieces(
        self,
        undo: contextlib.ExitStack,
        objects: array[int],
        offsets: array[int],
        sizes: array[int],
    ) -> list[tuple[int, int]]:
        """(GPU address, bytes) of the extents; what is mapped nowhere is, until ``undo``."""
        pieces: list[tuple[int, int]] = []
        for extent in zip(objects, offsets, sizes, strict=True):
            found = self._space.locate(*extent)
            if found is None:
                obj, offset, size = extent
                found = [(self._map_for_now(undo, obj) + offset, size)]
            pieces += found
        return pieces

    def _map_for_now(self, undo: contextlib.ExitStack, obj: int) -> int:
        column = array("Q", [obj])
        sizes = self._objects.sizes(column)
        address = self._space.reserve(sizes[0], None, self.info.page_size, 0)
        undo.callback(self._space.unreserve, address)
        self._space.map(address, column, array("Q", [0]), sizes, array("B", [0]))
        undo.callback(self._space.unmap, address, sizes[0])
        return address

    def copy(self, dst: int, src: int, size: int, deadline: float) -> None:
        """GPU copy between GPU addresses that do not overlap, synchronous."""
        self._copies.copy([(dst, src, size)], deadline)

    def fill(self, dst: int, value: int, size: int, deadline: float) -> None:
        """GPU fill with one byte value, synchronous."""
        self._copies.fill(dst, value, size, deadline)

    def _whole_pages(self, what: str, size: int) -> None:
        page = self.info.page_size
        if size <= 0:
            raise InvalidSize(f"a {what} must have bytes", size=size)
        if size % page:
            raise UnsupportedAlignment(
                f"the size of a {what} is a multiple of the page size", size=size, page_size=page
            )

    def close(self) -> None:
        """Unmap everything, destroy queue, objects and context; idempotent."""
        if self._context.closed:
            return
        for step in (self._copies.close, self._space.close):
            with contextlib.suppress(ZeIpcError):
                step()
        self._context.close()

    @property
    def closed(self) -> bool:
        return self._context.closed

    def __enter__(self) -> LevelZeroBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<LevelZeroBackend {self.info.name!r} {self.info.pci_address} {state}>"

    def __del__(self) -> None:
        context = getattr(self, "_context", None)
        if context is not None and not context.closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self.close()
