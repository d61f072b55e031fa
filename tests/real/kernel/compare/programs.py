"""Random programs: lists of small steps, each of which can stand after any other.

A step is eight bytes: the first chooses a row of VERBS, the others its arguments, always modulo
what there is to choose from, so that every list of steps is a program and every shorter list, too.
The world a program makes is kept here only as far as later steps must choose from it.

What a program never does, so that both sides have one answer: use a descriptor it closed, look at
a fence that it did not wait for, look for the end of an object that a mapping of the GPU held (the
driver lets go of it later), make the GPU touch what is not mapped or not writable. And UNMAP_ALL
is never part of an array: after an operation of the same array that replaced a mapping of the same
object, driver 7.2.13 unmaps it a second time and corrupts its own lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import common
from .common import KIB, SECOND, Fence, Platform
from .script import Script, Value

STEP_BYTES = 8
BASE = 0x100000
WINDOW_PAGES = 32
BATCH_ADDRESS = 0x4000_0000
BATCH_SIZE = 64 * KIB
SIZES = (1, 2, 8, 32, 8, 512)
"""Of objects, in pages; the last is a huge page's."""
MOST_FILES = 3
NOBODY = 77
"""A number that no handle has."""


@dataclass(slots=True)
class Object:
    """A handle of a file; several may be one object."""

    slot: str
    pages: int
    offset: str = ""
    views: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Space:
    """An address space, with a batch and a queue once the GPU has worked in it."""

    slot: str
    flags: int
    touchable: bool
    """Every address of the window can be written by the GPU: scratch pages, nothing read-only."""
    batch: str = ""
    queue: str = ""
    fence: int = 0
    alive: bool = True


@dataclass(slots=True)
class File:
    """An open render node and what was made in it."""

    slot: str
    fence: Fence
    objects: list[Object] = field(default_factory=list)
    closed: list[Object] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    gone_spaces: list[Space] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    syncobjs: list[str] = field(default_factory=list)


class World:
    """One program being written; `step` appends what the bytes mean."""

    def __init__(self, name: str, platform: Platform) -> None:
        self.platform = platform
        self.script = Script(name)
        self.files: list[File] = []
        self.dma_bufs: list[tuple[str, int]] = []
        self._scratch = self.script.buffer(64 * KIB)
        """For arguments: syncs, arrays of operations, handles, rows that are read back."""
        self.memory = self.script.buffer(WINDOW_PAGES * 4 * KIB)
        """What user pointers point at. There from the beginning: binding what is not makes a space
        with page faults say EAGAIN, sometimes."""
        for page in range(WINDOW_PAGES):
            self.script.write_words(self.memory, [0], 8, 4096 * page)
        self.open_file()

    # Choosing.

    def file(self, byte: int) -> File:
        return self.files[byte % len(self.files)]

    def object(self, file: File, byte: int) -> Value:
        if byte >= 0xF0 and file.closed:
            return file.closed[byte % len(file.closed)].slot
        return file.objects[byte % len(file.objects)].slot if file.objects else NOBODY

    def space(self, file: File, byte: int) -> Space:
        if byte >= 0xF4 and file.gone_spaces:
            return file.gone_spaces[byte % len(file.gone_spaces)]
        if not file.spaces:
            self.create_space(file, byte)
        return file.spaces[byte % len(file.spaces)]

    def chosen(self, numbers: Sequence[str], byte: int) -> Value:
        return numbers[byte % len(numbers)] if numbers else NOBODY

    # What several steps do.

    def open_file(self) -> None:
        slot = self.script.open()
        self.files.append(File(slot, Fence(self.script)))

    def create_space(self, file: File, byte: int) -> Space:
        flags = (0, 1, 0, 1, 2, 3, 6, 1)[byte % 8]
        space = Space(common.vm(self.script, file.slot, flags), flags, flags in (1, 3))
        file.spaces.append(space)
        return space

    def arguments(self, struct: str, size: int, fields: dict[str, Value], at: int = 0) -> str:
        """A struct in the scratch buffer, every other byte of it zero."""
        self.script.write_words(self._scratch, [0] * (size // 8), 8, at)
        self.script.write(self._scratch, struct, fields, at)
        return f"{self._scratch}+{at}" if at else self._scratch

    def numbers(self, values: Sequence[Value], width: int, at: int = 0) -> str:
        self.script.write_words(self._scratch, values, width, at)
        return f"{self._scratch}+{at}" if at else self._scratch

    def read_back(self, width: int, *offsets: int) -> None:
        self.script.read(self._scratch, *(f"{at}:{width}" for at in offsets))

    def layout(self, file: File, space: Space, start: int, size: int, rows: int = 12) -> None:
        call = "XE_VM_QUERY_MEM_RANGE_ATTRS"
        head: dict[str, Value] = {"vm_id": space.slot, "start": start, "range": size}
        show = ["num_mem_ranges", "sizeof_mem_range_attr"]
        self.script.ioctl(file.slot, call, head, show=show)
        words = self.numbers([0] * (8 * rows), 8)
        more: dict[str, Value] = {
            "num_mem_ranges": rows, "sizeof_mem_range_attr": 64, "vector_of_mem_attr": words,
        }  # fmt: skip
        self.script.ioctl(file.slot, call, {**head, **more}, show=["num_mem_ranges"])
        fields = [f"{64 * i + at}:{width}" for i in range(rows) for at, width in common.ROW]
        self.script.read(self._scratch, *fields)

    def operation(self, file: File, space: Space, data: bytes) -> dict[str, Value]:
        """One operation of a bind: kind, object, place, size, offset, flags."""
        kind, which, page, pages, offset, more = data
        at = BASE + 4096 * (page % WINDOW_PAGES)
        if page >= 0xFC:
            at += (1, 512, 1 << 47, 1 << 48)[page - 0xFC]
        size = 4096 * (1 + pages % 16 if pages < 0xF8 else (0, 512, 31, 64)[pages % 4])
        index = (2, 1, 2, 4, 1, 2, 0, 5)[more % 8]
        flags = 1 if more & 0x30 == 0x30 else 0
        verb = kind % 8
        if verb == 4:
            return common.op_fields(at, size, op=common.OP_UNMAP)
        if verb == 5:
            if flags:
                space.touchable = False
            return common.op_fields(at, size, flags=4 | flags, pat_index=index)
        if verb == 6:
            if flags or offset >= 0xE0:
                space.touchable = False
            address = f"{self.memory}+{4096 * (offset % 16)}"
            size = min(size, 4096 * 16)
            return common.op_fields(
                at, size, op=common.OP_USERPTR, userptr=address, flags=flags, pat_index=index
            )
        if verb == 7 and kind >= 0xC0:
            region = (0, 1, 0xFFFFFFFF, 5)[more % 4]
            prefetch: dict[str, Value] = {"prefetch_mem_region_instance": region}
            return common.op_fields(at, size, op=common.OP_PREFETCH, **prefetch)
        if flags:
            space.touchable = False
        if more >= 0xF8:
            flags |= (2, 8, 0x20, 0x40)[more % 4]
        return common.op_fields(
            at, size, self.object(file, which), obj_offset=4096 * (offset % 32), flags=flags,
            pat_index=index,
        )  # fmt: skip

    def sync(self, file: File, byte: int) -> tuple[dict[str, Value], Callable[[], None]]:
        """The sync fields of a bind or exec, and the wait after it."""
        if byte % 4 < 2:
            return {}, lambda: None
        if byte % 4 == 2 or not file.syncobjs:
            return file.fence.arm(), lambda: self.wait_fence(file)
        syncobj = file.syncobjs[byte // 4 % len(file.syncobjs)]
        point = (0, 0, 0, byte)[byte // 16 % 4]
        fields: dict[str, Value] = {
            "type": 1 if point else 0, "flags": 1, "handle": syncobj, "timeline_value": point,
        }  # fmt: skip
        where = self.arguments("drm_xe_sync", 48, fields, 0x8000)
        return {"num_syncs": 1, "syncs": where}, lambda: self.wait_syncobj(file, syncobj, point)

    def wait_fence(self, file: File) -> None:
        self.script.if_done()
        file.fence.wait(file.slot)

    def wait_syncobj(self, file: File, syncobj: Value, point: int, seconds: float = 5) -> None:
        handles = self.numbers([syncobj], 4, 0x9000)
        fields: dict[str, Value] = {
            "handles": handles, "count_handles": 1, "timeout_nsec": f"@{int(seconds * SECOND)}",
        }  # fmt: skip
        if point:
            fields["points"] = self.numbers([point], 8, 0x9100)
        call = "SYNCOBJ_TIMELINE_WAIT" if point else "SYNCOBJ_WAIT"
        self.script.if_done()
        self.script.ioctl(file.slot, call, fields)

    def view(self, file: File, thing: Object) -> str:
        if not thing.views:
            fields: dict[str, Value] = {"handle": thing.slot}
            thing.offset = self.script.ioctl(file.slot, "XE_GEM_MMAP_OFFSET", fields, keep="offset")
            thing.views.append(self.script.mmap(4096 * thing.pages, file.slot, thing.offset))
        return thing.views[-1]

    def finish(self) -> None:
        """Everything that is left, read back: mappings, bytes, descriptors."""
        for file in self.files:
            for space in file.spaces:
                self.layout(file, space, 0, 1 << 47, 24)
            for thing in file.objects[:4]:
                if thing.views:
                    for page in {0, thing.pages // 2, thing.pages - 1}:
                        self.script.load(thing.views[0], 4096 * page, 8)
        self.script.read(self.memory, *(f"{4096 * page}:8" for page in range(16)))
