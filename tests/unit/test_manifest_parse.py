"""Foreign bytes: whatever they are, InvalidHandle or a manifest that is consistent."""

from __future__ import annotations

import random
import struct
import tracemalloc
from array import array
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manifests import Window, windows
from helpers.page_model import BASE, PAGE, b, q
from ze_ipc.columns import Columns
from ze_ipc.errors import InvalidHandle
from ze_ipc.manifest import VA_PHASE_SIZE, Manifest, codec, encode, parse

HEADER = 112
DIGEST = slice(80, 112)


def sealed(data: bytes) -> bytes:
    """The same bytes with the digest that belongs to them: what a hostile exporter sends."""
    body = bytearray(data)
    body[DIGEST] = sha256(body[: DIGEST.start] + body[HEADER:]).digest()
    return bytes(body)


def a_manifest(rows: int = 5) -> Manifest:
    """Objects 1, 2, 3, 1 and so on, two pages each, a window that starts and ends inside a page."""
    objects = q(*(number % 3 + 1 for number in range(rows)))
    offsets = q(*(3 * number % 60 * PAGE for number in range(rows)))
    columns = Columns.back_to_back(
        BASE + PAGE, objects, offsets, q(2 * PAGE) * rows, b(0, 1, *[0] * rows)[:rows]
    )
    return Window(columns, BASE + PAGE + 7, 2 * PAGE * rows - 20).build()[0]


def refused(data: bytes) -> None:
    with pytest.raises(InvalidHandle):
        parse(data)


def test_a_thousand_random_flips() -> None:
    manifest = a_manifest(40)
    data = encode(manifest)
    dice = random.Random(1)
    for _ in range(1000):
        damaged = bytearray(data)
        for _ in range(dice.choice((1, 1, 1, 2, 8))):
            damaged[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        if bytes(damaged) != data:
            refused(bytes(damaged))
    assert parse(data) == manifest


def test_a_thousand_random_flips_under_a_right_digest() -> None:
    """Never another exception; what is accepted is a manifest that encodes to the same bytes."""
    data = encode(a_manifest(40))
    dice = random.Random(2)
    accepted = 0
    for _ in range(1000):
        damaged = bytearray(data)
        damaged[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        changed = sealed(bytes(damaged))
        try:
            assert encode(parse(changed)) == changed
            accepted += 1
        except InvalidHandle:
            continue
    assert 0 < accepted < 900


def test_every_truncation_and_extension() -> None:
    data = encode(a_manifest())
    for length in range(len(data)):
        refused(data[:length])
        if length >= HEADER:
            refused(sealed(data[:length]))
    refused(data + b"\0")
    refused(sealed(data + b"\0"))


@given(st.binary(max_size=300))
def test_noise(data: bytes) -> None:
    refused(data)
    refused(encode(a_manifest())[:8] + data)
    refused(sealed((encode(a_manifest())[:16] + data).ljust(HEADER, b"\0")))


@pytest.mark.parametrize("version", [0, 2, 0xFFFF])
def test_other_versions(version: int) -> None:
    data = bytearray(encode(a_manifest()))
    data[4:6] = struct.pack("<H", version)
    refused(sealed(bytes(data)))


@pytest.mark.parametrize("at", [8, 12])
@pytest.mark.parametrize("count", [0, 1, 6, 1 << 26, (1 << 26) + 1, 1 << 31, 0xFFFFFFFF])
def test_wrong_counts_allocate_nothing(at: int, count: int) -> None:
    data = bytearray(encode(a_manifest()))
    data[at : at + 4] = struct.pack("<I", count)
    tracemalloc.start()
    try:
        refused(sealed(bytes(data)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_huge_counts_in_both() -> None:
    data = bytearray(encode(a_manifest()))
    data[8:16] = struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF)
    refused(sealed(bytes(data)))


def put(column: str, index: int, value: int) -> Callable[[Manifest], Manifest]:
    """A manifest with one element changed."""

    def change(manifest: Manifest) -> Manifest:
        values: array[int] = getattr(manifest, column)[:]
        values[index] = value
        changes: dict[str, Any] = {column: values}
        return replace(manifest, **changes)

    return change


def field(name: str, value: int) -> Callable[[Manifest], Manifest]:
    """A manifest with one field of the header changed."""
    changes: dict[str, Any] = {name: value}
    return lambda manifest: replace(manifest, **changes)


TOP = 1 << 63
LIES = {
    "offset not of a page": put("offsets", 0, 5),
    "offset beyond the object": put("offsets", 2, 1 << 40),
    "offset with the top bit": put("offsets", 2, TOP),
    "offset + size overflows 63 bits": put("offsets", 2, TOP - PAGE),
    "offset + size overflows 64 bits": put("offsets", 2, (1 << 64) - PAGE),
    "size not of a page": put("sizes", 1, 2 * PAGE + 1),
    "size of nothing": put("sizes", 1, 0),
    "size that wraps the sum": put("sizes", 1, (1 << 64) - PAGE),
    "sizes more than the window": put("sizes", 1, 3 * PAGE),
    "sizes less than the window": put("sizes", 1, PAGE),
    "unknown access": put("access", 3, 2),
    "all access bits": put("access", 0, 255),
    "index beyond the objects": put("object_indices", 4, 3),
    "huge index": put("object_indices", 4, 0xFFFFFFFF),
    "objects out of order": put("object_indices", 0, 1),
    "unused object": put("object_indices", 2, 1),
    "object size not of a page": put("object_sizes", 0, 64 * PAGE + 5),
    "object without bytes": put("object_sizes", 2, 0),
    "object smaller than its extent": put("object_sizes", 1, PAGE),
    "object with the top bit": put("object_sizes", 1, TOP),
    "page size 0": field("page_size", 0),
    "page size 1": field("page_size", 1),
    "page size not a power of two": field("page_size", 3 * PAGE),
    "page size huge": field("page_size", 1 << 62),
    "page size larger than the extents": field("page_size", 1 << 21),
    "window of nothing": field("window_size", 0),
    "window with the top bit": field("window_size", TOP),
    "window that wraps": field("window_size", (1 << 64) - 1),
    "window after the last page": field("window_size", 10 * PAGE + 1),
    "window before the last page": field("window_size", 9 * PAGE - 7),
    "window after the first page": field("window_offset", PAGE),
    "window offset huge": field("window_offset", (1 << 64) - 1),
    "phase not of a page": field("va_phase", 5),
    "phase too large": field("va_phase", VA_PHASE_SIZE),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_under_a_right_digest_is_refused(lie: str) -> None:
    manifest = LIES[lie](a_manifest())
    assert manifest != a_manifest()
    refused(encode(manifest))


def one_extent(**changes: Any) -> Manifest:
    """One page of one object; with every other check satisfied, one lie at a time shows."""
    columns = Columns(q(BASE), q(BASE + PAGE), q(1), q(0), b(0))
    return replace(Window(columns, BASE, PAGE).build()[0], **changes)


CONSISTENT_LIES = {
    "an extent of no bytes": replace(
        a_manifest(), sizes=q(*(pages * PAGE for pages in (4, 0, 2, 2, 2)))
    ),
    "the end in the object overflows 63 bits": one_extent(
        offsets=q(TOP - PAGE), sizes=q(TOP - PAGE), window_size=TOP - PAGE
    ),
    "an object of 2 ** 63 bytes and more": one_extent(object_sizes=q(TOP + 64 * PAGE)),
    "a window after the first page": replace(
        a_manifest(), window_offset=PAGE + 7, window_size=9 * PAGE - 20
    ),
    "a window of no bytes": one_extent(window_offset=7, window_size=0),
    "a window of 2 ** 63 bytes": one_extent(
        object_indices=array("I", (0, 0)),
        object_sizes=q(TOP >> 1),
        offsets=q(0, 0),
        sizes=q(TOP >> 1, TOP >> 1),
        access=b(0, 0),
        window_size=TOP,
    ),
    "a page size that is no power of two": one_extent(
        page_size=0x5000, sizes=q(0x28000), window_size=0x28000
    ),
}


@pytest.mark.parametrize("lie", CONSISTENT_LIES)
def test_a_lie_that_is_consistent_is_refused(lie: str) -> None:
    refused(encode(CONSISTENT_LIES[lie]))
    assert parse(encode(one_extent())) == one_extent()


def test_the_lineage_is_carried() -> None:
    data = bytearray(encode(a_manifest()))
    data[70] = 1
    assert parse(sealed(bytes(data))).lineage == bytes(6) + b"\1" + bytes(9)


def test_the_largest_sane_values_pass() -> None:
    huge = TOP - VA_PHASE_SIZE
    columns = Columns(q(0), q(huge), q(1), q(0), b(1))
    manifest, _ = Window(columns, 3, huge - 3).build()
    manifest = replace(manifest, object_sizes=q(huge))
    assert parse(encode(manifest)) == manifest


@given(windows(max_rows=6), st.data())
def test_accepted_manifests_are_consistent(window: Window, data: st.DataObject) -> None:
    """Change any 8 bytes and seal: what passes has every property that an import relies on."""
    raw = bytearray(encode(window.build()[0]))
    at = data.draw(st.integers(0, len(raw) - 8))
    raw[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    try:
        manifest = parse(sealed(bytes(raw)))
    except InvalidHandle:
        return
    assert sum(manifest.sizes) == manifest.covered_size
    assert set(manifest.object_indices) == set(range(manifest.object_count))
    assert 0 <= manifest.window_offset < manifest.page_size
    end = manifest.window_offset + manifest.window_size
    assert manifest.covered_size - manifest.page_size < end <= manifest.covered_size
    for index, offset, size in zip(
        manifest.object_indices, manifest.offsets, manifest.sizes, strict=True
    ):
        assert size > 0
        assert offset % manifest.page_size == size % manifest.page_size == 0
        assert offset + size <= manifest.object_sizes[index]


@given(st.integers(1, 6), st.randoms(use_true_random=False), st.integers(0, 3))
def test_few_rows_are_checked_as_many_are(rows: int, dice: random.Random, flips: int) -> None:
    """Row by row or by columns: the same bytes are a manifest, sealed by whoever damaged them."""
    damaged = bytearray(encode(a_manifest(rows)))
    for _ in range(flips):
        damaged[dice.choice([*range(16, 80), *range(HEADER, len(damaged))])] ^= 1 << dice.randrange(
            8
        )
    data = sealed(bytes(damaged))
    outcomes = []
    for few in (0, 24):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(codec, "FEW", few)
            try:
                outcomes.append(parse(data))
            except InvalidHandle:
                outcomes.append(None)
    assert outcomes[0] == outcomes[1]
