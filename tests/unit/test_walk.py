"""What may be exported, and with which error it is refused otherwise."""

from __future__ import annotations

import pytest

from helpers.page_model import BASE, PAGE, b, q
from ze_ipc.errors import (
    AddressNotFound,
    InvalidArgument,
    InvalidNullPointer,
    InvalidSize,
    Result,
    ZeIpcError,
)
from ze_ipc.mapping_table import MappingTable
from ze_ipc.walk import extents_of, walk

MIB = 1 << 20


@pytest.fixture
def table() -> MappingTable:
    """Objects at 0-2 and 4-6 MiB, a hole between, and USM at 8 MiB."""
    table = MappingTable()
    table.reserve(BASE, 8 * MIB)
    table.map_extents(BASE, q(1, 2), q(0, 4 * MIB), q(MIB, MIB), b(0, 1))
    table.map_extents(BASE + 4 * MIB, q(3), q(0), q(2 * MIB), b(0))
    table.add_usm(BASE + 8 * MIB, MIB, 9)
    return table


@pytest.mark.parametrize(
    ("ptr", "size", "error", "address"),
    [
        (0, 0, InvalidSize, None),
        (BASE + 8 * MIB, 0, InvalidSize, None),
        (BASE, -1, InvalidSize, None),
        (0, MIB, InvalidNullPointer, None),
        (-1, MIB, InvalidArgument, None),
        (BASE, 6 * MIB, AddressNotFound, BASE + 2 * MIB),
        (BASE + MIB, 100 * MIB, InvalidArgument, BASE + 8 * MIB),
        (BASE + 8 * MIB, 1, InvalidArgument, BASE + 8 * MIB),
        (BASE + 8 * MIB + 5, 1, InvalidArgument, BASE + 8 * MIB + 5),
        (BASE + 6 * MIB, 2 * MIB + 1, InvalidArgument, BASE + 8 * MIB),
        (BASE + 6 * MIB, 2 * MIB, AddressNotFound, BASE + 6 * MIB),
        (BASE + 2 * MIB - 1, 2, AddressNotFound, BASE + 2 * MIB),
        (BASE + 2 * MIB + 7, 2 * MIB, AddressNotFound, BASE + 2 * MIB + 7),
        (BASE - 5, 10, AddressNotFound, BASE - 5),
        (1, 1, AddressNotFound, 1),
        (1, BASE, AddressNotFound, 1),
        (BASE + 9 * MIB, (1 << 64) - BASE, AddressNotFound, BASE + 9 * MIB),
        ((1 << 64) - 1, 2, AddressNotFound, (1 << 64) - 1),
        (1 << 64, 1, AddressNotFound, 1 << 64),
        (BASE, 1 << 64, InvalidArgument, BASE + 8 * MIB),
    ],
)
def test_refusals(
    table: MappingTable, ptr: int, size: int, error: type[ZeIpcError], address: int | None
) -> None:
    with pytest.raises(ZeIpcError) as caught:
        walk(table, ptr, size, PAGE)
    assert type(caught.value) is error
    assert caught.value.address == address
    assert caught.value.result is error.default_result


def test_a_hole_is_named_by_both_ends(table: MappingTable) -> None:
    with pytest.raises(AddressNotFound) as caught:
        walk(table, BASE, 6 * MIB, PAGE)
    assert (caught.value.address, caught.value.end) == (BASE + 2 * MIB, BASE + 4 * MIB)
    with pytest.raises(AddressNotFound) as caught:
        walk(table, BASE + 4 * MIB, 3 * MIB, PAGE)
    assert (caught.value.address, caught.value.end) == (BASE + 6 * MIB, BASE + 7 * MIB)
    assert caught.value.result is Result.ADDRESS_NOT_FOUND


@pytest.mark.parametrize(
    ("first", "last", "start", "end", "offset"),
    [
        (0, 2 * MIB, 0, 2 * MIB, 0),
        (1, 2, 0, PAGE, 0),
        (PAGE - 1, PAGE + 1, 0, 2 * PAGE, 0),
        (PAGE, 2 * PAGE, PAGE, 2 * PAGE, PAGE),
        (MIB + PAGE + 3, MIB + 3 * PAGE - 3, MIB + PAGE, MIB + 3 * PAGE, 4 * MIB + PAGE),
        (MIB - 1, MIB + 1, MIB - PAGE, MIB + PAGE, MIB - PAGE),
    ],
)
def test_rows_are_clipped_to_pages(
    table: MappingTable, first: int, last: int, start: int, end: int, offset: int
) -> None:
    rows = walk(table, BASE + first, last - first, PAGE)
    assert (rows.starts[0], rows.ends[-1]) == (BASE + start, BASE + end)
    assert rows.offsets[0] == offset
    assert sum(rows.sizes) == end - start
    assert (len(rows) == 2) is (first < MIB < last)


def test_pages_larger_than_the_rows_do_not_reach_beyond_them() -> None:
    table = MappingTable()
    table.reserve(BASE, 16 * PAGE)
    table.map_extents(BASE + PAGE, q(1), q(PAGE), q(2 * PAGE), b(0))
    rows = walk(table, BASE + PAGE + 5, PAGE, 16 * PAGE)
    assert (rows.starts, rows.ends) == (q(BASE + PAGE), q(BASE + 3 * PAGE))
    assert rows.offsets == q(PAGE)


def test_walking_changes_nothing(table: MappingTable) -> None:
    before = table.window(BASE, 8 * MIB)
    walk(table, BASE + 5, MIB, PAGE)
    extents_of(table, BASE + 5, MIB)
    assert table.window(BASE, 8 * MIB) == before


def test_bytes_may_be_reached_across_usm_and_mappings() -> None:
    table = MappingTable()
    table.add_usm(BASE, PAGE, 5)
    table.reserve(BASE + PAGE, PAGE)
    table.map_extents(BASE + PAGE, q(6), q(3 * PAGE), q(PAGE), b(1))
    table.add_usm(BASE + 2 * PAGE, PAGE, 7)
    rows = extents_of(table, BASE + 10, 3 * PAGE - 30)
    assert rows.objects == q(5, 6, 7)
    assert rows.offsets == q(10, 3 * PAGE, 0)
    assert rows.sizes == q(PAGE - 10, PAGE, PAGE - 20)
    assert rows.access == b(0, 1, 0)
    with pytest.raises(AddressNotFound) as caught:
        extents_of(table, BASE + 1, 3 * PAGE, call="read")
    assert caught.value.address == BASE + 3 * PAGE
    assert caught.value.call == "read"
    for ptr, size, error in ((BASE, 0, InvalidSize), (0, 1, InvalidNullPointer)):
        with pytest.raises(error):
            extents_of(table, ptr, size)
