"""A mapping table, and under it what other code of the process was seen to map."""

from __future__ import annotations

from ze_ipc.columns import Columns
from ze_ipc.intervals import Interval
from ze_ipc.mapping_table import MappingTable


class Overlay:
    """What ``walk`` asks for; where both know something, the table is right."""

    def __init__(
        self, own: MappingTable, seen: Columns, allocations: list[tuple[int, int]]
    ) -> None:
        """``seen`` and ``allocations`` (start, end) are in the order of their addresses."""
        self._own = own
        self._seen = seen
        self._allocations = allocations

    def usm_in(self, start: int, end: int) -> list[Interval[int]]:
        """The allocations that have a byte in ``[start, end)``; others' have object 0."""
        seen = [
            Interval(first, last, 0)
            for first, last in self._allocations
            if first < end and start < last
        ]
        return sorted(self._own.usm_in(start, end) + seen, key=lambda found: found.start)

    def window(self, ptr: int, size: int) -> Columns:
        """The rows that have a byte in ``[ptr, ptr + size)``, whole."""
        own, end = self._own.window(ptr, size), ptr + size
        found = Columns.empty()
        index = 0
        for at, start in enumerate(self._seen.starts):
            last = self._seen.ends[at]
            if start >= end or last <= ptr or len(self._own.window(start, last - start)):
                continue
            upto = index
            while upto < len(own) and own.starts[upto] < start:
                upto += 1
            found.extend(own.rows(index, upto))
            found.extend(self._seen.rows(at, at + 1))
            index = upto
        found.extend(own.rows(index, len(own)))
        return found
