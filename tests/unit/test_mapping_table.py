"""The mapping table by example: errors and their addresses, and costs that do not grow with it."""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Callable

import pytest

from helpers.page_model import BASE, PAGE, as_rows, b, q
from ze_ipc import chunked_rows
from ze_ipc.errors import AddressNotFound, HandleObjectInUse, InvalidArgument, InvalidSize
from ze_ipc.mapping_table import MappingTable
from ze_ipc.walk import walk


def table_of(count: int, size: int = PAGE) -> MappingTable:
    """``count`` back-to-back mappings of different objects from BASE on."""
    table = MappingTable()
    table.reserve(BASE, count * size)
    objects = array("Q", range(1, count + 1))
    table.map_extents(BASE, objects, q(0) * count, q(size) * count, b(0) * count)
    return table


def test_a_mapping_may_cross_adjacent_reservations() -> None:
    table = MappingTable()
    table.reserve(BASE, PAGE)
    table.reserve(BASE + PAGE, 2 * PAGE)
    table.map_extents(BASE, q(7), q(0), q(3 * PAGE), b(0))
    assert table.address_range(BASE + PAGE) == (BASE, 3 * PAGE)
    assert table.reservation_at(BASE + PAGE) == (BASE + PAGE, 2 * PAGE)
    for start, size in ((BASE, PAGE), (BASE + PAGE, 2 * PAGE)):
        with pytest.raises(HandleObjectInUse) as caught:
            table.unreserve(start, size)
        assert caught.value.address == start


def test_columns_of_different_length_are_refused() -> None:
    table = MappingTable()
    table.reserve(BASE, 8 * PAGE)
    with pytest.raises(InvalidArgument):
        table.map_extents(BASE, q(1, 2), q(0), q(PAGE), b(0))
    with pytest.raises(InvalidSize):
        table.map_extents(BASE, q(), q(), q(), b())
    with pytest.raises(InvalidSize):
        table.map_extents(BASE, q(1, 2), q(0, 0), q(PAGE, 0), b(0, 0))
    with pytest.raises(InvalidSize):
        table.map_extents(BASE, q(1), q(0), q(0), b(0))
    assert len(table) == 0


@pytest.mark.parametrize("sizes", [(PAGE, PAGE), (PAGE, 2 * PAGE)])
def test_a_mapping_beyond_the_address_space_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgument):
        MappingTable().map_extents((1 << 64) - PAGE, q(1, 2), q(0, 0), q(*sizes), b(0, 0))


@pytest.mark.parametrize("call", ["reserve", "unmap"])
def test_ranges_that_are_none_are_refused(call: str) -> None:
    verb = getattr(MappingTable(), call)
    for size in (0, -1):
        with pytest.raises(InvalidSize):
            verb(BASE, size)
    for start in (-1, (1 << 64) - PAGE + 1):
        with pytest.raises(InvalidArgument):
            verb(start, PAGE)


def test_the_caller_may_change_its_columns_afterwards() -> None:
    table = MappingTable()
    table.reserve(BASE, 2 * PAGE)
    objects, offsets, access = q(1, 2), q(0, 0), b(0, 1)
    table.map_extents(BASE, objects, offsets, q(PAGE, PAGE), access)
    objects[0], offsets[0], access[0] = 9, 9, 9
    window = table.window(BASE, PAGE)
    window.starts[0] = 1
    assert table.window(BASE, 2 * PAGE).objects == q(1, 2)
    assert table.window(BASE, PAGE).starts == q(BASE)


def test_imported_windows_answer_exactly() -> None:
    table = table_of(4)
    ptr, size = BASE + 100, 4 * PAGE - 300
    table.add_import(ptr, size)
    assert table.import_at(BASE + 99) is None
    for va in (ptr, ptr + PAGE, ptr + size - 1):
        assert table.address_range(va) == (ptr, size)
        assert table.import_at(va) == (ptr, size)
    assert table.address_range(ptr + size) == (BASE + 3 * PAGE, PAGE)
    with pytest.raises(InvalidArgument):
        table.add_import(ptr + 1, 5)
    for pages in ((BASE, PAGE), (ptr + 1, size), (BASE + 8 * PAGE, PAGE)):
        with pytest.raises(InvalidArgument):
            table.remove_import(*pages)
    assert table.remove_import(BASE, 4 * PAGE) == (ptr, size)
    assert table.address_range(ptr) == (BASE, PAGE)


def test_unmapped_addresses_have_no_range() -> None:
    table = MappingTable()
    table.reserve(BASE, PAGE)
    with pytest.raises(AddressNotFound) as caught:
        table.address_range(BASE + 5)
    assert caught.value.address == BASE + 5


def test_clear_gives_all_references_back() -> None:
    table = table_of(3)
    table.add_usm(1 << 30, PAGE, 77)
    assert sorted(table.clear()) == [1, 2, 3, 77]
    assert list(table.clear()) == []
    table.reserve(BASE, PAGE)


def test_a_table_that_shrinks_has_few_chunks() -> None:
    count = 20_000
    table = table_of(count)
    for row in range(count):
        if row % 100:
            table.unmap(BASE + row * PAGE, PAGE)
    assert len(table) == count // 100
    assert len(table._rows._chunks) <= 4
    assert as_rows(table.window(BASE, count * PAGE))[-1].obj == count - 99


def test_a_table_that_grows_row_by_row_has_full_chunks() -> None:
    count = 20_000
    table = MappingTable()
    table.reserve(BASE, count * PAGE)
    for row in range(count):
        table.map_extents(BASE + row * PAGE, q(row), q(0), q(PAGE), b(0))
    assert list(table.window(BASE, count * PAGE).objects) == list(range(count))
    assert len(table._rows._chunks) <= 2 * count // chunked_rows.MAX_ROWS + 2


def _median_cost(call: Callable[[], object]) -> float:
    times = []
    for _ in range(31):
        start = time.thread_time_ns()
        for _ in range(10):
            call()
        times.append(time.thread_time_ns() - start)
    return statistics.median(times)


def test_costs_do_not_grow_with_the_table() -> None:
    """A window of 10 costs at most twice, an edit in the middle at most three times as much among
    a million mappings as among a thousand. Medians of CPU time; a noisy machine gets more tries.
    """
    small, large = table_of(1_000), table_of(1_000_000)

    def window(table: MappingTable) -> Callable[[], object]:
        middle = BASE + len(table) // 2 * PAGE
        return lambda: walk(table, middle, 10 * PAGE, PAGE)

    def edit(table: MappingTable) -> Callable[[], object]:
        middle = BASE + len(table) // 2 * PAGE

        def unmap_and_map() -> None:
            gone = table.unmap(middle, PAGE)
            table.map_extents(middle, gone.released, q(0), q(PAGE), b(0))

        return unmap_and_map

    for what, bound in ((window, 2), (edit, 3)):
        ratios = []
        for _ in range(9):
            ratios.append(_median_cost(what(large)) / _median_cost(what(small)))
            if min(ratios) <= bound:
                break
        assert min(ratios) <= bound, (what.__name__, ratios)
