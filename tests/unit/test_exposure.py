"""What an importer can reach beyond the window, counted byte by byte."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from ze_ipc.manifest import Manifest, exposure

PAGE = 4096


def manifest_of(
    sizes: list[int], extents: list[tuple[int, int, int]], window: int, size: int
) -> Manifest:
    return Manifest(
        device_uuid=bytes(16),
        page_size=PAGE,
        window_offset=window,
        window_size=size,
        va_phase=0,
        object_sizes=array("Q", [n * PAGE for n in sizes]),
        object_indices=array("I", [index for index, _, _ in extents]),
        offsets=array("Q", [offset * PAGE for _, offset, _ in extents]),
        sizes=array("Q", [count * PAGE for _, _, count in extents]),
        access=array("B", bytes(len(extents))),
    )


def test_a_window_of_whole_objects_exposes_nothing_else() -> None:
    found = exposure(manifest_of([2, 1], [(0, 0, 2), (1, 0, 1)], 0, 3 * PAGE))
    assert (found.beyond, found.reachable, found.objects) == (0, 3 * PAGE, 2)


def test_a_byte_of_an_object_exposes_all_of_it() -> None:
    found = exposure(manifest_of([512, 512], [(0, 511, 1), (1, 0, 1)], PAGE - 1, 2))
    assert [*found.inside] == [1, 1]
    assert (found.beyond, found.beyond_of(0)) == (1024 * PAGE - 2, 512 * PAGE - 1)


def test_aliases_count_once() -> None:
    found = exposure(manifest_of([4], [(0, 0, 2), (0, 1, 2), (0, 0, 1)], 0, 5 * PAGE))
    assert [*found.inside] == [3 * PAGE]


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    order = [*range(len(sizes)), *draw(st.lists(st.integers(0, len(sizes) - 1), max_size=5))]
    extents = []
    for index in order:
        offset = draw(st.integers(0, sizes[index] - 1))
        extents.append((index, offset, draw(st.integers(1, sizes[index] - offset))))
    pages = sum(count for _, _, count in extents)
    window = draw(st.integers(0, PAGE - 1))
    # It ends in the last page, as every manifest's does.
    low = max(1, (pages - 1) * PAGE + 1 - window)
    return manifest_of(sizes, extents, window, draw(st.integers(low, pages * PAGE - window)))


@given(manifests())
def test_it_is_what_counting_bytes_gives(manifest: Manifest) -> None:
    seen: list[set[int]] = [set() for _ in manifest.object_sizes]
    at = -manifest.window_offset
    for index, offset, size in zip(
        manifest.object_indices, manifest.offsets, manifest.sizes, strict=True
    ):
        first, last = max(0, -at), min(size, manifest.window_size - at)
        seen[index].update(range(offset + first, offset + last))
        at += size
    found = exposure(manifest)
    assert [*found.inside] == [len(bytes_of) for bytes_of in seen]
    assert found.beyond == found.reachable - sum(found.inside)
