"""PRIME: identity and lifetime of dma-bufs, and what their descriptors can do."""

from __future__ import annotations

from collections.abc import Iterator

from .common import (
    KIB,
    Fence,
    Platform,
    bind,
    cpu_map,
    export,
    gem,
    import_fd,
    op_fields,
    vm,
)
from .script import Script, Value, sweep


def export_checks(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"handle": gem(script, fd), "flags": 0x80002}

    wrong: dict[str, list[Value]] = {"handle": [9, 0], "flags": [1, 4, 0x80000000, 0, 2], "fd": [7]}
    yield from sweep("export", "PRIME_HANDLE_TO_FD", setup, wrong)

    def import_setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"fd": export(script, fd, gem(script, fd))}

    wrong = {"fd": [0xFFFFFFFF, 99, 0], "flags": [0xFFFFFFFF], "handle": [3]}
    yield from sweep("import", "PRIME_FD_TO_HANDLE", import_setup, wrong, ["handle"])

    script = Script("import/things-that-are-no-dma-buf")
    fd = script.open()
    memory = script.memfd(4096)
    for thing in (fd, memory):
        script.ioctl(fd, "PRIME_FD_TO_HANDLE", {"fd": thing})
    yield script


def identity(platform: Platform) -> Iterator[Script]:
    script = Script("prime/one-inode-for-ever")
    one, other = script.open(), script.open()
    handle = gem(script, one)
    first, second = export(script, one, handle), export(script, one, handle)
    script.same_inode(first, second)
    imported = import_fd(script, other, first)
    third = export(script, other, imported)
    script.same_inode(first, third)
    for fd in (second, third):
        script.close(fd)
    fourth = export(script, one, handle)
    script.same_inode(first, fourth)
    yield script

    script = Script("prime/imports-are-one-handle")
    one, other = script.open(), script.open()
    handle, second = gem(script, one), gem(script, one)
    fd = export(script, one, handle)
    import_fd(script, one, fd)
    inner = import_fd(script, other, fd)
    import_fd(script, other, script.dup(fd))
    script.ioctl(other, "GEM_CLOSE", {"handle": inner})
    script.ioctl(other, "GEM_CLOSE", {"handle": inner})
    gem(script, other)
    import_fd(script, other, fd)
    import_fd(script, other, export(script, one, second))
    yield script

    script = Script("prime/lives-without-the-exporter")
    one, other = script.open(), script.open()
    handle = gem(script, one)
    view = cpu_map(script, one, handle, 64 * KIB)
    script.store(view, 40, 0x1234)
    script.munmap(view, 64 * KIB)
    fd = export(script, one, handle)
    imported = import_fd(script, other, fd)
    script.close(fd)
    script.close(one)
    view = cpu_map(script, other, imported, 64 * KIB)
    script.load(view, 40)
    again = export(script, other, imported)
    map_again = script.mmap(64 * KIB, again, 0)
    script.load(map_again, 40)
    yield script

    script = Script("prime/re-export-after-everything-went")
    fd = script.open()
    handle = gem(script, fd)
    first = export(script, fd, handle)
    script.ioctl(fd, "GEM_CLOSE", {"handle": handle})
    back = import_fd(script, fd, first)
    second = export(script, fd, back)
    script.same_inode(first, second)
    yield script

    script = Script("prime/bind-an-import")
    one, other = script.open(), script.open()
    handle = gem(script, one)
    imported = import_fd(script, other, export(script, one, handle))
    space = vm(script, other)
    for index in (0, 2):
        fields = op_fields(obj=imported, pat_index=index)
        bind(script, other, space, fields, Fence(script) if index else None)
    yield script


def descriptors(platform: Platform) -> Iterator[Script]:
    for flags in (0x80002, 0x80000):
        for placement in platform.placements:
            script = Script(f"dma-buf/flags={flags:#x}/placement={placement}")
            fd = script.open()
            handle = gem(script, fd, 64 * KIB, placement)
            dma_buf = export(script, fd, handle, flags)
            for offset, whence in ((0, 2), (0, 0), (4096, 0), (0, 1), (1, 2), (-1, 0)):
                script.lseek(dma_buf, offset, whence)
            for size, offset in ((64 * KIB, 0), (4 * KIB, 60 * KIB), (8 * KIB, 60 * KIB)):
                for prot in (1, 3):
                    script.mmap(size, dma_buf, offset, prot)
            script.mmap(64 * KIB, dma_buf, 0, 3, 2)
            script.mmap(64 * KIB, dma_buf, 0, 1, 2)
            later = export(script, fd, handle, 0x80002)
            script.mmap(64 * KIB, later, 0, 3)
            yield script
    for flags in (0, 1, 2, 3, 4, 5, 7, 8, 2**63):
        script = Script(f"dma-buf/sync={flags:#x}")
        fd = script.open()
        dma_buf = export(script, fd, gem(script, fd))
        script.ioctl(dma_buf, "DMA_BUF_SYNC", {"flags": flags})
        yield script
    for flags in (0, 1, 2, 3, 4):
        script = Script(f"dma-buf/sync-file={flags}")
        fd = script.open()
        dma_buf = export(script, fd, gem(script, fd))
        file = script.ioctl(dma_buf, "DMA_BUF_EXPORT_SYNC_FILE", {"flags": flags}, keep="fd")
        script.ioctl(dma_buf, "DMA_BUF_IMPORT_SYNC_FILE", {"flags": flags, "fd": file})
        script.ioctl(dma_buf, "DMA_BUF_IMPORT_SYNC_FILE", {"flags": 1, "fd": fd})
        yield script
    script = Script("dma-buf/unknown-ioctls")
    fd = script.open()
    dma_buf = export(script, fd, gem(script, fd))
    for number in (0xC0046204, 0x6210, 0xC0186441, 0x5413):
        script.raw(dma_buf, number, 64)
    yield script


FAMILIES = (export_checks, identity, descriptors)
