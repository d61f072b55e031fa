"""Where things go on a picture: widths that are true to size as far as labels allow."""

from __future__ import annotations

import colorsys
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from ze_ipc.cli.picture import Hole, Piece, Strip

MAX_ITEMS = 40
"""Mappings and holes drawn one by one; more are drawn in groups."""
KEPT_HOLES = 6
"""Of these, the largest holes, which are never hidden in a group."""
HOLE_SHARE = 0.12
"""A hole is drawn no wider than this share of what is mapped; then it is broken."""


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring mappings, and the small holes among them, drawn as one."""

    start: int
    end: int
    mappings: int
    holes: int

    @property
    def size(self) -> int:
        return self.end - self.start


Item = Piece | Hole | Group


def items_of(strip: Strip) -> list[Item]:
    """What is drawn of a strip: all of it, or groups where there is too much."""
    items: list[Piece | Hole] = list(strip.items())
    if len(items) <= MAX_ITEMS:
        return list(items)
    largest = sorted(strip.holes(), key=lambda hole: hole.size, reverse=True)[:KEPT_HOLES]
    kept = {hole.start for hole in largest}
    each = -(-len(items) // (MAX_ITEMS - KEPT_HOLES))
    grouped: list[Item] = []
    run: list[Piece | Hole] = []
    for item in items:
        if isinstance(item, Hole) and item.start in kept:
            grouped += _group(run)
            grouped.append(item)
            run = []
            continue
        run.append(item)
        if len(run) == each:
            grouped += _group(run)
            run = []
    return grouped + _group(run)


def _group(run: list[Piece | Hole]) -> list[Item]:
    if len(run) <= 1:
        return list(run)
    holes = sum(isinstance(item, Hole) for item in run)
    return [Group(run[0].start, run[-1].end, len(run) - holes, holes)]


def is_broken(item: Item, items: list[Item]) -> bool:
    """Whether a hole is drawn narrower than it is."""
    return isinstance(item, Hole) and _weight(item, _mapped(items)) < item.size


def widths(items: list[Item], total: float, least: float) -> list[float]:
    """Widths that add up to ``total``: in proportion to sizes, but none below ``least``."""
    mapped = _mapped(items)
    return spread([_weight(item, mapped) for item in items], total, least)


def _mapped(items: list[Item]) -> int:
    return sum(item.size for item in items if not isinstance(item, Hole))


def _weight(item: Item, mapped: int) -> float:
    if not isinstance(item, Hole) or not mapped:
        return item.size
    return min(item.size, HOLE_SHARE * mapped)


def spread(weights: list[float], total: float, least: float) -> list[float]:
    """Shares of ``total`` in proportion to the weights, none below ``least``."""
    least = min(least, total / max(1, len(weights)))
    low, high = 0.0, total / max(1.0, min(weights, default=1.0))
    for _ in range(100):
        scale = (low + high) / 2
        if sum(max(least, weight * scale) for weight in weights) > total:
            high = scale
        else:
            low = scale
    found = [max(least, weight * low) for weight in weights]
    rest = total - sum(found)
    return [width + rest / len(found) for width in found] if found else []


class Scale:
    """VA to position, piece by piece linear."""

    def __init__(self, items: list[Item], left: float, item_widths: list[float]) -> None:
        self._starts = [item.start for item in items]
        self._items = items
        self._widths = item_widths
        self._lefts = list(accumulate(item_widths, initial=left))

    def left(self, index: int) -> float:
        return self._lefts[index]

    def at(self, va: int) -> float:
        """The position of an address of the strip, its end included."""
        index = max(0, bisect_right(self._starts, va) - 1)
        item = self._items[index]
        share = min(1.0, (va - item.start) / item.size)
        return self._lefts[index] + share * self._widths[index]


def colour(obj: int) -> str:
    """``#rrggbb`` of an object: neighbours differ, and black text is legible on each."""
    hue = (0.58 + obj * 0.381966) % 1.0
    red, green, blue = colorsys.hls_to_rgb(hue, 0.72 if obj % 2 else 0.66, 0.62)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
