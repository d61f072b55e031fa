"""What travels to the importer: the ordered extents of one export, and where its window lies.

An *extent* is a clipped mapping without its VA, its object replaced by an index into the objects
sent along; the word is ours. Extents concatenate to exactly the pages that the window touches, so a
manifest is independent of position.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

from ze_ipc.backend import READ_ONLY

VA_PHASE_SIZE = 2 << 20
"""An import keeps the exporter's VA modulo this, so that large device pages stay possible."""
LINEAGE_SIZE = 16
"""Bytes."""
MAX_EXTENTS = 1 << 26
"""More than any device's page tables can make sense of; a cap, so that counts cannot overflow."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The extents of one export, in VA order, as parallel columns (one index an extent)."""

    device_uuid: bytes
    """16 bytes: the device whose memory it is."""
    page_size: int
    """Bytes; every offset and size of an extent is a multiple."""
    window_offset: int
    """Bytes from the start of the first page to the window."""
    window_size: int
    """Bytes."""
    va_phase: int
    """The exporter's VA of the first page, modulo VA_PHASE_SIZE."""
    object_sizes: array[int]
    """``array('Q')``: bytes of each object, in the order in which the objects are sent."""
    object_indices: array[int]
    """``array('I')``: which object; numbers appear in ascending order, without gaps."""
    offsets: array[int]
    """``array('Q')``: bytes into the object."""
    sizes: array[int]
    """``array('Q')``: bytes."""
    access: array[int]
    """``array('B')``: backend access bits."""
    lineage: bytes = bytes(LINEAGE_SIZE)
    """16 random bytes that the exports of one growing range have in common, each of which begins
    with all the extents and objects of the one before; zero: of none.
    """

    @property
    def covered_size(self) -> int:
        """Bytes of all extents together: the pages that the window touches."""
        end = self.window_offset + self.window_size
        return -(-end // self.page_size) * self.page_size

    @property
    def extent_count(self) -> int:
        """Number of extents."""
        return len(self.sizes)

    @property
    def object_count(self) -> int:
        """Number of different objects."""
        return len(self.object_sizes)

    @property
    def read_only(self) -> bool:
        """Whether any extent may not be written through."""
        return READ_ONLY in self.access

    def as_read_only(self) -> Manifest:
        """The same window, no part of which may be written."""
        access = array("B", bytes((READ_ONLY,)) * self.extent_count)
        return replace(self, access=access)

    def objects_of_extents(self, objects: array[int]) -> array[int]:
        """The object behind each extent, given the objects in the order in which they were sent."""
        if len(objects) == len(self.object_indices):
            return objects[:]
        return array("Q", map(objects.__getitem__, self.object_indices))
