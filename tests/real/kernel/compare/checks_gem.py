"""Objects: GEM_CREATE, GEM_CLOSE, GEM_MMAP_OFFSET, mmap, GEM_CHANGE_HANDLE."""

from __future__ import annotations

from collections.abc import Iterator

from .common import (
    KIB,
    MIB,
    SYSTEM,
    VRAM,
    Platform,
    cpu_map,
    gem,
    gem_fields,
    vm,
)
from .script import Script, Value, request, sweep


def create(platform: Platform) -> Iterator[Script]:
    for placement in platform.placements:

        def setup(script: Script, placement: int = placement) -> tuple[str, dict[str, Value]]:
            return script.open(), gem_fields(64 * KIB, placement)

        wrong: dict[str, list[Value]] = {
            "extensions": [0x10], "size": [0, 1, 4095, 4097, 2**63, 2**64 - 4096, 2**40],
            "placement": [0, 8, 1, 2, 3, 4, 0x80000000], "flags": [0x10, 1, 2, 4, 8, 0x80000000],
            "vm_id": [5], "handle": [1], "cpu_caching": [0, 1, 2, 3], "pad[0]": [1],
            "pad[1]": [1], "pad[2]": [1], "reserved[0]": [1], "reserved[1]": [1],
        }  # fmt: skip
        title = f"gem-create/placement={placement}"
        yield from sweep(title, "XE_GEM_CREATE", setup, wrong, ["handle"])
        for flags in range(16):
            for caching in (1, 2):
                script = Script(f"{title}/flags={flags}/caching={caching}/matrix")
                fields = {**gem_fields(64 * KIB, placement), "flags": flags, "cpu_caching": caching}
                script.ioctl(script.open(), "XE_GEM_CREATE", fields, show=["handle"])
                yield script
        for size in (4 * KIB, 12 * KIB, 64 * KIB, 2 * MIB, 2 * MIB + 4 * KIB):
            script = Script(f"{title}/size={size}/zeroed")
            fd = script.open()
            handle = gem(script, fd, size, placement)
            view = cpu_map(script, fd, handle, size)
            script.load(view, 0, 8)
            script.load(view, size - 8, 8)
            yield script
    for prop in (0, 1):
        for value in (0, 1, 2):
            script = Script(f"gem-create/extension/property={prop}/value={value}")
            fd = script.open()
            chain = script.buffer(4096)
            script.write(chain, "drm_xe_ext_set_property", {"property": prop, "value": value})
            fields = {**gem_fields(), "extensions": chain}
            script.ioctl(fd, "XE_GEM_CREATE", fields, show=["handle"])
            yield script


def close(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"handle": gem(script, fd)}

    wrong: dict[str, list[Value]] = {"handle": [0, 2, 0xFFFFFFFF], "pad": [1]}
    yield from sweep("gem-close", "GEM_CLOSE", setup, wrong)
    script = Script("gem-close/twice-and-reuse")
    fd = script.open()
    first = gem(script, fd)
    gem(script, fd)
    script.ioctl(fd, "GEM_CLOSE", {"handle": first})
    script.ioctl(fd, "GEM_CLOSE", {"handle": first})
    gem(script, fd)
    gem(script, fd)
    yield script
    script = Script("gem-close/handles-of-two-files")
    one, other = script.open(), script.open()
    handle = gem(script, one)
    script.ioctl(other, "GEM_CLOSE", {"handle": handle})
    gem(script, other)
    shared = script.dup(one)
    script.ioctl(shared, "GEM_CLOSE", {"handle": handle})
    script.ioctl(one, "GEM_CLOSE", {"handle": handle})
    yield script


def change(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        handle = gem(script, fd)
        gem(script, fd)
        return fd, {"handle": handle, "new_handle": 7}

    wrong: dict[str, list[Value]] = {"handle": [0, 9], "new_handle": [1, 2, 0, 0xFFFFFFFF]}

    def after(script: Script, fd: str) -> None:
        for handle in (1, 2, 7):
            script.ioctl(fd, "XE_GEM_MMAP_OFFSET", {"handle": handle})
        gem(script, fd)

    yield from sweep("gem-change-handle", "GEM_CHANGE_HANDLE", setup, wrong, after=after)


def mmap_offset(platform: Platform) -> Iterator[Script]:
    def setup(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"handle": gem(script, fd)}

    wrong: dict[str, list[Value]] = {
        "extensions": [0x10], "handle": [0, 2], "flags": [2, 1, 3], "offset": [123],
        "reserved[0]": [1], "reserved[1]": [1],
    }  # fmt: skip
    yield from sweep("mmap-offset", "XE_GEM_MMAP_OFFSET", setup, wrong)
    script = Script("mmap-offset/barrier")
    fd = script.open()
    script.ioctl(fd, "XE_GEM_MMAP_OFFSET", {"flags": 1}, show=["offset"])
    for size, prot, flags in ((4096, 2, 1), (8192, 2, 1), (4096, 3, 1), (4096, 2, 2), (4096, 1, 1)):
        script.mmap(size, fd, 0x50000, prot, flags)
    yield script


def mmap(platform: Platform) -> Iterator[Script]:
    for placement in platform.placements:
        name = f"mmap/placement={placement}"
        script = Script(f"{name}/part-and-beyond")
        fd = script.open()
        handle = gem(script, fd, 64 * KIB, placement)
        offset = script.ioctl(fd, "XE_GEM_MMAP_OFFSET", {"handle": handle}, keep="offset")
        for size in (4 * KIB, 64 * KIB, 68 * KIB):
            script.mmap(size, fd, offset)
        script.lines.append(f"A {offset[1:]} 4096")
        script.mmap(4 * KIB, fd, "$254")
        script.mmap(4 * KIB, fd, 0)
        script.mmap(4 * KIB, fd, 1 << 40)
        for flags in (2, 1):
            for prot in (0, 1, 2, 3):
                script.mmap(64 * KIB, fd, offset, prot, flags)
        yield script

        script = Script(f"{name}/survives-close")
        fd = script.open()
        handle = gem(script, fd, 64 * KIB, placement)
        view = cpu_map(script, fd, handle, 64 * KIB)
        script.store(view, 100, 0xABCD)
        offset = script.ioctl(fd, "XE_GEM_MMAP_OFFSET", {"handle": handle}, keep="offset")
        script.ioctl(fd, "GEM_CLOSE", {"handle": handle})
        script.load(view, 100)
        script.mmap(64 * KIB, fd, offset)
        script.close(fd)
        script.load(view, 100)
        script.munmap(view, 64 * KIB)
        yield script

        script = Script(f"{name}/another-file")
        one, other = script.open(), script.open()
        handle = gem(script, one, 64 * KIB, placement)
        offset = script.ioctl(one, "XE_GEM_MMAP_OFFSET", {"handle": handle}, keep="offset")
        script.mmap(64 * KIB, other, offset)
        script.ioctl(other, "XE_GEM_MMAP_OFFSET", {"handle": handle})
        yield script

        script = Script(f"{name}/two-views")
        fd = script.open()
        handle = gem(script, fd, 64 * KIB, placement)
        one, other = cpu_map(script, fd, handle, 64 * KIB), cpu_map(script, fd, handle, 64 * KIB)
        script.store(one, 4096, 77)
        script.load(other, 4096)
        yield script


def private(platform: Platform) -> Iterator[Script]:
    for placement in platform.placements:
        script = Script(f"private/placement={placement}/after-destroy")
        fd = script.open()
        space = vm(script, fd)
        handle = gem(script, fd, 64 * KIB, placement, vm_id=space)
        script.ioctl(fd, "PRIME_HANDLE_TO_FD", {"handle": handle, "flags": 0x80002})
        view = cpu_map(script, fd, handle, 64 * KIB)
        script.store(view, 8, 1)
        script.ioctl(fd, "XE_VM_DESTROY", {"vm_id": space})
        script.load(view, 8)
        script.ioctl(fd, "GEM_CLOSE", {"handle": handle})
        script.load(view, 8)
        gem(script, fd, 64 * KIB, placement, vm_id=space)
        yield script


def sizes_of_struct(platform: Platform) -> Iterator[Script]:
    """The kernel copies what the caller's encoding says and zero-fills the rest."""
    base = request("XE_GEM_CREATE")
    for size in (0, 8, 16, 24, 32, 34, 36, 40, 48, 56, 64, 128, 4000):
        script = Script(f"gem-create/encoded-size={size}")
        fd = script.open()
        number = base & ~(0x3FFF << 16) | size << 16
        script.raw(fd, number, 4096, "8:8=65536", "16:4=1", "32:2=1", "28:4?", "64:8!")
        yield script
    for direction in range(4):
        script = Script(f"gem-create/encoded-direction={direction}")
        fd = script.open()
        number = base & 0x3FFFFFFF | direction << 30
        script.raw(fd, number, 56, "8:8=65536", "16:4=1", "32:2=1", "28:4!")
        yield script


def exhaustion(platform: Platform) -> Iterator[Script]:
    if not platform.has_vram:
        return
    script = Script("gem-create/more-vram-than-there-is")
    fd = script.open()
    for size in (200 * MIB, 255 * MIB, 300 * MIB):
        fields = gem_fields(size, VRAM, flags=1)
        script.ioctl(fd, "XE_GEM_CREATE", fields, show=["handle"])
    yield script
    script = Script("gem-create/more-system-than-there-is")
    fd = script.open()
    script.ioctl(fd, "XE_GEM_CREATE", gem_fields(1 << 50, SYSTEM))
    script.ioctl(fd, "XE_GEM_CREATE", gem_fields(1 << 45, SYSTEM, flags=1))
    yield script


FAMILIES = (
    create, close, change, mmap_offset, mmap, private, sizes_of_struct, exhaustion,
)  # fmt: skip
