"""Two devices: an object of node 0 imported on node 1, and what the GPUs see of each other."""

from __future__ import annotations

from collections.abc import Iterator

from .checks_exec import DATA, Gpu
from .common import (
    KIB,
    OP_UNMAP_ALL,
    SYSTEM,
    VRAM,
    Fence,
    Platform,
    bind,
    copy_bytes,
    cpu_map,
    export,
    gem,
    import_fd,
    layout,
    op_fields,
    store_dwords,
    vm,
)
from .script import Script

BASE = 0x500000
RECORDS = {False: "two-apart", True: "two-peers"}
"""What the answers of two GPUs are kept as, by whether they reach each other."""


def variables(platform: Platform) -> dict[str, str]:
    """Environment of the runner on the mock."""
    return {} if platform.peers else {"RUNNER_APART": "1"}


def scripts(platform: Platform) -> list[Script]:
    return [script for family in FAMILIES for script in family(platform)]


def imports(platform: Platform) -> Iterator[Script]:
    for placement in (SYSTEM, VRAM, SYSTEM | VRAM):
        for flags in (0x80002, 0x80000):
            script = Script(f"peer/import/placement={placement}/flags={flags:#x}")
            one, other = script.open(0), script.open(1)
            handle = gem(script, one, 64 * KIB, placement)
            fd = export(script, one, handle, flags)
            imported = import_fd(script, other, fd)
            import_fd(script, other, fd)
            space = vm(script, other)
            for index in range(8):
                fields = op_fields(BASE, obj=imported, pat_index=index)
                script.ioctl(other, "XE_VM_BIND", {"vm_id": space, **_single(fields)})
            layout(script, other, space, 2)
            script.ioctl(other, "XE_GEM_MMAP_OFFSET", {"handle": imported})
            again = export(script, other, imported)
            script.same_inode(fd, again)
            import_fd(script, one, fd)
            script.ioctl(other, "GEM_CLOSE", {"handle": imported})
            import_fd(script, other, fd)
            yield script
    script = Script("peer/import/private")
    one, other = script.open(0), script.open(1)
    handle = gem(script, one, vm_id=vm(script, one))
    script.ioctl(one, "PRIME_HANDLE_TO_FD", {"handle": handle, "flags": 0x80002})
    yield script


def _single(fields: dict[str, int | str]) -> dict[str, int | str]:
    return {"num_binds": 1, **{f"bind.{name}": value for name, value in fields.items()}}


def bytes_of_the_other(platform: Platform) -> Iterator[Script]:
    """The GPU of node 1 stores and copies in memory of node 0, whose CPU mapping shows it."""
    for placement in (SYSTEM, VRAM, SYSTEM | VRAM):
        script = Script(f"peer/bytes/placement={placement}")
        gpu = Gpu(script, node=1)
        one = script.open(0)
        handle = gem(script, one, 64 * KIB, placement)
        view = cpu_map(script, one, handle, 64 * KIB)
        for at in range(0, 64, 8):
            script.store(view, 0x2000 + at, 0x0101010101010101 * (at // 8 + 1), 8)
        imported = import_fd(script, gpu.fd, export(script, one, handle))
        fields = op_fields(BASE, obj=imported)
        script.ioctl(gpu.fd, "XE_VM_BIND", {"vm_id": gpu.vm, **_single(fields), **gpu.fence.arm()})
        script.if_done()
        gpu.fence.wait(gpu.fd)
        words = store_dwords(DATA, [7])
        if placement != VRAM or platform.peers:
            words = store_dwords(BASE + 0x1008, [0x11111111, 0x22222222])
            words += copy_bytes(DATA + 4, BASE + 0x2003, 32) + copy_bytes(BASE, BASE + 0x2000, 16)
        gpu.run(words)
        for at in (0, 8, 0x1008, 0x2000):
            script.load(view, at, 8)
        for at in (0, 8, 16, 24, 32):
            script.load(gpu.data, at, 8)
        yield script


def lifetimes(platform: Platform) -> Iterator[Script]:
    for placement in (SYSTEM, VRAM, SYSTEM | VRAM):
        script = Script(f"peer/exporter-gone/placement={placement}")
        one, other = script.open(0), script.open(1)
        handle = gem(script, one, 64 * KIB, placement)
        view = cpu_map(script, one, handle, 64 * KIB)
        script.store(view, 8, 5)
        fd = export(script, one, handle)
        imported = import_fd(script, other, fd)
        script.ioctl(one, "GEM_CLOSE", {"handle": handle})
        script.close(fd)
        script.close(one)
        space = vm(script, other)
        fields = op_fields(BASE, obj=imported)
        fence = Fence(script)
        script.ioctl(other, "XE_VM_BIND", {"vm_id": space, **_single(fields), **fence.arm()})
        script.if_done()
        fence.wait(other)
        script.load(view, 8)
        bind(script, other, space, op_fields(0, 0, imported, OP_UNMAP_ALL), fence)
        script.ioctl(other, "GEM_CLOSE", {"handle": imported})
        yield script


FAMILIES = (imports, bytes_of_the_other, lifetimes)
