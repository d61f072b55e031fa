"""Arithmetic on whole columns of unsigned 64-bit integers, without a Python loop.

A column's bytes are read as one big integer whose 64-bit lanes are the column's elements. Adding or
subtracting two such integers works on every lane at once as long as no lane carries or borrows,
which each function either guarantees or states. It costs some 15 ns an element where a Python loop
costs 60 and more.
"""

from __future__ import annotations

import sys
from array import array

LIMIT = 1 << 63
"""Values below it leave the top bit of a lane free, which the comparisons need."""

_TOP = 1 << 63


def wide(column: array[int]) -> int:
    """The column (``array('Q')``) as one integer."""
    return int.from_bytes(column, sys.byteorder)


def column(lanes: int, count: int) -> array[int]:
    """The inverse of wide()."""
    return array("Q", lanes.to_bytes(8 * count, sys.byteorder))


def repeat(value: int, count: int) -> int:
    """The same value in every lane."""
    return int.from_bytes(value.to_bytes(8, sys.byteorder) * count, sys.byteorder)


def difference(minuends: array[int], subtrahends: array[int]) -> array[int]:
    """``minuends[i] - subtrahends[i]``, none of which may be negative."""
    return column(wide(minuends) - wide(subtrahends), len(minuends))


def none_has_bits(lanes: int, bits: int, count: int) -> bool:
    """Whether no element has any of these bits set."""
    return not lanes & repeat(bits, count)


def all_below_limit(lanes: int, count: int) -> bool:
    """Whether every element is below LIMIT."""
    return none_has_bits(lanes, _TOP, count)


def strictly_ascending(values: array[int]) -> bool:
    """Whether every element is greater than the one before, so that none comes twice; all must be
    below LIMIT, else it is False.
    """
    count = len(values)
    lanes = wide(values)
    if not all_below_limit(lanes, count):
        return False
    if count < 2:
        return True
    later, earlier = lanes >> 64, lanes & ((1 << 64 * (count - 1)) - 1)
    if sys.byteorder != "little":
        later, earlier = earlier, later
    return all_at_least(later, earlier + repeat(1, count - 1), count - 1)


def all_at_least(lanes: int, bounds: int, count: int) -> bool:
    """Whether every element is >= its bound; all of both must be below LIMIT."""
    tops = repeat(_TOP, count)
    # With the top bit set, no lane can borrow from its neighbour; the bit survives where a >= b.
    return ((lanes | tops) - bounds) & tops == tops
