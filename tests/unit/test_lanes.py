"""Arithmetic on whole columns is arithmetic on each element."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ze_ipc import lanes

u64 = st.integers(0, (1 << 64) - 1)
u63 = st.integers(0, lanes.LIMIT - 1)
EDGES = st.sampled_from([0, 1, 4095, 4096, lanes.LIMIT - 1, lanes.LIMIT, (1 << 64) - 1])


@given(st.lists(u64 | EDGES))
def test_wide_and_column_are_inverse(values: list[int]) -> None:
    column = array("Q", values)
    assert lanes.column(lanes.wide(column), len(column)) == column


@given(st.lists(st.tuples(u64 | EDGES, u64 | EDGES)))
def test_difference(pairs: list[tuple[int, int]]) -> None:
    high = array("Q", (max(pair) for pair in pairs))
    low = array("Q", (min(pair) for pair in pairs))
    assert list(lanes.difference(high, low)) == [max(p) - min(p) for p in pairs]


@given(st.lists(u64 | EDGES, max_size=6), u64 | EDGES)
def test_none_has_bits(values: list[int], bits: int) -> None:
    found = lanes.none_has_bits(lanes.wide(array("Q", values)), bits, len(values))
    assert found is all(not value & bits for value in values)


@given(st.lists(u64 | EDGES, max_size=6))
def test_all_below_limit(values: list[int]) -> None:
    found = lanes.all_below_limit(lanes.wide(array("Q", values)), len(values))
    assert found is all(value < 1 << 63 for value in values)


small = u63 | st.integers(0, 3) | st.just(lanes.LIMIT - 1)


@given(st.lists(st.tuples(small, small), max_size=6))
def test_all_at_least(pairs: list[tuple[int, int]]) -> None:
    values = lanes.wide(array("Q", (pair[0] for pair in pairs)))
    bounds = lanes.wide(array("Q", (pair[1] for pair in pairs)))
    assert lanes.all_at_least(values, bounds, len(pairs)) is all(a >= b for a, b in pairs)


@given(u64 | EDGES, st.integers(0, 5))
def test_repeat(value: int, count: int) -> None:
    assert list(lanes.column(lanes.repeat(value, count), count)) == [value] * count


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.booleans())
def test_strictly_ascending(values: list[int], in_order: bool) -> None:
    column = array("Q", sorted(values) if in_order else values)
    expected = all(a < b for a, b in pairwise(column)) and all(v < lanes.LIMIT for v in column)
    assert lanes.strictly_ascending(column) == expected
