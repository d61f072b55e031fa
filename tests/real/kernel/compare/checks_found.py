"""Rows for ever: what random programs found, and a fixed lot of random programs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from .common import (
    KIB,
    OP_UNMAP,
    OP_UNMAP_ALL,
    OP_USERPTR,
    Fence,
    Platform,
    bind,
    cpu_map,
    export,
    gem,
    import_fd,
    layout,
    op_fields,
    queue,
    vm,
)
from .program_steps import program
from .programs import STEP_BYTES
from .script import Script, Value

BASE = 0x100000
PROGRAMS = 200


def _userptr(script: Script) -> tuple[str, str]:
    """A file and a space in it, with 16 pages of the program's own memory at BASE."""
    fd = script.open()
    space = vm(script, fd)
    memory = script.buffer(64 * KIB)
    bind(script, fd, space, op_fields(BASE, op=OP_USERPTR, userptr=memory), Fence(script))
    return fd, space


def advised_userptrs(platform: Platform) -> Iterator[Script]:
    """A userptr is not advised in part: the driver looks for its memory at address 0 then."""
    for kind, value in ((0, 0), (1, 1), (1, 2), (1, 3), (2, 1), (3, 0)):
        for first, count in ((0, 16), (0, 4), (4, 4), (12, 8), (12, 4), (-4, 8), (16, 4)):
            script = Script(
                f"found/advise-userptr/type={kind}/value={value}/at={first}/pages={count}"
            )
            fd, space = _userptr(script)
            names = ("preferred_mem_loc.devmem_fd", "atomic.val", "pat_index.val")
            name = (*names, "purge_state_val.val")[kind]
            fields: dict[str, Value] = {
                "vm_id": space, "start": BASE + 4 * KIB * first, "range": 4 * KIB * count,
                "type": kind, name: value,
            }  # fmt: skip
            script.ioctl(fd, "XE_MADVISE", fields)
            layout(script, fd, space, 6)
            yield script


def offsets_of_the_closed(platform: Platform) -> Iterator[Script]:
    """An mmap offset after the handle: EACCES as long as anything keeps the object."""
    for keeper in ("view", "dma-buf", "import", "mapping", "nothing"):
        for back in (False, True):
            script = Script(f"found/offset-after-close/kept-by={keeper}/back={back}")
            one, other = script.open(), script.open()
            handle = gem(script, one)
            shared = export(script, one, handle) if keeper != "mapping" or back else ""
            offset = script.ioctl(one, "XE_GEM_MMAP_OFFSET", {"handle": handle}, keep="offset")
            if keeper == "view":
                script.mmap(64 * KIB, one, offset)
            if keeper == "import":
                import_fd(script, other, shared)
            if keeper == "mapping":
                space = vm(script, one)
                bind(script, one, space, op_fields(BASE, obj=handle), Fence(script))
            if shared and (keeper == "import" or (not back and keeper != "dma-buf")):
                script.close(shared)
            script.ioctl(one, "GEM_CLOSE", {"handle": handle})
            for fd in (one, other):
                for size in (64 * KIB, 128 * KIB):
                    script.mmap(size, fd, offset)
            if back and keeper != "import":
                again = import_fd(script, one, shared)
                view = cpu_map(script, one, again, 64 * KIB)
                script.store(view, 8, 5)
                second = script.mmap(64 * KIB, one, offset)
                script.load(second, 8)
            yield script


def foreign_private(platform: Platform) -> Iterator[Script]:
    """An object that belongs to one space is bound in another: forbidden, and nobody looks."""
    cases = ("live", "destroyed", "destroyed-with-queue", "number-taken", "mapped-and-destroyed")
    for op, case in itertools.product(("map", "unmap-all"), cases):
        for mode in (0, 2):
            script = Script(f"found/foreign-private/{op}/mode={mode}/{case}")
            fd = script.open()
            space = vm(script, fd, mode)
            if "queue" in case:
                queue(script, fd, space)
            handle = gem(script, fd, 4 * KIB, platform.placements[-1], vm_id=space)
            other = vm(script, fd, mode) if case != "number-taken" else ""
            if "mapped" in case:
                bind(script, fd, space, op_fields(BASE, 4 * KIB, handle), Fence(script))
            if case != "live":
                script.ioctl(fd, "XE_VM_DESTROY", {"vm_id": space})
            other = other or vm(script, fd, mode)
            fields = op_fields(BASE, 4 * KIB, handle)
            if op == "unmap-all":
                fields = op_fields(0, 0, handle, OP_UNMAP_ALL)
            bind(script, fd, other, fields)
            layout(script, fd, other, 2)
            yield script


def views_of_what_was_offered(platform: Platform) -> Iterator[Script]:
    """A view of an object that needs not be kept: pages that were touched before stay."""
    for placement in platform.placements:
        script = Script(f"found/view-of-what-was-offered/placement={placement}")
        fd = script.open()
        space = vm(script, fd)
        handle = gem(script, fd, 2 << 20, placement)
        bind(script, fd, space, op_fields(BASE, 64 * KIB, handle), Fence(script))
        view = cpu_map(script, fd, handle, 2 << 20)
        script.store(view, 0, 5)
        fields: dict[str, Value] = {
            "vm_id": space, "start": BASE, "range": 64 * KIB, "type": 3, "purge_state_val.val": 1,
        }  # fmt: skip
        script.ioctl(fd, "XE_MADVISE", fields)
        script.load(view, 0)
        script.load(view, 1 << 20)
        script.ioctl(fd, "XE_MADVISE", {**fields, "purge_state_val.val": 0})
        script.load(view, 1 << 20)
        yield script


def programs(platform: Platform) -> Iterator[Script]:
    """Random programs that are the same for ever (until their steps mean something else)."""
    for number in range(PROGRAMS):
        generator = random.Random(number)
        steps = [generator.randbytes(STEP_BYTES) for _ in range(generator.randrange(6, 26))]
        yield program(f"found/program/{number}", platform, steps)


def unmapped_userptr(platform: Platform) -> Iterator[Script]:
    script = Script("found/advise-what-is-left-of-a-userptr")
    fd, space = _userptr(script)
    bind(script, fd, space, op_fields(BASE + 8 * KIB, 4 * KIB, op=OP_UNMAP), Fence(script))
    for start, size in (
        (0, 8 * KIB),
        (12 * KIB, 52 * KIB),
        (12 * KIB, 4 * KIB),
        (4 * KIB, 12 * KIB),
    ):
        fields: dict[str, Value] = {
            "vm_id": space, "start": BASE + start, "range": size, "type": 1, "atomic.val": 2,
        }  # fmt: skip
        script.ioctl(fd, "XE_MADVISE", fields)
        layout(script, fd, space, 6)
    yield script


def point_in_a_sync_file(platform: Platform) -> Iterator[Script]:
    """The fence of a timeline's point, put into another syncobj: it still says its number."""
    for point in (0, 55):
        script = Script(f"found/point-in-a-sync-file/point={point}")
        fd = script.open()
        space = vm(script, fd)
        line, other = (script.ioctl(fd, "SYNCOBJ_CREATE", keep="handle") for _ in range(2))
        words = script.buffer(4096)
        sync: dict[str, Value] = {
            "type": 1 if point else 0, "flags": 1, "handle": line, "timeline_value": point,
        }  # fmt: skip
        script.write(words, "drm_xe_sync", sync)
        script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, "num_syncs": 1, "syncs": words})
        file = script.ioctl(fd, "SYNCOBJ_HANDLE_TO_FD", {"handle": line, "flags": 1}, keep="fd")
        fields: dict[str, Value] = {"fd": file, "handle": other, "flags": 1}
        script.ioctl(fd, "SYNCOBJ_FD_TO_HANDLE", fields)
        for handle in (line, other):
            script.write_words(words, [handle], 4)
            script.write_words(words, [99], 8, 8)
            fields = {"handles": words, "points": f"{words}+8", "count_handles": 1}
            script.ioctl(fd, "SYNCOBJ_QUERY", fields)
            script.read(words, "8:8")
        yield script


def number_zero(platform: Platform) -> Iterator[Script]:
    """Destroying number 0 makes it a number like others, if there is any other: the next one is 0.

    So with queues and syncobjs (both an xarray that is erased before anything is looked up), not
    with spaces and objects. C: create, D: destroy that number, U: use it.
    """
    plans = (
        "C D0 C C U0 D0 C C", "D0 C C", "C D1 D0 C C", "C D5 C C", "C C D0 D0 C C", "C D64 C",
        "C D0 C D1 C D0 D1 C C", "C C D0 D1 D2 C C C", "C D0 D1 C C C", "C D0 C D1 D0 D0 C C",
    )  # fmt: skip
    kinds = {
        "queue": ("XE_EXEC_QUEUE_DESTROY", "exec_queue_id"), "space": ("XE_VM_DESTROY", "vm_id"),
        "syncobj": ("SYNCOBJ_DESTROY", "handle"), "object": ("GEM_CLOSE", "handle"),
    }  # fmt: skip
    for kind, (destroy, name) in kinds.items():
        for plan in plans:
            script = Script(f"found/number-zero/{kind}/{plan.replace(' ', '-')}")
            fd = script.open()
            space = vm(script, fd)
            for word in plan.split():
                number = int(word[1:] or 0)
                if word == "C":
                    create_one(script, fd, kind, space)
                elif word[0] == "D":
                    # The spaces begin with one that is already there.
                    script.ioctl(fd, destroy, {name: number})
                elif kind == "queue":
                    fields: dict[str, Value] = {"exec_queue_id": number}
                    script.ioctl(fd, "XE_EXEC_QUEUE_GET_PROPERTY", fields, show=["value"])
                    script.ioctl(fd, "XE_EXEC", fields)
                elif kind == "syncobj":
                    script.ioctl(fd, "SYNCOBJ_HANDLE_TO_FD", {"handle": number}, keep="fd")
            yield script


def create_one(script: Script, fd: str, kind: str, space: str) -> None:
    if kind == "queue":
        queue(script, fd, space)
    elif kind == "space":
        vm(script, fd)
    elif kind == "object":
        gem(script, fd)
    else:
        script.ioctl(fd, "SYNCOBJ_CREATE", keep="handle", show=["handle"])


FAMILIES = (
    views_of_what_was_offered,
    foreign_private,
    number_zero,
    point_in_a_sync_file,
    advised_userptrs,
    offsets_of_the_closed,
    unmapped_userptr,
    programs,
)
