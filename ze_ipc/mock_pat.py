"""The PAT (page attribute table) of Xe2 as debugfs prints it for programs on the mock."""

from __future__ import annotations

_XE2: tuple[int, ...] = (
    0x00C, 0x00E, 0x00F, 0x03C, 0x032, 0x03E, 0x41C, 0x033,
    0x030, 0x20C, 0x230, 0x61C, 0x23C, 0x000, 0x200, 0x614,
    0x000, 0x000, 0x000, 0x000, 0x04C, 0x24C, 0x04E, 0x04F,
    0x08C, 0x28C, 0x08E, 0x08F, 0x0CC, 0x2CC, 0x0CE, 0x0CF,
)  # fmt: skip
"""Register values. Bits: no-promote 10, compression 9, L3 class of service 7:6, L3 policy 5:4, L4
policy 3:2, coherency 1:0.
"""

_RESERVED = range(16, 20)
_ACCESS_OF_ATS = 0x00F
_ACCESS_OF_PAGE_TABLES = 0x00C
_CACHES = {"NONE": 3, "WT": 15, "WB": 2, "NONE_COMPRESSION": 12}


def _fields(value: int) -> str:
    parts = (
        value >> 10 & 1,
        value >> 9 & 1,
        value >> 6 & 3,
        value >> 4 & 3,
        value >> 2 & 3,
        value & 3,
    )
    return f"[ {', '.join(map(str, parts))} ]  ({value:#8x})"


def registers(entries: int, discrete: bool) -> str:
    """The text of ``gtN/pat``, what the hardware holds; an asterisk marks a reserved entry."""
    lines = ["PAT table: (* = reserved entry)"]
    for index, value in enumerate(_XE2[:entries]):
        lines.append(f"PAT[{index:2}] = {_fields(value)}{' *' if index in _RESERVED else ''}")
    lines.append("Page Table Access:")
    if discrete:
        lines.append(f"PTA_MODE= {_fields(_ACCESS_OF_PAGE_TABLES)}")
    lines.append("PCIe ATS/PASID:")
    lines.append(f"PAT_ATS = {_fields(_ACCESS_OF_ATS)}")
    return "\n".join(lines) + "\n"


def sw_config(entries: int, discrete: bool) -> str:
    """The text of ``gtN/pat_sw_config``: what the driver wants there, and its own choices."""
    lines = [registers(entries, discrete).rstrip("\n"), "Cache Level:"]
    lines.extend(f"IDX[XE_CACHE_{name}] = {index}" for name, index in _CACHES.items())
    return "\n".join(lines) + "\n"
