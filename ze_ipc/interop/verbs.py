"""RDMA memory regions over a range, by pyverbs (Debian: python3-pyverbs).

A range of N pieces is N memory regions: no verb registers a list of dma-bufs as one. Each is
registered for its own part of the range, so a work request across a seam needs a scatter entry a
region.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ze_ipc.imported_range import ImportedRange
    from ze_ipc.reservation import Reservation


@dataclass(frozen=True, slots=True)
class Region:
    """A memory region and the bytes of the range that it is."""

    mr: Any
    """pyverbs.mr.DmaBufMR; its addresses (iova) begin at the piece's offset in its dma-buf."""
    offset: int
    """Bytes from the beginning of the dma-buf: the address of the region's first byte."""
    length: int
    """Bytes."""
    range_offset: int
    """Bytes from the beginning of the range."""


@contextmanager
def register(
    pd: Any,
    source: ImportedRange | Reservation,
    access: int,
    offset: int = 0,
    size: int | None = None,
) -> Iterator[list[Region]]:
    """Register ``[offset, offset + size)`` of a range with a pyverbs PD, for the block.

    ``access`` is of pyverbs.enums.ibv_access_flags. The device must be able to reach the memory
    (pci_p2pdma), or the kernel moves it to the host's. Errors are pyverbs' own; none leaves a
    region or a descriptor behind.
    """
    from pyverbs.mr import DmaBufMR

    with ExitStack() as registered, source.dmabufs(offset, size) as pieces:
        regions = []
        for piece in pieces:
            mr = DmaBufMR(pd, piece.length, access, dmabuf=piece.fd, offset=piece.offset)
            registered.callback(mr.close)
            regions.append(Region(mr, piece.offset, piece.length, piece.range_offset))
        yield regions
