"""The guest's initramfs: a cpio archive made in Python, with the agent, busybox and the modules.

Module dependencies come from the modules' own .modinfo, as depmod would read them. Signatures are
cut off, which saves the guest the time of checking them.
"""

from __future__ import annotations

import lzma
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from .compiler import compile_static
from .sriov_patch import patched

GUEST = Path(__file__).parent / "guest"
SIGNATURE_MAGIC = b"~Module signature appended~\n"


def _module_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        data = lzma.decompress(data)
    if data.endswith(SIGNATURE_MAGIC):
        end = len(data) - len(SIGNATURE_MAGIC)
        (size,) = struct.unpack_from(">I", data, end - 4)
        data = data[: end - 12 - size]
    return data


def _name(path: Path) -> str:
    return path.name.split(".ko")[0].replace("-", "_")


class Modules:
    """The modules of one unpacked kernel package, by name."""

    def __init__(self, tree: Path) -> None:
        self._paths = {_name(path): path for path in tree.rglob("*.ko*")}

    def ordered(self, wanted: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """(file name, bytes) of the wanted modules and what they need, in loading order."""
        done: set[str] = set()

        def visit(name: str) -> Iterator[tuple[str, bytes]]:
            if name in done:
                return
            done.add(name)
            path = self._paths.get(name)
            if path is None:
                return  # built in
            data = _module_bytes(path)
            found = re.search(rb"\0depends=([^\0]*)\0", data)
            for need in found.group(1).decode().split(",") if found else []:
                if need:
                    yield from visit(need.replace("-", "_"))
            yield f"{name}.ko", data

        for name in wanted:
            yield from visit(name)


def cpio(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """A "newc" archive of (path, mode with file type, content); a device node is not possible."""
    out = bytearray()
    for inode, (path, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        name = path.encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        out += bytes(-len(out) % 4)
        out += data
        out += bytes(-len(out) % 4)
    return bytes(out)


def build(
    kernel: Path, busybox: Path, wanted: Iterable[str], work: Path, patch: str = "",
    bit: int | None = None,
) -> Path:  # fmt: skip
    """Writes the initramfs for the modules below `kernel` and returns its path.

    `patch` names a device whose description in xe.ko gets its SR-IOV bit (number `bit`, if known).
    """
    agent = compile_static(GUEST / "agent.c")
    directory, regular, link = 0o040755, 0o100755, 0o120777
    entries = [(name, directory, b"") for name in ("bin", "modules", "dev", "proc", "sys", "etc")]
    entries.append(("init", regular, agent.read_bytes()))
    entries.append(("bin/busybox", regular, busybox.read_bytes()))
    tools = (
        "sh cat dmesg ls mount insmod rmmod grep sleep cp mkdir tar gzip sync free ps find rm chmod"
    )
    entries.extend((f"bin/{tool}", link, b"busybox") for tool in tools.split())
    order = []
    for name, data in Modules(kernel).ordered(wanted):
        order.append(name)
        module = patched(data, patch, bit) if patch and name == "xe.ko" else data
        entries.append((f"modules/{name}", regular, module))
    entries.append(("modules/order", 0o100644, "\n".join(order).encode() + b"\n"))
    path = work / "initramfs.cpio"
    content = cpio(entries)
    if not path.exists() or path.read_bytes() != content:
        part = path.with_name("initramfs.part")
        part.write_bytes(content)
        part.rename(path)  # a guest that is starting reads the old one to its end
    return path
