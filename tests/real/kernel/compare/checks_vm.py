"""Address spaces: VM_CREATE, VM_DESTROY, VM_BIND's checks, operations and flags."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from .common import (
    KIB,
    OP_MAP,
    OP_PREFETCH,
    OP_UNMAP,
    OP_UNMAP_ALL,
    OP_USERPTR,
    SYSTEM,
    Fence,
    Platform,
    bind,
    bind_array,
    gem,
    layout,
    op_fields,
    queue,
    single,
    vm,
)
from .script import Script, Value, sweep

OPERATIONS = ("map", "unmap", "userptr", "unmap-all", "prefetch")


def create(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        return script.open(), {}

    wrong: dict[str, list[Value]] = {
        "extensions": [0x10], "flags": [0x10, 0x80000000], "vm_id": [3], "reserved[0]": [1],
        "reserved[1]": [1],
    }  # fmt: skip
    yield from sweep("vm-create", "XE_VM_CREATE", setup, wrong, ["vm_id", "flags"])
    for flags in range(32):
        script = Script(f"vm-create/mode={flags}")
        fd = script.open()
        fields: dict[str, Value] = {"flags": flags}
        script.ioctl(fd, "XE_VM_CREATE", fields, show=["vm_id"], always=["flags"])
        yield script


def destroy(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"vm_id": vm(script, fd)}

    wrong: dict[str, list[Value]] = {
        "vm_id": [0, 2], "pad": [1], "reserved[0]": [1], "reserved[1]": [1],
    }  # fmt: skip
    yield from sweep("vm-destroy", "XE_VM_DESTROY", setup, wrong)
    script = Script("vm-destroy/ids-are-reused")
    fd = script.open()
    first = vm(script, fd)
    vm(script, fd)
    script.ioctl(fd, "XE_VM_DESTROY", {"vm_id": first})
    script.ioctl(fd, "XE_VM_DESTROY", {"vm_id": first})
    vm(script, fd)
    yield script
    script = Script("vm-destroy/other-file")
    one, other = script.open(), script.open()
    space = vm(script, one)
    script.ioctl(other, "XE_VM_DESTROY", {"vm_id": space})
    yield script
    script = Script("vm-destroy/mapped")
    fd = script.open()
    space = vm(script, fd)
    handle = gem(script, fd)
    bind(script, fd, space, op_fields(obj=handle), Fence(script))
    script.ioctl(fd, "XE_VM_DESTROY", {"vm_id": space})
    script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(op_fields(obj=handle))})
    script.ioctl(fd, "GEM_CLOSE", {"handle": handle})
    yield script


def _base(
    script: Script, op: int, placement: int = SYSTEM, flags: int = 0
) -> tuple[str, dict[str, Value]]:
    """A space with the object mapped where the operation will act; the fields of the call."""
    fd = script.open()
    space = vm(script, fd, flags)
    handle = gem(script, fd, 64 * KIB, placement)
    fields = op_fields(obj=handle if op in (OP_MAP, OP_UNMAP_ALL) else 0, op=op)
    if op != OP_MAP:
        bind(script, fd, space, op_fields(obj=handle), Fence(script))
    if op == OP_USERPTR:
        fields["userptr"] = script.buffer(64 * KIB)
    if op == OP_UNMAP_ALL:
        fields.update({"range": 0, "addr": 0})
    return fd, {"vm_id": space, **single(fields)}


def bind_checks(platform: Platform) -> Iterator[Script]:
    for op, title in enumerate(OPERATIONS):

        def setup(script: Script, op: int = op) -> tuple[str, dict[str, Value]]:
            return _base(script, op)

        wrong: dict[str, list[Value]] = {
            "extensions": [0x10], "vm_id": [0, 9], "exec_queue_id": [9], "pad": [1], "pad2": [1],
            "num_binds": [0, 2], "num_syncs": [1025, 1], "reserved[0]": [1], "reserved[1]": [1],
            "bind.extensions": [1], "bind.obj": [9, 0, 1], "bind.pat_index": [28, 16, 0, 9, 1],
            "bind.pad": [1], "bind.obj_offset": [1, 4096, 2**63, 64 * KIB],
            "bind.range": [0, 1, 128 * KIB, 2**48, 2**64 - 4096],
            "bind.addr": [1, 2**48, 2**48 - 4096, 2**63, 0],
            "bind.op": [5, 0xFFFFFFFF], "bind.flags": [0x100, 0x80000000],
            "bind.prefetch_mem_region_instance": [7, 1, 0xFFFFFFFF], "bind.pad2": [1],
            "bind.reserved[0]": [1], "bind.reserved[1]": [1], "bind.reserved[2]": [1],
        }  # fmt: skip

        def after(script: Script, fd: str) -> None:
            layout(script, fd, 1, 4)

        yield from sweep(f"bind/{title}", "XE_VM_BIND", setup, wrong, after=after)


def bind_flags(platform: Platform) -> Iterator[Script]:
    for mode in (0, 1, 2, 6):
        for op, title in enumerate(OPERATIONS):
            for flag in (0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 5, 0x24, 0x60):
                for obj in (0, 1) if op == OP_MAP else (None,):
                    name = f"bind-flags/mode={mode}/{title}/flags={flag:#x}"
                    script = Script(name if obj is None else f"{name}/obj={obj}")
                    fd, fields = _base(script, op, flags=mode)
                    if obj == 0:
                        fields["bind.obj"] = 0
                    script.ioctl(fd, "XE_VM_BIND", {**fields, "bind.flags": flag})
                    layout(script, fd, 1, 4)
                    yield script


def mirror_offset(platform: Platform) -> Iterator[Script]:
    """Intel's driver undoes a mapping so, with the object's offset left in: does it work?"""
    for offset in (0, 4096):
        script = Script(f"bind-mirror/offset={offset:#x}")
        fd, fields = _base(script, OP_MAP, flags=6)
        fields |= {"bind.range": 4096, "bind.obj_offset": offset}
        script.ioctl(fd, "XE_VM_BIND", fields)
        mirror = {"bind.obj": 0, "bind.flags": 0x20}
        script.ioctl(fd, "XE_VM_BIND", {**fields, **mirror})
        layout(script, fd, 1, 4)
        yield script


def pat(platform: Platform) -> Iterator[Script]:
    for placement, index in itertools.product(platform.placements, range(34)):
        for caching in (1, 2):
            script = Script(f"bind-pat/placement={placement}/caching={caching}/index={index}")
            fd = script.open()
            space = vm(script, fd)
            fields = {"size": 64 * KIB, "placement": placement, "cpu_caching": caching}
            handle = script.ioctl(fd, "XE_GEM_CREATE", fields, keep="handle", show=["handle"])
            for obj, op in ((handle, OP_MAP), (0, OP_UNMAP), (handle, OP_UNMAP_ALL)):
                more = {"addr": 0, "range": 0} if op == OP_UNMAP_ALL else {}
                operation = {**op_fields(obj=obj, op=op), "pat_index": index, **more}
                script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(operation)})
            yield script
    for index in range(34):
        script = Script(f"bind-pat/no-compression/index={index}")
        fd = script.open()
        space = vm(script, fd)
        handle = gem(script, fd, flags=8, cpu_caching=2)
        operation = {**op_fields(obj=handle), "pat_index": index}
        script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(operation)})
        yield script
        script = Script(f"bind-pat/userptr/index={index}")
        fd = script.open()
        space = vm(script, fd)
        memory = script.buffer(64 * KIB)
        operation = {**op_fields(op=OP_USERPTR, userptr=memory), "pat_index": index}
        script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(operation)})
        operation = {**op_fields(flags=4), "pat_index": index}
        script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(operation)})
        yield script


def arrays(platform: Platform) -> Iterator[Script]:
    """Which operation's error wins, that nothing of a failed array stays, and what order means."""
    bad: dict[str, dict[str, Value]] = {
        "good": {}, "flag": {"flags": 0x100}, "op": {"op": 7}, "pat": {"pat_index": 40},
        "handle": {"obj": 99}, "range": {"range": 128 * KIB}, "align": {"addr": 1},
        "top": {"addr": 2**48}, "coherency": {"pat_index": 0},
    }  # fmt: skip
    for one, other in itertools.product(bad, bad):
        script = Script(f"bind-array/{one}+{other}")
        fd = script.open()
        space = vm(script, fd)
        handle = gem(script, fd)
        bind(script, fd, space, op_fields(0x400000, obj=handle), Fence(script))
        first = {**op_fields(0x400000, 16 * KIB, handle, obj_offset=16 * KIB), **bad[one]}
        second = {**op_fields(0x500000, obj=handle), **bad[other]}
        bind_array(script, fd, space, [first, second])
        layout(script, fd, space, 6)
        yield script
    for count in (0, 1, 2, 3):
        script = Script(f"bind-array/vector-unreadable/count={count}")
        fd = script.open()
        space = vm(script, fd)
        fields: dict[str, Value] = {"vm_id": space, "num_binds": count, "vector_of_binds": 0x10}
        script.ioctl(fd, "XE_VM_BIND", fields)
        yield script
    for count in (0x1000000, 0x1999999, 0x199999A, 0xFFFFFFFF):
        script = Script(f"bind-array/count={count:#x}")
        fd = script.open()
        space = vm(script, fd)
        fields = {"vm_id": space, "num_binds": count, "vector_of_binds": script.buffer(4096)}
        script.ioctl(fd, "XE_VM_BIND", fields)
        yield script
    script = Script("bind-array/later-sees-earlier")
    fd = script.open()
    space = vm(script, fd)
    handle = gem(script, fd)
    operations = [
        op_fields(0x100000, obj=handle),
        op_fields(0x104000, 8 * KIB, op=OP_UNMAP),
        op_fields(0x105000, 4 * KIB, handle, obj_offset=60 * KIB),
        op_fields(0x108000, 4 * KIB, flags=4),
        op_fields(0x200000, obj=handle),
        op_fields(0x300000, obj=handle),
    ]  # no UNMAP_ALL: see checks_map.random_maps
    bind_array(script, fd, space, operations, Fence(script))
    layout(script, fd, space)
    yield script


def queues(platform: Platform) -> Iterator[Script]:
    script = Script("bind-queue/kinds")
    fd = script.open()
    space, other = vm(script, fd), vm(script, fd)
    handle = gem(script, fd)
    bind_queue, copy_queue = queue(script, fd, space, 5), queue(script, fd, space, 1)
    foreign = queue(script, fd, other, 5)
    for chosen in (bind_queue, copy_queue, foreign, 99):
        fields = {"vm_id": space, "exec_queue_id": chosen, **single(op_fields(obj=handle))}
        script.ioctl(fd, "XE_VM_BIND", fields)
    exec_fields: dict[str, Value] = {"exec_queue_id": bind_queue, "num_batch_buffer": 1}
    script.ioctl(fd, "XE_EXEC", exec_fields)
    script.ioctl(fd, "XE_EXEC_QUEUE_DESTROY", {"exec_queue_id": bind_queue})
    fields = {"vm_id": space, "exec_queue_id": bind_queue, **single(op_fields(obj=handle))}
    script.ioctl(fd, "XE_VM_BIND", fields)
    yield script


def prefetch(platform: Platform) -> Iterator[Script]:
    for placement, region in itertools.product(platform.placements, (0, 1, 2, 7, 0xFFFFFFFF)):
        for addr, size in ((0x100000, 64 * KIB), (0x104000, 4 * KIB), (0x900000, 4 * KIB)):
            name = f"bind-prefetch/placement={placement}/region={region:#x}/at={addr:#x}"
            script = Script(name)
            fd = script.open()
            space = vm(script, fd)
            handle = gem(script, fd, 64 * KIB, placement)
            bind(script, fd, space, op_fields(obj=handle), Fence(script))
            more: dict[str, Value] = {"prefetch_mem_region_instance": region}
            fields = op_fields(addr, size, op=OP_PREFETCH, **more)
            script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(fields)})
            layout(script, fd, space, 4)
            yield script


FAMILIES = (
    create, destroy, bind_checks, bind_flags, mirror_offset, pat, arrays, queues, prefetch,
)  # fmt: skip
