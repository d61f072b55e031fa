"""The mapping table at a million mappings, in counts of calls: nothing grows with the table."""

from __future__ import annotations

from array import array

import pytest

from helpers.calls import calls_of
from helpers.page_model import BASE, PAGE
from ze_ipc import chunked_rows
from ze_ipc.mapping_table import MappingTable
from ze_ipc.walk import walk

SMALL, LARGE = 1_000, 1_000_000


def table_of(count: int) -> MappingTable:
    """Back-to-back mappings of different objects, two pages each."""
    table = MappingTable()
    table.reserve(BASE, 2 * PAGE * count)
    objects, offsets = array("Q", range(1, count + 1)), array("Q", bytes(8 * count))
    sizes = array("Q", [2 * PAGE]) * count
    table.map_extents(BASE, objects, offsets, sizes, array("B", bytes(count)))
    return table


@pytest.fixture(scope="module")
def small() -> MappingTable:
    return table_of(SMALL)


@pytest.fixture(scope="module")
def large() -> MappingTable:
    return table_of(LARGE)


def middle(count: int) -> int:
    return BASE + count // 2 * 2 * PAGE


def test_a_window_of_ten(small: MappingTable, large: MappingTable) -> None:
    few, rows = calls_of(walk, small, middle(SMALL), 20 * PAGE, PAGE)
    many, other = calls_of(walk, large, middle(LARGE), 20 * PAGE, PAGE)
    assert len(rows) == len(other) == 10
    assert many <= 2 * few


def remap(table: MappingTable, address: int) -> None:
    """One mapping in the middle goes and comes again."""
    gone = table.unmap(address, 2 * PAGE)
    one = array("Q", [2 * PAGE])
    table.map_extents(address, gone.released, array("Q", [0]), one, array("B", [0]))


def test_map_and_unmap_in_the_middle(small: MappingTable, large: MappingTable) -> None:
    few, _ = calls_of(remap, small, middle(SMALL))
    many, _ = calls_of(remap, large, middle(LARGE))
    assert many <= 3 * few
    # An edit moves the rows of one chunk, and what a search looks at is no more.
    assert max(map(len, large._rows._chunks)) <= chunked_rows.MAX_ROWS


def test_a_storm_in_the_middle_leaves_the_chunks_small(large: MappingTable) -> None:
    first, _ = calls_of(remap, large, middle(LARGE))
    for step in range(3000):
        remap(large, middle(LARGE) + step % 1500 * 2 * PAGE)
    last, _ = calls_of(remap, large, middle(LARGE))
    assert last <= 2 * first
    assert max(map(len, large._rows._chunks)) <= chunked_rows.MAX_ROWS
    assert len(large._rows) == LARGE


def test_a_thousand_reservations_of_a_thousand_mappings() -> None:
    """The last reservation costs what the first did."""
    table = MappingTable()
    size = 1000 * PAGE
    objects, offsets = array("Q", range(1, 1001)), array("Q", bytes(8000))
    sizes, access = array("Q", [PAGE]) * 1000, array("B", bytes(1000))

    def fill(number: int) -> None:
        start = BASE + 2 * number * size
        table.reserve(start, size)
        table.map_extents(start, objects, offsets, sizes, access)

    counts = [calls_of(fill, number)[0] for number in range(1000)]
    assert max(counts[-100:]) <= 2 * max(counts[:100])
    assert len(table._rows) == 1_000_000
    few, rows = calls_of(walk, table, BASE + 1000 * size + 7 * PAGE, 10 * PAGE, PAGE)
    assert len(rows) == 10
    assert few <= 60


def test_exports_do_not_call_once_an_object(large: MappingTable, small: MappingTable) -> None:
    few, _ = calls_of(walk, small, BASE, SMALL * 2 * PAGE, PAGE)
    many, rows = calls_of(walk, large, BASE, LARGE * 2 * PAGE, PAGE)
    assert len(rows) == LARGE
    # A call for each of some thousand chunks that the window spans.
    assert many <= few + 12 * len(large._rows._chunks)
