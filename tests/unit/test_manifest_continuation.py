"""Whether a manifest goes on from another, by a model of bytes."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ze_ipc.columns import Columns
from ze_ipc.manifest import Manifest, build, continuation

PAGE = 4096
Pages = list[tuple[int, int, int]]
"""(object, page of it, access), one a page of the range."""


def manifest_of(pages: Pages, offset: int = 0) -> Manifest:
    rows = Columns(
        array("Q", range(PAGE, PAGE * (len(pages) + 1), PAGE)),
        array("Q", range(2 * PAGE, PAGE * (len(pages) + 2), PAGE)),
        array("Q", (obj for obj, _, _ in pages)),
        array("Q", (PAGE * page for _, page, _ in pages)),
        array("B", (access for _, _, access in pages)),
    )
    manifest, _ = build(
        rows,
        PAGE + offset,
        len(pages) * PAGE - offset,
        device_uuid=bytes(16),
        page_size=PAGE,
        object_sizes=lambda objects: array("Q", [8 * PAGE] * len(objects)),
    )
    return replace(manifest, lineage=b"l" * 16)


def pages_of(
    indices: array[int], offsets: array[int], sizes: array[int], access: array[int]
) -> Pages:
    return [
        (index, (offset + at) // PAGE, bits)
        for index, offset, size, bits in zip(indices, offsets, sizes, access, strict=True)
        for at in range(0, size, PAGE)
    ]


def all_pages(manifest: Manifest) -> Pages:
    return pages_of(manifest.object_indices, manifest.offsets, manifest.sizes, manifest.access)


some_pages = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 7), st.integers(0, 1)), min_size=1, max_size=12
)


@given(some_pages, some_pages)
def test_what_was_appended_is_the_tail(first: Pages, more: Pages) -> None:
    old, new = manifest_of(first), manifest_of(first + more)
    tail = continuation(old, new)
    assert tail is not None
    found = pages_of(tail.object_indices, tail.offsets, tail.sizes, tail.access)
    assert all_pages(old) + found == all_pages(new)
    assert continuation(new, old) is None
    nothing = continuation(new, new)
    assert nothing is not None
    assert not nothing.sizes


@given(some_pages, some_pages)
def test_only_a_beginning_is_continued(first: Pages, second: Pages) -> None:
    old, new = manifest_of(first), manifest_of(second)
    begins = all_pages(new)[: len(first)] == all_pages(old)
    assert (continuation(old, new) is not None) == begins


@pytest.mark.parametrize(
    "change",
    [
        {"lineage": b"m" * 16},
        {"device_uuid": b"u" * 16},
        {"window_offset": 1},
        {"va_phase": 0},
        {"page_size": 2 * PAGE},
        {"object_sizes": array("Q", [9 * PAGE, 8 * PAGE])},
    ],
)
def test_the_place_must_be_the_same(change: dict[str, object]) -> None:
    old, new = manifest_of([(1, 0, 0)]), manifest_of([(1, 0, 0), (2, 0, 0)])
    assert continuation(old, new) is not None
    assert continuation(old, replace(new, **change)) is None  # type: ignore[arg-type]
