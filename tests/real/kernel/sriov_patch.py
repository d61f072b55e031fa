"""One bit in a copy of xe.ko: the driver's own description of a device says that it has SR-IOV.

The driver looks whether it is a virtual function only on devices whose description says so. Lunar
Lake's does not (nor Battlemage's in older kernels). The description is found by its symbol; the bit
is the one that the descriptions with SR-IOV share and those without lack, so no offset of a
particular kernel is written down here; but where no description has it (Linux 6.12), its place is
told (harness.KERNELS). Nothing else of the module changes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator

from .packages import Unavailable

WITH = ("tgl", "adl_s", "adl_p")
WITHOUT = ("rkl", "dg1", "mtl")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
SYMTAB = 2


def _sections(module: bytes) -> list[tuple[int, ...]]:
    (offset,) = struct.unpack_from("<Q", module, 0x28)
    size, count = struct.unpack_from("<HH", module, 0x3A)
    return [_SECTION.unpack_from(module, offset + size * at) for at in range(count)]


def _descriptions(module: bytes) -> Iterator[tuple[str, int, int]]:
    """(device, file offset, size) of every object that is called DEVICE_desc."""
    sections = _sections(module)
    for section in sections:
        if section[1] != SYMTAB:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], _SYMBOL.size):
            name, info, _, where, value, size = _SYMBOL.unpack_from(module, at)
            end = module.index(b"\0", names + name)
            text = module[names + name : end].decode(errors="replace")
            if info & 15 == 1 and text.endswith("_desc") and 0 < where < len(sections):
                yield text.removesuffix("_desc"), sections[where][4] + value, size


def patched(module: bytes, device: str, known_bit: int | None = None) -> bytes:
    """The module with the SR-IOV bit of one device's description set.

    `known_bit` is for a kernel none of whose descriptions has the bit, so that none shows it.
    """
    found = list(_descriptions(module))
    # The display code has objects of the same names; ours is the size that most devices share.
    sizes = Counter(size for name, _, size in found if name in (*WITH, *WITHOUT))
    for wanted in (size for size, _ in sizes.most_common()):
        here = {name: offset for name, offset, size in found if size == wanted}
        if not {*WITH, *WITHOUT, device} <= here.keys():
            continue
        bits = [
            bit
            for bit in range(wanted * 8)
            if all(_bit(module, here[name], bit) for name in WITH)
            and not any(_bit(module, here[name], bit) for name in WITHOUT)
        ]
        if known_bit is not None:
            # Xe's own descriptions name fewer devices than its display's, which knows old ones.
            if {name for name, _, size in found if size == wanted} & {"i965g", "skl"}:
                continue
            bits = [known_bit]
        if len(bits) == 1:
            data = bytearray(module)
            data[here[device] + bits[0] // 8] |= 1 << bits[0] % 8
            return bytes(data)
    raise Unavailable(f"xe.ko does not show where {device} says that it has SR-IOV")


def _bit(module: bytes, offset: int, bit: int) -> int:
    return module[offset + bit // 8] >> bit % 8 & 1
