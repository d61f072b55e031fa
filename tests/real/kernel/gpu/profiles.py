"""The devices we can pose as: identity, sizes, fuses and the hardware configuration table.

The numbers are what real parts report as far as public sources say; they exercise the driver's
plumbing, nothing more. Fuse registers are handed to the driver by the "physical function" over the
relay, so every register the driver reads from a virtual function must be in `runtime`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MIB = 1 << 20
MEDIA_GT_OFFSET = 0x380000
"""A register of the media GT is this far above the same register of the main GT."""


def gmd_id(architecture: int, release: int, revision: int = 0) -> int:
    return architecture << 22 | release << 14 | revision


@dataclass(frozen=True, slots=True)
class Profile:
    """One emulated device. Sizes are bytes; `vram_size` 0 is an integrated GPU."""

    name: str
    device_id: int
    revision: int
    graphics: int
    media: int
    vram_size: int
    needs_sriov_patch: bool = False

    @property
    def ggtt_start(self) -> int:
        return 64 * MIB

    @property
    def ggtt_size(self) -> int:
        return 1024 * MIB

    def gmd_id(self, media: bool) -> int:
        return self.media if media else self.graphics

    def runtime(self, media: bool) -> list[tuple[int, int]]:
        """(register, value) of the fuses, ascending; media registers carry the GT offset."""
        base = MEDIA_GT_OFFSET if media else 0
        return [(base + offset, value) for offset, value in sorted(FUSES.items())]


FUSES = {
    0x0D00: 0x8 | 0x6,  # RPM_CONFIG0: crystal 19.2 MHz, undivided
    0x9114: 1 << 16,  # fuse 4: ccs0 present
    0x9118: 0x3F,  # mirror fuse 3: memory L3 nodes
    0x911C: 0,
    0x9120: 0,
    0x9130: 0,
    0x9134: 0xFF,  # EUs of a sub-slice
    0x913C: 0x000FFFFF,  # geometry sub-slices
    0x9140: 1 << 16 | 1,  # vecs0 and vcs0 present
    0x9144: 0x000FFFFF,  # compute sub-slices
    0x9148: 0,
    0x914C: 0,
    0x9150: 0,
    0x9154: 0,
    0x9170: 0,
    0xC1DC: 1,  # HuC loaded
}

_HWCONFIG = {
    1: 8, 2: 32, 3: 8, 10: 12, 11: 4, 15: 8, 23: 1, 24: 1, 62: 8, 64: 512,
    65: 128, 70: 32, 71: 8, 73: 128, 83: 1,
}  # fmt: skip
HWCONFIG = b"".join(struct.pack("<III", key, 1, value) for key, value in _HWCONFIG.items())

PROFILES = {
    profile.name: profile
    for profile in (
        Profile("bmg", 0xE20B, 0, gmd_id(20, 1), gmd_id(13, 1), 256 * MIB),
        # With another size the two memories can be told apart where QEMU says where they are.
        Profile("bmg-small", 0xE20B, 0, gmd_id(20, 1), gmd_id(13, 1), 128 * MIB),
        Profile("ptl", 0xB080, 0, gmd_id(30, 0), gmd_id(30, 0), 0),
        Profile("lnl", 0x64A0, 4, gmd_id(20, 4, 4), gmd_id(20, 0, 4), 0, needs_sriov_patch=True),
    )
}
