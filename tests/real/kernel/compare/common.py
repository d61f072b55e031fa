"""What scripts begin with: a file, objects, address spaces, queues and fenced binds."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from .script import Script, Value

SYSTEM = 1
VRAM = 2
WRITE_BACK = 1
WRITE_COMBINED = 2
KIB, MIB = 1 << 10, 1 << 20
PAT_CACHED = 2
"""A page-attribute index that snoops the CPU's caches: legal for every object on every platform."""
PAT_UNCACHED = 0
SECOND = 1_000_000_000

OP_MAP, OP_UNMAP, OP_USERPTR, OP_UNMAP_ALL, OP_PREFETCH = range(5)


class Platform:
    """What the scripts must know of the device."""

    def __init__(self, name: str, peers: bool = True) -> None:
        self.name = name
        self.peers = peers
        """Where there are two devices: whether they reach each other's memory."""
        self.has_vram = name == "bmg"

    @property
    def mock_profile(self) -> str:
        """The mock's nearest device: it has no Panther Lake."""
        return "lnl" if self.name == "ptl" else self.name

    @property
    def placements(self) -> Sequence[int]:
        return (SYSTEM, VRAM, SYSTEM | VRAM) if self.has_vram else (SYSTEM,)


def gem_fields(size: int = 64 * KIB, placement: int = SYSTEM, **more: Value) -> dict[str, Value]:
    caching = WRITE_COMBINED if placement & VRAM else WRITE_BACK
    return {"size": size, "placement": placement, "cpu_caching": caching, **more}


def gem(
    script: Script, fd: str, size: int = 64 * KIB, placement: int = SYSTEM, **more: Value
) -> str:
    fields = gem_fields(size, placement, **more)
    return script.ioctl(fd, "XE_GEM_CREATE", fields, keep="handle", show=["handle"])


def vm(script: Script, fd: str, flags: int = 0) -> str:
    return script.ioctl(fd, "XE_VM_CREATE", {"flags": flags}, keep="vm_id", show=["vm_id"])


def op_fields(
    addr: Value = 0x100000,
    size: Value = 64 * KIB,
    obj: Value = 0,
    op: int = OP_MAP,
    **more: Value,
) -> dict[str, Value]:
    return {"obj": obj, "pat_index": PAT_CACHED, "range": size, "addr": addr, "op": op, **more}


def single(fields: Mapping[str, Value]) -> dict[str, Value]:
    """The fields of a VM_BIND with one inline operation."""
    return {"num_binds": 1, **{f"bind.{name}": value for name, value in fields.items()}}


class Fence:
    """A user fence of our own memory: `sync` for a bind, `wait` for its completion."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.word = script.buffer(4096)
        self.sync = script.buffer(4096)
        self._value = 0

    def arm(self) -> dict[str, Value]:
        """The fields of a bind or exec that will signal the fence."""
        self._value += 1
        fields: dict[str, Value] = {
            "type": 2, "flags": 1, "addr": self.word, "timeline_value": self._value,
        }  # fmt: skip
        self._script.write(self.sync, "drm_xe_sync", fields)
        return {"num_syncs": 1, "syncs": self.sync}

    def wait(self, fd: str, queue: Value = 0, seconds: float = 5.0) -> None:
        fields: dict[str, Value] = {
            "addr": self.word, "op": 0, "value": self._value, "mask": 2**64 - 1,
            "timeout": int(seconds * SECOND), "exec_queue_id": queue,
        }  # fmt: skip
        self._script.ioctl(fd, "XE_WAIT_USER_FENCE", fields)


def bind(
    script: Script, fd: str, space: Value, fields: Mapping[str, Value], fence: Fence | None = None
) -> None:
    """One operation; with a fence it is waited for."""
    more = fence.arm() if fence else {}
    script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(fields), **more})
    if fence:
        fence.wait(fd)


def bind_array(
    script: Script,
    fd: str,
    space: Value,
    operations: Sequence[Mapping[str, Value]],
    fence: Fence | None = None,
) -> None:
    vector = script.buffer(max(4096, 80 * len(operations)))
    for index, fields in enumerate(operations):
        script.write(vector, "drm_xe_vm_bind_op", fields, at=80 * index)
    more = fence.arm() if fence else {}
    header: dict[str, Value] = {
        "vm_id": space, "num_binds": len(operations), "vector_of_binds": vector,
    }  # fmt: skip
    script.ioctl(fd, "XE_VM_BIND", {**header, **more})
    if fence:
        fence.wait(fd)


def layout(script: Script, fd: str, space: Value, rows: int = 16) -> None:
    """Prints the address space as the kernel reports it: start, end and page attributes."""
    head: dict[str, Value] = {"vm_id": space, "start": 0, "range": 1 << 47}
    call = "XE_VM_QUERY_MEM_RANGE_ATTRS"
    script.ioctl(fd, call, head, show=["num_mem_ranges", "sizeof_mem_range_attr"])
    table = script.buffer(64 * rows)
    more: dict[str, Value] = {
        "num_mem_ranges": rows, "sizeof_mem_range_attr": 64, "vector_of_mem_attr": table,
    }  # fmt: skip
    script.ioctl(fd, call, {**head, **more}, show=["num_mem_ranges"])
    words = [f"{64 * i + offset}:{width}" for i in range(rows) for offset, width in ROW]
    script.read(table, *words)


ROW = ((8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (40, 4))


def queue(script: Script, fd: str, space: Value, engine_class: int = 1, **more: Value) -> str:
    """An exec queue on instance 0 of a class of GT 0 (copy by default)."""
    instance = script.buffer(4096)
    script.write(instance, "drm_xe_engine_class_instance", {"engine_class": engine_class})
    fields: dict[str, Value] = {
        "width": 1, "num_placements": 1, "vm_id": space, "instances": instance, **more,
    }  # fmt: skip
    return script.ioctl(
        fd, "XE_EXEC_QUEUE_CREATE", fields, keep="exec_queue_id", show=["exec_queue_id"]
    )


def cpu_map(script: Script, fd: str, handle: Value, size: int) -> str:
    offset = script.ioctl(fd, "XE_GEM_MMAP_OFFSET", {"handle": handle}, keep="offset")
    return script.mmap(size, fd, offset)


def export(script: Script, fd: str, handle: Value, flags: int = 0x80002) -> str:
    return script.ioctl(fd, "PRIME_HANDLE_TO_FD", {"handle": handle, "flags": flags}, keep="fd")


def import_fd(script: Script, fd: str, dma_buf: Value) -> str:
    return script.ioctl(fd, "PRIME_FD_TO_HANDLE", {"fd": dma_buf}, keep="handle", show=["handle"])


def store_dwords(address: int, values: Sequence[int]) -> list[int]:
    """MI_STORE_DATA_IMM of each value at ascending addresses."""
    words: list[int] = []
    for index, value in enumerate(values):
        at = address + 4 * index
        words += [0x20 << 23 | 2, at & 0xFFFFFFFF, at >> 32, value]
    return words


def copy_bytes(target: int, source: int, size: int) -> list[int]:
    """MEM_COPY in linear byte mode."""
    return [
        2 << 29 | 0x5A << 22 | 8, size - 1, 0, 0, 0, source & 0xFFFFFFFF, source >> 32,
        target & 0xFFFFFFFF, target >> 32, 3 << 28 | 3 << 3,
    ]  # fmt: skip


def fill_bytes(target: int, value: int, size: int) -> list[int]:
    """MEM_SET in linear mode."""
    return [
        2 << 29 | 0x5B << 22 | 5, size - 1, 0, 0, target & 0xFFFFFFFF, target >> 32,
        value << 24 | 3 << 3,
    ]  # fmt: skip


BATCH_END = 0x0A << 23


def write_batch(script: Script, address: str, words: Sequence[int]) -> None:
    """Stores a batch and its end through a CPU mapping."""
    data = struct.pack(f"<{len(words) + 1}I", *words, BATCH_END)
    data += bytes(-len(data) % 8)
    for at in range(0, len(data), 8):
        script.store(address, at, int.from_bytes(data[at : at + 8], "little"), 8)
