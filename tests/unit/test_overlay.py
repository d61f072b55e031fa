"""What other code maps, under what the device itself has mapped."""

from __future__ import annotations

from array import array

import pytest

from ze_ipc import errors
from ze_ipc.columns import Columns
from ze_ipc.mapping_table import MappingTable
from ze_ipc.overlay import Overlay
from ze_ipc.walk import walk

PAGE = 4096


def seen(*rows: tuple[int, int, int]) -> Columns:
    """(first page, pages, object) rows."""
    found = Columns.empty()
    for first, pages, obj in rows:
        found.append(first * PAGE, (first + pages) * PAGE, obj, 0, 0)
    return found


def own(*rows: tuple[int, int, int]) -> MappingTable:
    table = MappingTable()
    for first, pages, obj in rows:
        table.reserve(first * PAGE, pages * PAGE)
        table.map_extents(
            first * PAGE,
            array("Q", [obj]),
            array("Q", [0]),
            array("Q", [pages * PAGE]),
            array("B", [0]),
        )
    return table


def test_both_make_one_range_in_the_order_of_addresses() -> None:
    table = Overlay(own((2, 2, 20), (6, 1, 60)), seen((1, 1, 10), (4, 2, 40), (7, 1, 70)), [])
    rows = walk(table, PAGE + 5, 7 * PAGE - 5, PAGE)
    assert list(rows.objects) == [10, 20, 40, 60, 70]
    assert list(rows.starts) == [page * PAGE for page in (1, 2, 4, 6, 7)]
    with pytest.raises(errors.AddressNotFound) as caught:
        walk(table, PAGE, 8 * PAGE, PAGE)
    assert caught.value.address == 8 * PAGE


def test_the_table_is_right_where_both_know_something() -> None:
    table = Overlay(own((2, 2, 20)), seen((1, 1, 10), (3, 2, 99), (5, 1, 50)), [])
    rows = table.window(PAGE, 5 * PAGE)
    assert list(rows.objects) == [10, 20, 50]


def test_rows_outside_the_window_are_left_out() -> None:
    table = Overlay(own((0x10, 1, 1)), seen((0x20, 1, 2), (0x30, 1, 3)), [])
    assert list(table.window(0x20 * PAGE, PAGE).objects) == [2]
    assert list(table.window(0x11 * PAGE, PAGE).objects) == []


@pytest.mark.parametrize(("first", "refused"), [(1, True), (2, False), (3, True)])
def test_allocations_of_both_are_refused(first: int, refused: bool) -> None:
    mine = own((2, 1, 20))
    mine.add_usm(1 * PAGE, PAGE, 10)
    table = Overlay(mine, Columns.empty(), [(3 * PAGE, 4 * PAGE)])
    if refused:
        with pytest.raises(errors.InvalidArgument):
            walk(table, first * PAGE, 10, PAGE)
        assert [usm.start for usm in table.usm_in(0, 9 * PAGE)] == [PAGE, 3 * PAGE]
    else:
        assert len(walk(table, first * PAGE, 10, PAGE)) == 1
