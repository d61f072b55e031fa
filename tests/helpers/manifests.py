"""Random mappings and manifests."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from hypothesis import strategies as st

from helpers.page_model import BASE, PAGE
from ze_ipc.columns import Columns
from ze_ipc.manifest import Manifest, build

UUID = bytes(range(16))
OBJECT_SIZE = 64 * PAGE


@dataclass(frozen=True)
class Window:
    """Back-to-back rows and a window that touches their first and last page."""

    rows: Columns
    ptr: int
    size: int

    def build(self) -> tuple[Manifest, array[int]]:
        """Its manifest; object ``n`` has OBJECT_SIZE + n pages."""
        return build(
            self.rows,
            self.ptr,
            self.size,
            device_uuid=UUID,
            page_size=PAGE,
            object_sizes=object_sizes,
        )

    def pages(self) -> list[tuple[int, int, int]]:
        """(object, byte of the object, access) of each page."""
        return [
            (obj, offset + at, access)
            for obj, offset, size, access in zip(
                self.rows.objects, self.rows.offsets, self.rows.sizes, self.rows.access, strict=True
            )
            for at in range(0, size, PAGE)
        ]


def object_sizes(objects: array[int]) -> array[int]:
    """What a backend says of these objects."""
    return array("Q", (OBJECT_SIZE + obj % 7 * PAGE for obj in objects))


def manifest_pages(manifest: Manifest, objects: array[int]) -> list[tuple[int, int, int]]:
    """The same as Window.pages, from a manifest."""
    each = zip(
        manifest.object_indices, manifest.offsets, manifest.sizes, manifest.access, strict=True
    )
    return [
        (objects[index], offset + at, access)
        for index, offset, size, access in each
        for at in range(0, size, PAGE)
    ]


@st.composite
def windows(draw: st.DrawFn, max_rows: int = 12) -> Window:
    """Rows with aliases, neighbours that go on in the same object, and read-only ones."""
    count = draw(st.integers(1, max_rows))
    objects, offsets, sizes, access = array("Q"), array("Q"), array("Q"), array("B")
    distinct = draw(st.booleans())
    for number in range(count):
        size = draw(st.integers(1, 4)) * PAGE
        goes_on = bool(number) and not distinct and draw(st.booleans())
        if goes_on and offsets[-1] + sizes[-1] + size <= OBJECT_SIZE:
            objects.append(objects[-1])
            offsets.append(offsets[-1] + sizes[-1])
        else:
            objects.append(1000 - number if distinct else draw(st.integers(1, 4)))
            offsets.append(draw(st.integers(0, 60)) * PAGE)
        sizes.append(size)
        access.append(draw(st.sampled_from([0, 0, 0, 1])))
    start = BASE + draw(st.integers(0, 600)) * PAGE
    rows = Columns.back_to_back(start, objects, offsets, sizes, access)
    before = draw(st.sampled_from([0, 1, PAGE - 1]))
    after = draw(st.sampled_from([0, 1, PAGE - 1]))
    total = sum(sizes)
    if total == PAGE and before + after >= PAGE:
        after = 0
    return Window(rows, start + before, total - before - after)
