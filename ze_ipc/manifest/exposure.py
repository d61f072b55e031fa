"""What an importer can reach: an object is shared whole, whatever part of it the window shows."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from ze_ipc.manifest.model import Manifest


@dataclass(frozen=True, slots=True)
class Exposure:
    """The objects that an importer of a window gets, whole; the window is only a part of them."""

    window: int
    """Bytes of the window."""
    sizes: array[int]
    """``array('Q')``: bytes of each object, all of which can be reached."""
    inside: array[int]
    """``array('Q')``: of these, bytes that the window shows, each counted once."""

    @property
    def reachable(self) -> int:
        """Bytes of all objects together."""
        return sum(self.sizes)

    @property
    def beyond(self) -> int:
        """Bytes that can be reached and are not in the window."""
        return sum(self.sizes) - sum(self.inside)

    @property
    def objects(self) -> int:
        """How many there are."""
        return len(self.sizes)

    def beyond_of(self, index: int) -> int:
        """Bytes of one object that can be reached and are not in the window."""
        return self.sizes[index] - self.inside[index]

    def __str__(self) -> str:
        return f"{self.beyond:#x} of {self.reachable:#x} bytes are beyond the window"


def exposure(manifest: Manifest) -> Exposure:
    """What a manifest gives away, to the byte: pages that the window only touches are beyond it."""
    inside = array("Q", bytes(8 * manifest.object_count))
    end = 0
    last = -1
    for index, start, stop in sorted(_pieces(manifest), key=itemgetter(0, 1)):
        if index != last:
            last, end = index, 0
        inside[index] += max(0, stop - max(start, end))
        end = max(end, stop)
    return Exposure(manifest.window_size, manifest.object_sizes, inside)


def _pieces(manifest: Manifest) -> Iterator[tuple[int, int, int]]:
    """(object, start, end) of each extent's part of the window."""
    at = -manifest.window_offset
    for index, offset, size in zip(
        manifest.object_indices, manifest.offsets, manifest.sizes, strict=True
    ):
        start, stop = max(0, -at), min(size, manifest.window_size - at)
        yield index, offset + start, offset + stop
        at += size
