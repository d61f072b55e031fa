"""Which page attributes (pat_index) and which CPU caching an object gets on each platform.

Every mapping is made write-back and at least one-way coherent. The kernel demands that of an object
with CPU caching WB and of one that came from another device, and an object imported from another
process of this device may be either. One choice for all also keeps the exporter's and the
importer's mappings of one page alike, which caches want.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pat:
    """Indices into the platform's page attribute table."""

    own: int
    """For objects made here."""
    imported: int
    """For objects that came in through a dma-buf."""


# Graphics IP version from which on the row holds -> indices. The kernel's own write-back entry
# everywhere; it is at least one-way coherent on each of these.
_BY_GRAPHICS: tuple[tuple[tuple[int, int], Pat], ...] = (
    ((35, 11), Pat(2, 2)),  # Crescent Island
    # Nova Lake P flushes its L2 lazily: what others can write needs entry 19 there.
    ((35, 10), Pat(2, 19)),
    ((30, 0), Pat(2, 2)),  # Xe3: Panther Lake
    ((20, 0), Pat(2, 2)),  # Xe2: Battlemage, Lunar Lake
    ((12, 70), Pat(3, 3)),  # Meteor Lake, Arrow Lake
    ((12, 60), Pat(3, 3)),  # Ponte Vecchio
    ((12, 0), Pat(0, 0)),  # Xe-LP, DG1, DG2
)

_PONTE_VECCHIO = frozenset({0x0B69, 0x0B6E, *range(0x0BD0, 0x0BF0)})


def platform(reported: tuple[int, int], device_id: int) -> tuple[int, int]:
    """The graphics IP version; from the device id where the device reports none (0, 0)."""
    if reported != (0, 0):
        return reported
    if device_id in _PONTE_VECCHIO:
        return (12, 60)
    return (12, 55) if device_id >> 8 in (0x4F, 0x56) else (12, 0)


def pat_of(graphics: tuple[int, int]) -> Pat:
    """The indices of a platform, by the version that platform() gave."""
    return next((pat for since, pat in _BY_GRAPHICS if graphics >= since), _BY_GRAPHICS[-1][1])
