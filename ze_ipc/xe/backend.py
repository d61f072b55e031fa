"""The backend over an xe device: the kernel's own or the mock's, nothing else differs."""

from __future__ import annotations

import contextlib
import time
import warnings
from array import array
from typing import Literal

from ze_ipc._xe import lib
from ze_ipc.backend import (
    MANY,
    Asked,
    DeviceInfo,
    IpcPath,
    Opening,
    OpenTimings,
    Placement,
    Question,
    UsmKind,
)
from ze_ipc.desk import DeskRules
from ze_ipc.errors import (
    InvalidArgument,
    InvalidSize,
    UnsupportedAlignment,
    UnsupportedFeature,
    ZeIpcError,
)
from ze_ipc.xe import held
from ze_ipc.xe.ask import BrokerQuestion, finish_and_open, start_asking, tell
from ze_ipc.xe.bind import AddressSpace
from ze_ipc.xe.byte_stream import receive_bytes, send_bytes
from ze_ipc.xe.copy import CopyEngine, commands_of
from ze_ipc.xe.cpu import NotCpuVisible, XeCpuMapping, cpu_copy, cpu_map
from ze_ipc.xe.describe import describe
from ze_ipc.xe.desk import XeDesk
from ze_ipc.xe.device import Device
from ze_ipc.xe.names import device_name
from ze_ipc.xe.objects import Objects
from ze_ipc.xe.pat import pat_of, platform
from ze_ipc.xe.query import Facts
from ze_ipc.xe.reply import export_fds, import_fds, send_reply
from ze_ipc.xe.staging import stage
from ze_ipc.xe.stream import receive_objects, send_objects
from ze_ipc.xe.va import VaHeap

_VA_BITS = 47
"""Addresses stay in the lower half of the CPU's address space: they are canonical everywhere."""
_VA_START = 1 << 21
_USM_TIMEOUT = 10.0
_BIG = 2 << 20
"""Bytes: the size and alignment from which on the GPU can use its large pages."""


class XeBackend:
    """One open xe device with one address space; implements ``ze_ipc.backend.Backend``."""

    name: Literal["xe", "level_zero"] = "xe"
    ipc_path = IpcPath("emulated", "the kernel driver shares objects, one dma-buf each")
    native = None
    sycl_place = None

    def seen(self, start: int, end: int) -> None:
        """Other code maps by ioctls, which nobody observes."""
        return

    def __init__(self, device: Device, facts: Facts, pci_address: str, is_mock: bool) -> None:
        """Takes over the device, and closes it when this fails."""
        with contextlib.ExitStack() as undo:
            undo.callback(device.close)
            graphics = platform(facts.graphics, facts.device_id)
            self._device = device
            self._facts = facts
            self._space = AddressSpace(device, pat_of(graphics))
            self._heap = VaHeap(_VA_START, 1 << min(facts.va_bits, _VA_BITS))
            commands = commands_of(facts, graphics)
            self._objects = Objects(device, facts)
            self._copies = CopyEngine(self._objects, self._heap, self._space, commands)
            vram = facts.vram
            self.info = DeviceInfo(
                name=device_name(facts.device_id) + (" (mock)" if is_mock else ""),
                uuid=device_uuid(facts.device_id, facts.revision, pci_address),
                pci_address=pci_address,
                render_node=device.path,
                is_mock=is_mock,
                page_size=facts.page_size,
                va_bits=facts.va_bits,
                device_memory=vram.total_size if vram else 0,
            )
            undo.pop_all()

    @property
    def device_kind(self) -> tuple[int, int, int]:
        """(placement mask, cpu_caching, pat_index) of objects in device memory, for a program that
        makes the same ones by the same ioctls.
        """
        return (*self._objects.device_kind, self._space.pat.own)

    def in_context(self, context: int) -> XeBackend:
        """There are no Level Zero contexts here."""
        raise UnsupportedFeature(
            "backend xe has no Level Zero contexts",
            call="open_ipc_handle",
            hint='open the device by open_device("level_zero")',
        )

    # ---- objects ----

    def create_object(self, size: int, placement: Placement) -> int:
        """A new physical memory object with one reference."""
        return self._objects.create(size, placement, 1)[0]

    def create_objects(self, size: int, placement: Placement, count: int) -> array[int]:
        """``count`` objects of ``size`` bytes each, in one C call; all or nothing."""
        return self._objects.create(size, placement, count)

    def retain_objects(self, objects: array[int]) -> None:
        """One more reference for every entry; all or nothing."""
        self._objects.retain(objects)

    def release_objects(self, objects: array[int]) -> None:
        """One reference less for every entry; goes through to the end whatever fails."""
        self._objects.release(objects)

    def object_sizes(self, objects: array[int]) -> array[int]:
        """The size of every object, in bytes; objects must be held."""
        return self._objects.sizes(objects)

    def describe_few(
        self,
        starts: array[int],
        ends: array[int],
        objects: array[int],
        offsets: array[int],
        access: array[int],
    ) -> tuple[bytes, array[int], int] | None:
        """The columns of a manifest, and its objects held."""
        return describe(self._device, starts, ends, objects, offsets, access)

    @property
    def live_objects(self) -> int:
        """How many distinct objects have references."""
        return self._objects.live

    # ---- addresses and mappings ----

    def reserve(self, size: int, address: int | None, alignment: int, phase: int) -> int:
        """GPU addresses: exactly there, or anywhere with ``address % alignment == phase``."""
        self._device.check()
        page = self._facts.page_size
        if size <= 0 or size % page:
            raise InvalidSize("a reservation is whole pages", size=size, page_size=page)
        if address is None:
            alignment = max(alignment, page)
            if alignment % page or phase % page:
                raise UnsupportedAlignment(
                    "a reservation starts at a page",
                    alignment=alignment,
                    phase=phase,
                    page_size=page,
                )
            if alignment == page and size >= _BIG:
                alignment = _BIG
            return self._heap.reserve(size, alignment, phase)
        if address % page:
            raise UnsupportedAlignment(
                "a reservation starts at a page", address=address, page_size=page
            )
        self._heap.reserve_at(address, size)
        return address

    def unreserve(self, address: int, size: int) -> None:
        """Give addresses back. Where a bind was given up and may still come, they are kept."""
        self._device.check()
        if not self._space.is_stuck(address, size):
            self._heap.release(address, size)

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
        self._space.map(address, objects, offsets, sizes, access, deadline)

    def unmap(self, address: int, size: int, deadline: float, mappings: int = MANY) -> None:
        """Remove every mapping in the range, splitting those that reach beyond."""
        self._space.unmap(address, size, deadline, mappings <= held.FEW)

    def allocate_usm(self, size: int, kind: UsmKind) -> tuple[int, int]:
        """An ordinary allocation: (address, object); its memory is whole pages."""
        if size <= 0:
            raise InvalidSize("an allocation must have bytes", size=size)
        whole = self._whole(size)
        placement: Placement = "device" if kind == "device" else "host"
        with contextlib.ExitStack() as undo:
            obj = self.create_object(whole, placement)
            column = array("Q", [obj])
            undo.callback(self.release_objects, column)
            address = self.reserve(whole, None, self._facts.page_size, 0)
            undo.callback(self.unreserve, address, whole)
            self.map_extents(
                address,
                column,
                array("Q", [0]),
                array("Q", [whole]),
                array("B", [0]),
                time.monotonic() + _USM_TIMEOUT,
            )
            undo.pop_all()
        return address, obj

    def free_usm(self, address: int, size: int, obj: int) -> None:
        """Undo allocate_usm; ``size`` is what it was given."""
        whole = self._whole(size)
        with contextlib.ExitStack() as steps:
            steps.callback(self.release_objects, array("Q", [obj]))
            self.unmap(address, whole, time.monotonic() + _USM_TIMEOUT)
            self.unreserve(address, whole)

    def _whole(self, size: int) -> int:
        return -(-size // self._facts.page_size) * self._facts.page_size

    # ---- to and from other processes ----

    def send_objects(self, socket: int, objects: array[int], deadline: float) -> None:
        """Send one dma-buf descriptor an object over a SOCK_SEQPACKET socket."""
        send_objects(self._device, socket, objects, deadline)

    def receive_objects(
        self,
        socket: int,
        sizes: array[int],
        deadline: float,
        timings: OpenTimings | None = None,
        greeted: bool = False,
    ) -> array[int]:
        """Import what send_objects() sends; one reference each."""
        return receive_objects(self._device, socket, sizes, deadline, timings, greeted)

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
        """Receive the first message of the answer; with ``opening`` do all that follows for a few
        objects, in the same C call.
        """
        if opening is None:
            return question.finish()
        assert isinstance(question, BrokerQuestion)
        return finish_and_open(question, self._space, self._heap, self._facts.page_size, opening)

    def tell(self, socket: int, directory: str, name: str, message: bytes) -> int:
        """Send one message and close: 0 or -errno."""
        return tell(socket, directory, name, message)

    @property
    def reply_room(self) -> int:
        """How many descriptors could come with a broker's answer now."""
        return int(lib.object_reply_room())

    def send_reply(
        self, socket: int, head: bytes, body: bytes | memoryview, objects: array[int]
    ) -> bool:
        """Send an answer with its objects at once, if it can be done without waiting."""
        return send_reply(self._device, socket, head, body, objects)

    def import_fds(self, fds: array[int], sizes: array[int]) -> array[int]:
        """Import what came with an answer; the descriptors are closed in any case."""
        return import_fds(self._device, fds, sizes)

    def open_desk(self, epoll: int, rules: DeskRules) -> XeDesk:
        """A desk that answers for objects of this device."""
        return XeDesk(self._device, epoll, rules)

    def export_fds(self, objects: array[int]) -> array[int]:
        """One dma-buf fd an object, the caller's to close; all or nothing."""
        return export_fds(self._device, objects)

    # ---- bytes ----

    def cpu_map(
        self, objects: array[int], offsets: array[int], sizes: array[int], writable: bool
    ) -> XeCpuMapping:
        """A zero-copy CPU view of extents back to back, or BufferError that says why not."""
        return cpu_map(self._device, objects, offsets, sizes, writable, self._objects.untouchable)

    def read_extents(
        self, objects: array[int], offsets: array[int], sizes: array[int], into: memoryview
    ) -> None:
        """Copy the extents' bytes into a buffer of exactly their total size."""
        try:
            cpu_copy(self._device, objects, offsets, sizes, into, False, self._objects.untouchable)
        except NotCpuVisible:
            stage(self, objects, offsets, sizes, into, write=False)

    def write_extents(
        self, objects: array[int], offsets: array[int], sizes: array[int], data: memoryview
    ) -> None:
        """Copy a buffer of exactly the extents' total size into them."""
        try:
            cpu_copy(self._device, objects, offsets, sizes, data, True, self._objects.untouchable)
        except NotCpuVisible:
            stage(self, objects, offsets, sizes, data, write=True)

    def copy(self, dst: int, src: int, size: int, deadline: float) -> None:
        """GPU copy between GPU addresses that do not overlap, synchronous."""
        self._copies.copy(dst, src, size, deadline)

    def fill(self, dst: int, value: int, size: int, deadline: float) -> None:
        """GPU fill with one byte value, synchronous."""
        self._copies.fill(dst, value, size, deadline)

    def close(self) -> None:
        """Destroy queues, VM and objects and close the file; idempotent."""
        if self._device.closed:
            return
        with contextlib.suppress(ZeIpcError):
            self._copies.close()
        with contextlib.suppress(ZeIpcError):
            self._space.destroy()
        self._device.close()

    @property
    def closed(self) -> bool:
        return self._device.closed

    def __enter__(self) -> XeBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<XeBackend {self.info.render_node} {self.info.name!r} {state}>"

    def __del__(self) -> None:
        device = getattr(self, "_device", None)
        if device is not None and not device.closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self.close()


def device_uuid(device_id: int, revision: int, pci_address: str) -> bytes:
    """16 bytes as Intel's Level Zero driver derives them from PCI; a missing address is zeros."""
    domain = bus = number = function = 0
    if pci_address:
        front, _, back = pci_address.partition(".")
        domain, bus, number = (int(part, 16) for part in front.split(":"))
        function = int(back, 16)
    words = (0x8086, device_id, revision, domain & 0xFFFF)
    return (
        b"".join(word.to_bytes(2, "little") for word in words)
        + bytes((bus, number, function))
        + bytes(4)
        + bytes((0,))
    )
