"""What a device API must offer to the layers above it, in whole arrays rather than single objects.

Objects are opaque integers here: a GEM handle (xe) or a ze_physical_mem_handle_t (Level Zero).
Columns are
``array('Q')`` (unsigned 64-bit) unless said otherwise; one index across them is one extent. All
sizes and
offsets are bytes; a deadline is seconds on ``time.monotonic()``.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ze_ipc.desk import Desk, DeskRules

Access = Literal["rw", "ro"]
Placement = Literal["device", "host"]
UsmKind = Literal["device", "host", "shared"]
Way = Literal["native", "emulated", "unsupported"]
HandleType = Literal["default", "fabric"]

MANY = 1 << 62
"""A number of mappings that nobody knows."""
READ_ONLY = 1
"""Bit of an access column (``array('B')``): the mapping may not be written through. 0 is
read-write.
"""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device is; nothing here changes while it is open."""

    name: str
    uuid: bytes
    """16 bytes, as Level Zero derives them: vendor, device, revision, PCI domain (16-bit
    little-endian each), bus, device, function, zeros.
    """
    pci_address: str
    """``dddd:bb:dd.f``."""
    render_node: str
    """The path that was opened; ``mock:N`` on the in-process mock."""
    is_mock: bool
    page_size: int
    """Bytes: the granularity of mappings (4 KiB, 64 KiB where the memory demands it)."""
    va_bits: int
    device_memory: int
    """Bytes of device-local memory; 0 on integrated devices."""


@dataclass(frozen=True, slots=True)
class IpcPath:
    """How ranges of a device reach other processes."""

    way: Way
    """``native``: by the driver's range extension; ``emulated``: object by object."""
    reason: str
    """Why, in one sentence."""


@dataclass(slots=True)
class OpenTimings:
    """Seconds that the steps of an open took, filled in as they end."""

    connecting: float = 0.0
    describing: float = 0.0
    """Asking for the manifest, receiving and checking it."""
    receiving: float = 0.0
    """Waiting for the objects' descriptors, without ``importing``."""
    importing: float = 0.0
    binding: float = 0.0

    @property
    def total(self) -> float:
        """All steps."""
        return self.connecting + self.describing + self.receiving + self.importing + self.binding


class Opening(NamedTuple):
    """What is to be known to map a range of few objects as soon as it has come."""

    last_word: bytes
    """What the broker is told then."""
    reserve: int
    """Bytes of VA that are taken from the window's first byte on, at least."""
    phase_size: int
    """An import of so many bytes keeps the exporter's VA modulo this."""


class Opened(NamedTuple):
    """A range of few objects that is imported and mapped."""

    objects: array[int]
    """``array('Q')``: one reference each."""
    base: int
    """GPU VA of its first page."""
    room: int
    """Bytes of VA reserved from there on."""
    importing: float
    """Seconds, of ``seconds``."""
    seconds: float
    """From the answer on."""


class Asked(NamedTuple):
    """What a broker has answered."""

    socket: int
    """-1: all is said, and it is closed."""
    room: int
    """So many descriptors could have come."""
    message: bytes
    fds: array[int]
    """``array('i')``: those that came."""
    lost: bool
    """Whether some were lost."""
    greeted: bool
    """Whether the object stream has begun, as receive_objects() is to be told."""
    opened: Opened | None = None
    """What of the range is done already; its descriptors are closed then."""


class Question(Protocol):
    """A question that a broker was asked; close() ends it if finish_asking() has not."""

    def finish(self) -> Asked | int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SeenWindow:
    """What other code of this process was seen to do with a window of addresses."""

    starts: array[int]
    ends: array[int]
    objects: array[int]
    """One reference for every entry, which is the caller's."""
    offsets: array[int]
    access: array[int]
    allocations: list[tuple[int, int]]
    """(start, end) of USM."""
    reservations: list[tuple[int, int]]
    """(start, end)."""
    context: int
    """The ze_context_handle_t of the first mapping; 0 if there is none."""


class CpuMapping(Protocol):
    """A contiguous CPU view of extents; close() unmaps it."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


class NativeRanges(Protocol):
    """Ranges that a driver shares by itself, by handles of its own."""

    def export(self, ptr: int, size: int, context: int, handle_type: HandleType | None) -> bytes:
        """A handle of ``[ptr, ptr + size)``: 64 bytes, which are the driver's. ``context`` is whose
        mappings they are, 0 for the device's own.
        """
        ...

    def put(self, data: bytes) -> None:
        """Give a handle back."""
        ...

    def open(self, data: bytes) -> tuple[int, int, int]:
        """(address, bytes, object) of a handle: one object with one reference that stands for all
        of it. unmap() of the whole closes it.
        """
        ...


class Backend(Protocol):
    """One open device. Thread-safe; every failure raises a ZeIpcError and leaves nothing behind."""

    name: Literal["xe", "level_zero"]
    info: DeviceInfo
    ipc_path: IpcPath

    @property
    def native(self) -> NativeRanges | None:
        """The driver's own way, where it has one."""
        ...

    @property
    def sycl_place(self) -> int | None:
        """The device's place among those of its driver, where the addresses are of another
        library's context, which can use them; else None.
        """
        ...

    def in_context(self, context: int) -> Backend:
        """The same device in a ze_context_handle_t of another library; UnsupportedFeature where
        there are no contexts.
        """
        ...

    def seen(self, start: int, end: int) -> SeenWindow | None:
        """What other code of this process has in ``[start, end)``; None where nobody looks."""
        ...

    def create_object(self, size: int, placement: Placement) -> int:
        """A new physical memory object of ``size`` bytes (a multiple of the page size), with one
        reference.
        """
        ...

    def retain_objects(self, objects: array[int]) -> None:
        """One more reference for every entry (an object listed twice gets two)."""
        ...

    def release_objects(self, objects: array[int]) -> None:
        """One reference less for every entry; the last one destroys the object's handle, not its
        bindings.
        """
        ...

    def object_sizes(self, objects: array[int]) -> array[int]:
        """The size of every object, in bytes; objects must be held."""
        ...

    def describe_few(
        self,
        starts: array[int],
        ends: array[int],
        objects: array[int],
        offsets: array[int],
        access: array[int],
    ) -> tuple[bytes, array[int], int] | None:
        """The columns of a manifest of a few mappings that are back to back, without
        padding (of objects u64 sizes; of extents, which are the mappings with those merged that
        continue each other, u64 offsets, u64 sizes, u32 object numbers, u8 access bits; all
        little-endian), their distinct objects in order with one more reference each, and how many
        extents there are. None: build it step by step.
        """
        ...

    def reserve(self, size: int, address: int | None, alignment: int, phase: int) -> int:
        """GPU VA of ``size`` bytes: at ``address`` exactly, or anywhere with ``va % alignment ==
        phase``.
        """
        ...

    def unreserve(self, address: int, size: int) -> None:
        """Give reserved VA back; its mappings must be gone."""
        ...

    def map_extents(
        self,
        address: int,
        objects: array[int],
        offsets: array[int],
        sizes: array[int],
        access: array[int],
        deadline: float,
    ) -> None:
        """Map extents back to back from ``address`` on, in one array bind where the device can; all
        or nothing.
        """
        ...

    def unmap(self, address: int, size: int, deadline: float, mappings: int = MANY) -> None:
        """Remove every mapping in ``[address, address + size)``, splitting at its ends. Where it is
        known how many there are, the backend may keep the GIL for a few.
        """
        ...

    def allocate_usm(self, size: int, kind: UsmKind) -> tuple[int, int]:
        """An ordinary allocation: (address, object); it is mapped and never exported by range."""
        ...

    def free_usm(self, address: int, size: int, obj: int) -> None:
        """Undo allocate_usm."""
        ...

    def send_objects(self, socket: int, objects: array[int], deadline: float) -> None:
        """Send one dma-buf fd an object over a connected unix socket, in batches, each fd made on
        demand and closed after sending.
        """
        ...

    def receive_objects(
        self,
        socket: int,
        sizes: array[int],
        deadline: float,
        timings: OpenTimings | None = None,
        greeted: bool = False,
    ) -> array[int]:
        """The other end of send_objects: import ``len(sizes)`` dma-bufs, each checked to have
        exactly its size; one reference each.
        """
        ...

    def send_bytes(self, socket: int, data: memoryview, message: int, deadline: float) -> int:
        """Send ``data`` over a SOCK_SEQPACKET socket in messages of ``message`` bytes, the last one
        of what is left, giving up the GIL once: 0 or -errno (ETIME at the deadline).
        """
        ...

    def receive_bytes(self, socket: int, into: memoryview, message: int, deadline: float) -> int:
        """The other end of send_bytes(): 0 or -errno, EBADMSG if a message has another size."""
        ...

    def start_asking(
        self, directory: str, name: str, request: bytes, objects: bool, deadline: float
    ) -> Question | int:
        """Connect to the socket ``name`` in an absolute path and ask, without waiting. ``objects``:
        they are wanted, fill the room in.

        -errno where that was not the plain case, and nothing is left then: ENOENT and ECONNREFUSED
        where nobody listens, anything else is to be done step by step.
        """
        ...

    def finish_asking(self, question: Question, opening: Opening | None) -> Asked | int:
        """Receive the first message of the answer. Socket and descriptors are the caller's. -errno
        as start_asking(), and ETIME at the deadline; the question has ended in any case.

        With ``opening`` the backend may do all that follows, too, where the answer brings few
        objects and nothing is wrong with it: check the manifest's columns (its digest is for the
        caller to check), import, reserve, map, and say the last word. It keeps the GIL then for as
        long as a broker takes that is awake.
        """
        ...

    def tell(self, socket: int, directory: str, name: str, message: bytes) -> int:
        """Send one message (24 bytes at most) that is not answered and close ``socket``, or where
        that is -1 a new connection as start_asking() makes it; without waiting: 0 or -errno.
        """
        ...

    @property
    def reply_room(self) -> int:
        """How many descriptors could come with a broker's answer now, a few left for others."""
        ...

    def send_reply(
        self, socket: int, head: bytes, body: bytes | memoryview, objects: array[int]
    ) -> bool:
        """Send ``head + body`` as one message with one dma-buf fd an object, without waiting.
        False: that cannot be, and nothing was sent; send_objects() will say why.
        """
        ...

    def import_fds(self, fds: array[int], sizes: array[int]) -> array[int]:
        """Import what came with an answer, as receive_objects() does. ``fds`` is ``array('i')``;
        they are closed in any case.
        """
        ...

    def open_desk(self, epoll: int, rules: DeskRules) -> Desk | None:
        """A desk that answers for objects of this device, in an epoll set that stays the caller's;
        None where there is none.
        """
        ...

    def export_fds(self, objects: array[int]) -> array[int]:
        """One dma-buf fd an object, ``array('i')``, the caller's to close; all or nothing."""
        ...

    def cpu_map(
        self, objects: array[int], offsets: array[int], sizes: array[int], writable: bool
    ) -> CpuMapping:
        """A zero-copy CPU view of extents back to back, or BufferError saying why there is none."""
        ...

    def read_extents(
        self, objects: array[int], offsets: array[int], sizes: array[int], into: memoryview
    ) -> None:
        """Copy the extents' bytes, back to back and byte-granular, into a writable buffer of
        exactly their total size.
        """
        ...

    def write_extents(
        self, objects: array[int], offsets: array[int], sizes: array[int], data: memoryview
    ) -> None:
        """Copy a buffer of exactly the extents' total size into them, byte-granular."""
        ...

    def copy(self, dst: int, src: int, size: int, deadline: float) -> None:
        """GPU copy between GPU VAs, synchronous."""
        ...

    def fill(self, dst: int, value: int, size: int, deadline: float) -> None:
        """GPU fill of ``size`` bytes at a GPU VA with one byte value, synchronous."""
        ...

    def close(self) -> None:
        """Release everything of this device; idempotent."""
        ...
