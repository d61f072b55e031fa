"""Queues, EXEC, user fences: what the GPU did is read back through CPU mappings."""

from __future__ import annotations

from collections.abc import Iterator

from .common import (
    BATCH_END,
    MIB,
    OP_UNMAP,
    SECOND,
    SYSTEM,
    VRAM,
    Fence,
    Platform,
    bind,
    copy_bytes,
    cpu_map,
    fill_bytes,
    gem,
    op_fields,
    queue,
    store_dwords,
    vm,
    write_batch,
)
from .script import Script, Value, sweep

BATCH, DATA = 0x100000, 0x200000


class Gpu:
    """A space with a batch object at BATCH, a data object at DATA, both CPU-mapped, and a queue."""

    def __init__(
        self, script: Script, placement: int = SYSTEM, engine_class: int = 1, flags: int = 0,
        node: int = 0, fd: str = "",
    ) -> None:  # fmt: skip
        self.script = script
        self.fd = fd or script.open(node)
        self.vm = vm(script, self.fd, flags)
        self.fence = Fence(script)
        self.batch_object = gem(script, self.fd, 0x10000)
        self.data_object = gem(script, self.fd, 0x10000, placement)
        self.batch = cpu_map(script, self.fd, self.batch_object, 0x10000)
        self.data = cpu_map(script, self.fd, self.data_object, 0x10000)
        bind(script, self.fd, self.vm, op_fields(BATCH, 0x10000, self.batch_object), self.fence)
        bind(script, self.fd, self.vm, op_fields(DATA, 0x10000, self.data_object), self.fence)
        self.queue = queue(script, self.fd, self.vm, engine_class)
        self.word = script.buffer(4096)

    def exec_fields(self, **more: Value) -> dict[str, Value]:
        """An EXEC whose user fence is the last qword of the data object."""
        sync = self.script.buffer(4096)
        fields: dict[str, Value] = {
            "type": 2, "flags": 1, "addr": DATA + 0xFFF8, "timeline_value": 0x1234,
        }  # fmt: skip
        self.script.write(sync, "drm_xe_sync", fields)
        return {
            "exec_queue_id": self.queue, "num_syncs": 1, "syncs": sync, "address": BATCH,
            "num_batch_buffer": 1, **more,
        }  # fmt: skip

    def wait(self, seconds: float = 5.0) -> None:
        """Waits for the user fence of `exec_fields` through the CPU mapping."""
        address = f"${int(self.data[1:])}"
        self.script.lines.append(f"A {address[1:]} {0xFFF8}")
        fields: dict[str, Value] = {
            "addr": "$254", "op": 0, "value": 0x1234, "mask": 2**64 - 1,
            "timeout": int(seconds * SECOND), "exec_queue_id": self.queue,
        }  # fmt: skip
        self.script.ioctl(self.fd, "XE_WAIT_USER_FENCE", fields)

    def run(self, words: list[int]) -> None:
        write_batch(self.script, self.batch, words)
        self.script.ioctl(self.fd, "XE_EXEC", self.exec_fields())
        self.wait()


def execution(platform: Platform) -> Iterator[Script]:
    for placement in platform.placements[:2]:
        for engine_class in (0, 1, 4):
            script = Script(f"exec/store/placement={placement}/class={engine_class}")
            gpu = Gpu(script, placement, engine_class)
            gpu.run(store_dwords(DATA, [0x11111111, 0x22222222]))
            for offset in (0, 4, 8):
                script.load(gpu.data, offset)
            yield script
        script = Script(f"exec/copy-and-fill/placement={placement}")
        gpu = Gpu(script, placement)
        for at in range(0, 64, 8):
            script.store(gpu.data, at, 0x0101010101010101 * (at // 8 + 1), 8)
        words = copy_bytes(DATA + 0x1000, DATA + 4, 100) + copy_bytes(DATA + 0x2FF0, DATA, 64)
        gpu.run(words + fill_bytes(DATA + 0x4001, 0xAB, 9))
        for offset in (0x1000, 0x1038, 0x1040, 0x2FF0, 0x3000, 0x3028, 0x4000, 0x4008):
            script.load(gpu.data, offset, 8)
        yield script


def faults(platform: Platform) -> Iterator[Script]:
    script = Script("exec/unmapped-batch")
    gpu = Gpu(script)
    script.ioctl(gpu.fd, "XE_EXEC", gpu.exec_fields(address=0x900000))
    gpu.wait()
    script.ioctl(gpu.fd, "XE_EXEC", gpu.exec_fields())
    fields: dict[str, Value] = {"exec_queue_id": gpu.queue, "property": 0}
    script.ioctl(gpu.fd, "XE_EXEC_QUEUE_GET_PROPERTY", fields, show=["value"])
    yield script

    script = Script("exec/readonly-target")
    gpu = Gpu(script)
    bind(script, gpu.fd, gpu.vm, op_fields(DATA, 0x10000, gpu.data_object, flags=1), gpu.fence)
    write_batch(script, gpu.batch, store_dwords(DATA, [1]))
    script.ioctl(gpu.fd, "XE_EXEC", gpu.exec_fields())
    gpu.wait(2)
    script.load(gpu.data, 0)
    yield script

    script = Script("exec/vm-destroyed")
    gpu = Gpu(script)
    write_batch(script, gpu.batch, [])
    script.ioctl(gpu.fd, "XE_VM_DESTROY", {"vm_id": gpu.vm})
    script.ioctl(gpu.fd, "XE_EXEC", gpu.exec_fields())
    yield script

    script = Script("exec/scratch-page")
    gpu = Gpu(script, flags=1)
    gpu.run(store_dwords(0x5000000, [7]) + store_dwords(DATA, [8]))
    script.load(gpu.data, 0)
    yield script

    script = Script("exec/null-mapping")
    gpu = Gpu(script)
    bind(script, gpu.fd, gpu.vm, op_fields(0x400000, 0x10000, 0, flags=4), gpu.fence)
    script.store(gpu.data, 0, 0x55)
    gpu.run(store_dwords(0x400000, [7]) + copy_bytes(DATA, 0x400000, 4))
    script.load(gpu.data, 0)
    yield script


def exec_checks(platform: Platform) -> Iterator[Script]:
    current: list[tuple[Gpu, dict[str, Value]]] = []

    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        gpu = Gpu(script)
        script.store(gpu.batch, 0, BATCH_END)
        fields = gpu.exec_fields()
        current[:] = [(gpu, fields)]
        return gpu.fd, fields

    def drain(script: Script, fd: str) -> None:
        """The right call after the wrong one: when it is done, so is whatever the other started."""
        gpu, fields = current[0]
        script.ioctl(fd, "XE_EXEC", fields)
        gpu.wait()

    wrong: dict[str, list[Value]] = {
        "extensions": [1], "exec_queue_id": [0, 9], "num_syncs": [1025, 0],
        "syncs": [0, 0x10], "num_batch_buffer": [2, 0, 0xFFFF], "pad[0]": [1], "pad[1]": [1],
        "pad[2]": [1], "reserved[0]": [1], "reserved[1]": [1],
    }  # fmt: skip
    yield from sweep("exec", "XE_EXEC", setup, wrong, after=drain)


def queues(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        space = vm(script, fd)
        instance = script.buffer(4096)
        script.write(instance, "drm_xe_engine_class_instance", {"engine_class": 1})
        fields: dict[str, Value] = {
            "width": 1, "num_placements": 1, "vm_id": space, "instances": instance,
        }  # fmt: skip
        return fd, fields

    wrong: dict[str, list[Value]] = {
        "extensions": [0x10], "width": [0, 2, 10], "num_placements": [0, 2, 10],
        "vm_id": [0, 7], "flags": [2, 1, 0x80000000], "instances": [0x10, 0],
        "reserved[0]": [1], "reserved[1]": [1], "exec_queue_id": [5],
    }  # fmt: skip
    yield from sweep("queue-create", "XE_EXEC_QUEUE_CREATE", setup, wrong, ["exec_queue_id"])
    for engine_class in (0, 1, 2, 3, 4, 5, 6, 0xFFFF):
        for gt in (0, 1, 2):
            for instance in (0, 1):
                name = f"queue-create/class={engine_class}/gt={gt}/instance={instance}"
                script = Script(name)
                fd, fields = setup(script)
                words: dict[str, Value] = {
                    "engine_class": engine_class, "engine_instance": instance, "gt_id": gt,
                }  # fmt: skip
                script.write("&0", "drm_xe_engine_class_instance", words)
                script.ioctl(fd, "XE_EXEC_QUEUE_CREATE", fields, show=["exec_queue_id"])
                yield script
    for prop in range(8):
        for value in (0, 1, 2, 3, 10_000, 2**63):
            script = Script(f"queue-create/property={prop}/value={value}")
            fd, fields = setup(script)
            chain = script.buffer(4096)
            script.write(chain, "drm_xe_ext_set_property", {"property": prop, "value": value})
            extended = {**fields, "extensions": chain}
            script.ioctl(fd, "XE_EXEC_QUEUE_CREATE", extended, show=["exec_queue_id"])
            yield script
    chains: dict[str, dict[str, Value]] = {
        "pad": {"base.pad": 1}, "name": {"base.name": 1}, "property-pad": {"pad": 1},
        "reserved": {"reserved[0]": 1}, "next": {"base.next_extension": 0x10},
    }  # fmt: skip
    for name, changes in chains.items():
        script = Script(f"queue-create/extension-{name}")
        fd, fields = setup(script)
        chain = script.buffer(4096)
        script.write(chain, "drm_xe_ext_set_property", {"property": 0, "value": 1, **changes})
        extended = {**fields, "extensions": chain}
        script.ioctl(fd, "XE_EXEC_QUEUE_CREATE", extended, show=["exec_queue_id"])
        yield script
    for links in (15, 16, 17):
        script = Script(f"queue-create/extension-chain={links}")
        fd, fields = setup(script)
        chain = script.buffer(4096)
        for index in range(links):
            after: Value = f"{chain}+{48 * (index + 1)}" if index + 1 < links else 0
            link: dict[str, Value] = {"base.next_extension": after, "value": 1}
            script.write(chain, "drm_xe_ext_set_property", link, at=48 * index)
        extended = {**fields, "extensions": chain}
        script.ioctl(fd, "XE_EXEC_QUEUE_CREATE", extended, show=["exec_queue_id"])
        yield script


def queue_lives(platform: Platform) -> Iterator[Script]:
    def made(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"exec_queue_id": queue(script, fd, vm(script, fd))}

    destroy: dict[str, list[Value]] = {
        "exec_queue_id": [0, 9], "pad": [1], "reserved[0]": [1], "reserved[1]": [1],
    }  # fmt: skip
    yield from sweep("queue-destroy", "XE_EXEC_QUEUE_DESTROY", made, destroy)
    get: dict[str, list[Value]] = {
        "extensions": [1], "exec_queue_id": [0, 9], "property": [1, 2], "reserved[0]": [1],
        "reserved[1]": [1],
    }  # fmt: skip
    yield from sweep("queue-get", "XE_EXEC_QUEUE_GET_PROPERTY", made, get, ["value"])

    def set_setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd, fields = made(script)
        return fd, {**fields, "property": 5, "value": 1}

    change: dict[str, list[Value]] = {
        "extensions": [1], "exec_queue_id": [0, 9], "property": [0, 1, 6, 7], "value": [3],
        "reserved[0]": [1], "reserved[1]": [1],
    }  # fmt: skip
    yield from sweep("queue-set", "XE_EXEC_QUEUE_SET_PROPERTY", set_setup, change)

    for flags in (0, 1, 2, 3, 6, 7):
        script = Script(f"queue/vm-destroy-with-live-queue/flags={flags}")
        fd = script.open()
        space = vm(script, fd, flags)
        live = queue(script, fd, space)
        script.ioctl(fd, "XE_VM_DESTROY", {"vm_id": space})
        script.ioctl(fd, "XE_EXEC", {"exec_queue_id": live, "num_batch_buffer": 0})
        script.ioctl(fd, "XE_EXEC_QUEUE_DESTROY", {"exec_queue_id": live})
        script.ioctl(fd, "XE_VM_DESTROY", {"vm_id": space})
        yield script
    script = Script("queue/ids-are-reused")
    fd = script.open()
    space = vm(script, fd)
    first = queue(script, fd, space)
    queue(script, fd, space)
    script.ioctl(fd, "XE_EXEC_QUEUE_DESTROY", {"exec_queue_id": first})
    queue(script, fd, space)
    queue(script, fd, space, 5)
    yield script


def fences(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        word = script.buffer(4096)
        script.write_words(word, [5], 8)
        fields: dict[str, Value] = {
            "addr": word, "op": 0, "value": 5, "mask": 2**64 - 1, "timeout": 1_000_000,
        }  # fmt: skip
        return fd, fields

    wrong: dict[str, list[Value]] = {
        "extensions": [1], "addr": [4, 0x10, 0], "op": [6, 0xFFFF], "flags": [2, 1],
        "pad": [1], "value": [6], "timeout": [0, 2**64 - 1], "exec_queue_id": [3], "pad2": [1],
        "reserved[0]": [1], "reserved[1]": [1], "mask": [0, 0xFF],
    }  # fmt: skip
    yield from sweep("fence-wait", "XE_WAIT_USER_FENCE", setup, wrong)
    for op in range(6):
        for value in (4, 5, 6):
            script = Script(f"fence-wait/op={op}/value={value}")
            fd, fields = setup(script)
            script.ioctl(fd, "XE_WAIT_USER_FENCE", {**fields, "op": op, "value": value})
            yield script
    timeouts: dict[str, Value] = {"zero": 0, "past": 1, "future": "@5000000"}
    for name, timeout in timeouts.items():
        script = Script(f"fence-wait/absolute-{name}")
        fd, fields = setup(script)
        more: dict[str, Value] = {"flags": 1, "timeout": timeout, "value": 6}
        script.ioctl(fd, "XE_WAIT_USER_FENCE", {**fields, **more})
        yield script
    script = Script("fence-wait/timeout-is-written-back")
    fd, fields = setup(script)
    more = {"value": 6, "timeout": 1_000_000}
    script.ioctl(fd, "XE_WAIT_USER_FENCE", {**fields, **more}, always=["timeout"])
    yield script


def unmap_while_mapped(platform: Platform) -> Iterator[Script]:
    script = Script("exec/remap-between-jobs")
    gpu = Gpu(script)
    gpu.run(store_dwords(DATA, [1]))
    bind(script, gpu.fd, gpu.vm, op_fields(DATA, 0x1000, 0, OP_UNMAP), gpu.fence)
    other = gem(script, gpu.fd, 1 * MIB, VRAM if platform.has_vram else SYSTEM)
    view = cpu_map(script, gpu.fd, other, 1 * MIB)
    bind(script, gpu.fd, gpu.vm, op_fields(DATA, 0x1000, other, obj_offset=0x3000), gpu.fence)
    script.store(gpu.data, 0xFFF8, 0, 8)
    gpu.run(store_dwords(DATA, [2]))
    script.load(gpu.data, 0)
    script.load(view, 0x3000)
    yield script


FAMILIES = (
    execution, faults, exec_checks, queues, queue_lives, fences, unmap_while_mapped,
)  # fmt: skip
