"""Columns of mappings in VA order that may be edited in the middle, whatever their number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from ze_ipc.columns import Columns

MAX_ROWS = 1024
"""Rows a chunk may have: an edit moves at most so many, a search looks at so few."""
NEW_ROWS = 768
"""Rows a new chunk gets at most, so that the next edit finds room."""
MIN_ROWS = 128
"""A chunk that shrinks below is joined with its neighbour."""

Position = tuple[int, int]
"""(chunk, row in it); an end position may be one past a chunk's last row."""


class ChunkedRows:
    """A sorted list of Columns chunks and an index of their first addresses."""

    def __init__(self) -> None:
        self._chunks: list[Columns] = []
        self._firsts: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def span(self, start: int, end: int) -> tuple[Position, Position]:
        """Positions ``[begin, end)`` of the rows that have a byte in ``[start, end)``; begin >= end
        where there are none.
        """
        return self._first_ending_after(start), self._first_starting_from(end)

    def between(self, start: int, end: int) -> Columns:
        """A copy of the rows that have a byte in ``[start, end)``."""
        index = bisect_right(self._firsts, start) - 1
        if index >= 0:  # mostly they are all in one chunk
            chunk = self._chunks[index]
            row, last = bisect_right(chunk.ends, start), bisect_left(chunk.starts, end)
            following = self._firsts[index + 1 : index + 2]
            if row < last and not (following and following[0] < end):
                return chunk.rows(row, last)
        return self.copy(*self.span(start, end))

    def copy(self, begin: Position, end: Position) -> Columns:
        """The rows of a span, as concatenated slices."""
        if begin >= end:
            return Columns.empty()
        (first, row), (last, last_row) = begin, end
        if first == last:
            return self._chunks[first].rows(row, last_row)
        found = self._chunks[first].rows(row, MAX_ROWS)
        for chunk in self._chunks[first + 1 : last]:
            found.extend(chunk)
        found.extend(self._chunks[last].rows(0, last_row))
        return found

    def row_at(self, va: int) -> tuple[int, int] | None:
        """(start, end) of the row that contains this address."""
        begin, end = self.span(va, va + 1)
        if begin >= end:
            return None
        chunk = self._chunks[begin[0]]
        return chunk.starts[begin[1]], chunk.ends[begin[1]]

    def first_start(self, begin: Position) -> int:
        """Start of the row at a position."""
        return self._chunks[begin[0]].starts[begin[1]]

    def replace(self, begin: Position, end: Position, new: Columns) -> None:
        """Put new rows in the place of a span; an empty span is where its rows would be."""
        if not self._chunks:
            self._put(0, 0, new)
            self._count = len(new)
            return
        if begin >= end:
            begin = end
        (first, row), (last, last_row) = begin, end
        chunk = self._chunks[first]
        if first == last:
            self._count += len(new) - (last_row - row)
            rows = len(chunk) + len(new) - (last_row - row)
            if 0 < rows <= MAX_ROWS:
                chunk.splice(row, last_row, new)
                self._firsts[first] = chunk.starts[0]
                self._join_small(first)
                return
        else:
            removed = len(chunk) - row + last_row
            removed += sum(map(len, self._chunks[first + 1 : last]))
            self._count += len(new) - removed
        edited = chunk.rows(0, row)
        edited.extend(new)
        edited.extend(self._chunks[last].rows(last_row, MAX_ROWS))
        self._put(first, last + 1, edited)
        self._join_small(first)

    def clear(self) -> Columns:
        """Remove all rows and give them back."""
        if not self._chunks:
            return Columns.empty()
        rows = self.copy((0, 0), (len(self._chunks) - 1, MAX_ROWS))
        self._chunks.clear()
        self._firsts.clear()
        self._count = 0
        return rows

    def _put(self, first: int, last: int, rows: Columns) -> None:
        """Replace the chunks ``[first, last)`` by as many as the rows need."""
        pieces = -(-len(rows) // NEW_ROWS)
        each = -(-len(rows) // pieces) if pieces else 1
        if pieces == 1:
            chunks = [rows]
        else:
            chunks = [rows.rows(i, i + each) for i in range(0, len(rows), each)]
        self._chunks[first:last] = chunks
        self._firsts[first:last] = [chunk.starts[0] for chunk in chunks]

    def _join_small(self, index: int) -> None:
        """Join a chunk that has become small with a neighbour, where both fit in one."""
        if index >= len(self._chunks) or len(self._chunks[index]) >= MIN_ROWS:
            return
        for left in (index - 1, index):
            if left >= 0 and left + 1 < len(self._chunks):
                into, gone = self._chunks[left], self._chunks[left + 1]
                if len(into) + len(gone) <= NEW_ROWS:
                    into.extend(gone)
                    del self._chunks[left + 1], self._firsts[left + 1]
                    return

    def _first_ending_after(self, address: int) -> Position:
        index = bisect_right(self._firsts, address) - 1
        if index < 0:
            return 0, 0
        ends = self._chunks[index].ends
        row = bisect_right(ends, address)
        return (index + 1, 0) if row == len(ends) else (index, row)

    def _first_starting_from(self, address: int) -> Position:
        index = bisect_left(self._firsts, address) - 1
        if index < 0:
            return 0, 0
        return index, bisect_left(self._chunks[index].starts, address)
