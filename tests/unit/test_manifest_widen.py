"""A window in the larger pages of another device: the same bytes, or a refusal."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ze_ipc.errors import UnsupportedAlignment
from ze_ipc.manifest import Manifest, widen

SMALL, LARGE = 4096, 65536


def manifest(
    rows: list[tuple[int, int, int]], sizes: list[int], window_offset: int, window_size: int
) -> Manifest:
    """From (object, offset, size) rows."""
    return Manifest(
        device_uuid=bytes(16),
        page_size=SMALL,
        window_offset=window_offset,
        window_size=window_size,
        va_phase=5 * SMALL,
        object_sizes=array("Q", sizes),
        object_indices=array("I", [row[0] for row in rows]),
        offsets=array("Q", [row[1] for row in rows]),
        sizes=array("Q", [row[2] for row in rows]),
        access=array("B", [0] * len(rows)),
    )


def window(m: Manifest, step: int) -> Iterator[tuple[int, int]]:
    """(object, byte of it) of every ``step``-th byte of the window."""
    starts, at = [], 0
    for index, offset, size in zip(m.object_indices, m.offsets, m.sizes, strict=True):
        starts.append((at, at + size, index, offset))
        at += size
    assert at == m.covered_size
    for byte in range(m.window_offset, m.window_offset + m.window_size, step):
        (found,) = [s for s in starts if s[0] <= byte < s[1]]
        yield found[2], found[3] + byte - found[0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=5),
    st.integers(0, 15),
    st.integers(0, 15),
    st.integers(0, SMALL - 1),
)
def test_the_bytes_are_the_same(
    rows: list[tuple[int, int]], first: int, last: int, inside: int
) -> None:
    """Rows in large pages; the first begins and the last ends at any small page of one."""
    extents = [(i, at * LARGE, n * LARGE) for i, (at, n) in enumerate(rows)]
    obj, offset, size = extents[0]
    extents[0] = (obj, offset + first * SMALL, size - first * SMALL)
    obj, offset, size = extents[-1]
    cut = last * SMALL if size > last * SMALL else 0
    extents[-1] = (obj, offset, size - cut)
    whole = sum(size for _, _, size in extents)
    narrow = manifest(extents, [8 * LARGE] * len(rows), inside, whole - inside)
    wide = widen(narrow, LARGE)
    assert list(window(wide, 509)) == list(window(narrow, 509))
    assert wide.page_size == LARGE
    assert wide.va_phase % LARGE == 0
    assert not [n for n in (*wide.offsets, *wide.sizes) if n % LARGE]
    assert narrow.page_size == SMALL, "the narrow one stays as it was"


def test_pages_that_are_large_enough_stay() -> None:
    narrow = manifest([(0, SMALL, SMALL)], [LARGE], 0, SMALL)
    assert widen(narrow, SMALL) is narrow


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        pytest.param([(0, 0, SMALL), (1, 0, LARGE)], [LARGE, LARGE], id="ends within"),
        pytest.param([(0, 0, LARGE), (1, SMALL, LARGE)], [LARGE, 2 * LARGE], id="begins within"),
        pytest.param([(0, 0, SMALL)], [2 * SMALL], id="object too short"),
    ],
)
def test_seams_within_a_page_are_refused(
    rows: list[tuple[int, int, int]], sizes: list[int]
) -> None:
    narrow = manifest(rows, sizes, 0, sum(row[2] for row in rows))
    with pytest.raises(UnsupportedAlignment):
        widen(narrow, LARGE)
