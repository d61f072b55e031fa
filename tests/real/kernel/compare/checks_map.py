"""What mapping does to an address space: splits, replacements, aliases, read back row by row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from .common import (
    KIB,
    MIB,
    OP_UNMAP,
    OP_UNMAP_ALL,
    OP_USERPTR,
    Fence,
    Platform,
    bind,
    bind_array,
    gem,
    layout,
    op_fields,
    vm,
)
from .script import Script, Value, sweep

BASE = 0x100000


def splits(platform: Platform) -> Iterator[Script]:
    """One mapping of eight pages, hit by each kind of operation at each position and length."""
    kinds = ("map", "unmap", "null", "readonly")
    for kind, start, length in itertools.product(kinds, range(-1, 9), (1, 2, 5, 8, 10)):
        script = Script(f"split/{kind}/at={start}/pages={length}")
        fd = script.open()
        space = vm(script, fd)
        old, new = gem(script, fd, 32 * KIB), gem(script, fd, 64 * KIB)
        fence = Fence(script)
        bind(script, fd, space, op_fields(BASE, 32 * KIB, old), fence)
        addr, size = BASE + 4096 * start, 4096 * length
        fields = {
            "map": op_fields(addr, size, new, pat_index=1),
            "readonly": op_fields(addr, size, new, flags=1),
            "unmap": op_fields(addr, size, op=OP_UNMAP),
            "null": op_fields(addr, size, flags=4),
        }[kind]
        bind(script, fd, space, fields, fence)
        layout(script, fd, space, 4)
        bind(script, fd, space, op_fields(0, 0, old, OP_UNMAP_ALL), fence)
        layout(script, fd, space, 4)
        yield script


def neighbours(platform: Platform) -> Iterator[Script]:
    script = Script("map/neighbours-do-not-merge")
    fd = script.open()
    space = vm(script, fd)
    handle = gem(script, fd)
    fence = Fence(script)
    for page in (0, 1, 3, 2):
        fields = op_fields(BASE + 4096 * page, 4096, handle, obj_offset=4096 * page)
        bind(script, fd, space, fields, fence)
    layout(script, fd, space)
    bind(script, fd, space, op_fields(BASE, 16 * KIB, handle), fence)
    layout(script, fd, space)
    yield script

    script = Script("map/aliases-and-unmap-all")
    fd = script.open()
    one, other = vm(script, fd), vm(script, fd)
    handle, second = gem(script, fd), gem(script, fd)
    for index in range(4):
        bind(script, fd, one, op_fields(BASE + 0x20000 * index, obj=handle), fence := Fence(script))
    bind(script, fd, one, op_fields(0x800000, obj=second), fence)
    bind(script, fd, other, op_fields(BASE, obj=handle), fence)
    bind(script, fd, one, op_fields(0, 0, handle, OP_UNMAP_ALL), fence)
    bind(script, fd, one, op_fields(0, 0, handle, OP_UNMAP_ALL), fence)
    layout(script, fd, one)
    layout(script, fd, other)
    yield script

    script = Script("map/handle-closed-while-mapped")
    fd = script.open()
    space = vm(script, fd)
    handle = gem(script, fd)
    fence = Fence(script)
    bind(script, fd, space, op_fields(BASE, obj=handle), fence)
    script.ioctl(fd, "GEM_CLOSE", {"handle": handle})
    layout(script, fd, space, 4)
    bind(script, fd, space, op_fields(0, 0, handle, OP_UNMAP_ALL))
    bind(script, fd, space, op_fields(BASE + 4096, 4096, op=OP_UNMAP), fence)
    layout(script, fd, space, 4)
    yield script

    script = Script("map/ends-of-the-space")
    fd = script.open()
    space = vm(script, fd)
    handle = gem(script, fd)
    fence = Fence(script)
    top = 1 << 48
    for addr in (0, top - 64 * KIB):
        bind(script, fd, space, op_fields(addr, obj=handle), fence)
    bind(script, fd, space, op_fields(top - 60 * KIB, obj=handle))
    bind(script, fd, space, op_fields(top, 4096, handle))
    bind(script, fd, space, op_fields(0xFFFF800000000000, 4096, handle))
    bind(script, fd, space, op_fields(0, top, op=OP_UNMAP), fence)
    layout(script, fd, space, 4)
    yield script


def userptrs(platform: Platform) -> Iterator[Script]:
    for flags in (0, 1):
        for prot in (1, 3):
            script = Script(f"map/userptr/flags={flags}/prot={prot}")
            fd = script.open()
            space = vm(script, fd)
            memory = script.mmap(64 * KIB, -1, 0, prot, 0x22)
            fields = op_fields(BASE, op=OP_USERPTR, userptr=memory, flags=flags)
            bind(script, fd, space, fields)
            layout(script, fd, space, 4)
            yield script
    script = Script("map/userptr/unmapped-and-object-memory")
    fd = script.open()
    space = vm(script, fd)
    handle = gem(script, fd)
    offset = script.ioctl(fd, "XE_GEM_MMAP_OFFSET", {"handle": handle}, keep="offset")
    view = script.mmap(64 * KIB, fd, offset)
    gone = script.mmap(64 * KIB, -1, 0, 3, 0x22)
    script.munmap(gone, 64 * KIB)
    for address in (view, gone, 0x10000, 2**63, 2**64 - 4096):
        bind(script, fd, space, op_fields(BASE, op=OP_USERPTR, userptr=address))
    layout(script, fd, space, 4)
    yield script
    script = Script("map/userptr/split")
    fd = script.open()
    space = vm(script, fd)
    memory = script.buffer(64 * KIB)
    fence = Fence(script)
    bind(script, fd, space, op_fields(BASE, op=OP_USERPTR, userptr=memory), fence)
    bind(script, fd, space, op_fields(BASE + 8192, 4096, op=OP_UNMAP), fence)
    layout(script, fd, space, 4)
    yield script


def attributes(platform: Platform) -> Iterator[Script]:
    """VM_QUERY_MEM_RANGE_ATTRS and MADVISE."""

    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        space = vm(script, fd)
        fence = Fence(script)
        handle = gem(script, fd)
        bind(script, fd, space, op_fields(BASE, obj=handle), fence)
        bind(script, fd, space, op_fields(BASE + 0x20000, obj=handle), fence)
        table = script.buffer(4096)
        fields: dict[str, Value] = {
            "vm_id": space, "num_mem_ranges": 4, "start": 0, "range": 1 << 30,
            "sizeof_mem_range_attr": 64, "vector_of_mem_attr": table,
        }  # fmt: skip
        return fd, fields

    wrong: dict[str, list[Value]] = {
        "extensions": [1], "vm_id": [0, 9], "num_mem_ranges": [0, 1, 2], "start": [1, BASE + 4096],
        "range": [0, 1, 0x30000], "sizeof_mem_range_attr": [0, 32, 65],
        "vector_of_mem_attr": [0, 0x10], "reserved[0]": [1], "reserved[1]": [1],
    }  # fmt: skip
    show = ["num_mem_ranges", "sizeof_mem_range_attr"]
    yield from sweep("attrs", "XE_VM_QUERY_MEM_RANGE_ATTRS", setup, wrong, show)

    def advise(script: Script) -> tuple[str, dict[str, Value]]:
        fd, fields = setup(script)
        fields = {"vm_id": fields["vm_id"], "start": BASE, "range": 64 * KIB}
        return fd, fields

    common: dict[str, list[Value]] = {
        "extensions": [1], "vm_id": [0, 9], "start": [1, 0x900000], "range": [0, 1, 4096],
        "type": [4, 9], "reserved[0]": [1], "reserved[1]": [1],
    }  # fmt: skip
    special: tuple[tuple[str, dict[str, Value], dict[str, list[Value]]], ...] = (
        ("preferred", {"type": 0, "preferred_mem_loc.devmem_fd": 0xFFFFFFFF}, {
            "preferred_mem_loc.devmem_fd": [0xFFFFFFFE, 0, 5],
            "preferred_mem_loc.migration_policy": [2, 1],
            "preferred_mem_loc.region_instance": [1], "preferred_mem_loc.reserved": [1]}),
        ("atomic", {"type": 1, "atomic.val": 1}, {
            "atomic.val": [4, 0, 2, 3], "atomic.pad": [1], "atomic.reserved": [1]}),
        ("pat", {"type": 2, "pat_index.val": 2}, {
            "pat_index.val": [40, 16, 0], "pat_index.pad": [1], "pat_index.reserved": [1]}),
        ("purge", {"type": 3, "purge_state_val.val": 0}, {
            "purge_state_val.val": [2, 1], "purge_state_val.pad": [1],
            "purge_state_val.retained_ptr": [0x10, 0]}),
    )  # fmt: skip
    for title, right, wrong_more in special:

        def both(
            script: Script, right: dict[str, Value] = right, title: str = title
        ) -> tuple[str, dict[str, Value]]:
            fd, fields = advise(script)
            more = dict(right)
            if title == "purge":
                more["purge_state_val.retained_ptr"] = script.buffer(4096)
            return fd, {**fields, **more}

        def after(script: Script, fd: str) -> None:
            layout(script, fd, 1, 6)

        yield from sweep(
            f"madvise-{title}", "XE_MADVISE", both, {**common, **wrong_more}, after=after
        )


def properties(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"vm_id": vm(script, fd)}

    wrong: dict[str, list[Value]] = {
        "extensions": [1], "vm_id": [0, 9], "property": [1], "size": [48, 1], "pad": [1],
        "data": [0x10], "reserved[0]": [1], "reserved[1]": [1], "reserved[2]": [1],
    }  # fmt: skip
    yield from sweep("vm-property", "XE_VM_GET_PROPERTY", setup, wrong, ["size", "value"])


def big_arrays(platform: Platform) -> Iterator[Script]:
    for count in (2, 16, 200, 500):
        script = Script(f"bind-array/many={count}")
        fd = script.open()
        space = vm(script, fd)
        handle = gem(script, fd, 4 * MIB)
        operations = [
            op_fields(0x10000000 + 2 * MIB * index, 4096, handle, obj_offset=4096 * (index % 1024))
            for index in range(count)
        ]
        bind_array(script, fd, space, operations, Fence(script))
        head: dict[str, Value] = {"vm_id": space, "start": 0, "range": 1 << 47}
        script.ioctl(fd, "XE_VM_QUERY_MEM_RANGE_ATTRS", head, show=["num_mem_ranges"])
        yield script


def random_maps(seed: int, count: int, steps: int = 12) -> Iterator[Script]:
    """Random operations in a window of 32 pages over three objects, read back at the end.

    UNMAP_ALL is never part of an array: after an operation of the same array that replaced a
    mapping of the same object, driver 7.2.13 unmaps it a second time and corrupts its own lists.
    """
    for number in range(count):
        generator = random.Random(seed * 1_000_003 + number)
        script = Script(f"random-map/{seed}/{number}")
        fd = script.open()
        space = vm(script, fd, generator.choice((0, 0, 1, 2)))
        objects = [gem(script, fd, 4096 * pages) for pages in (1, 8, 32)]
        sizes = (1, 8, 32)
        fence = Fence(script)
        operations: list[dict[str, Value]] = []
        for _ in range(steps):
            which = generator.randrange(3)
            pages = generator.randint(1, sizes[which] + generator.choice((0, 0, 0, 1)))
            first = generator.randint(0, max(0, sizes[which] - pages))
            at = BASE + 4096 * generator.randrange(32)
            kind = generator.choice(("map", "map", "unmap", "null", "all", "readonly"))
            if kind == "unmap":
                fields = op_fields(at, 4096 * generator.randint(1, 16), op=OP_UNMAP)
            elif kind == "null":
                fields = op_fields(at, 4096 * pages, flags=4)
            elif kind == "all":
                fields = op_fields(0, 0, objects[which], OP_UNMAP_ALL)
            else:
                fields = op_fields(
                    at, 4096 * pages, objects[which], obj_offset=4096 * first,
                    flags=1 if kind == "readonly" else 0, pat_index=generator.choice((1, 2, 4)),
                )  # fmt: skip
            operations.append(fields)
        while operations:
            chunk = operations[: generator.choice((1, 1, 3))]
            if any(fields["op"] == OP_UNMAP_ALL for fields in chunk):
                chunk = chunk[:1]
            del operations[: len(chunk)]
            if len(chunk) == 1:
                bind(script, fd, space, chunk[0], fence if generator.random() < 0.2 else None)
            else:
                bind_array(script, fd, space, chunk)
        bind(script, fd, space, op_fields(0x8000000, 4096, flags=4), fence)
        layout(script, fd, space, 24)
        yield script


def random_rows(platform: Platform) -> Iterator[Script]:
    yield from random_maps(1, 60)


FAMILIES = (
    splits, neighbours, userptrs, attributes, properties, big_arrays, random_rows,
)  # fmt: skip
