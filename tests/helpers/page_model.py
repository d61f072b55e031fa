"""The simplest thing a mapping table could be: a dictionary of pages and a list of rows."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from ze_ipc.columns import Columns

PAGE = 4096
BASE = 1 << 40


@dataclass(frozen=True)
class Row:
    """A mapping; numbers are pages, counted from BASE."""

    start: int
    end: int
    obj: int
    offset: int
    access: int


@dataclass
class PageModel:
    """Rows in a list, everything else in dictionaries by page."""

    rows: list[Row] = field(default_factory=list)
    reserved: dict[int, int] = field(default_factory=dict)
    """page -> reservation's first page"""
    usm: dict[int, int] = field(default_factory=dict)
    """page -> allocation's first page"""

    def pages(self) -> dict[int, tuple[int, int, int]]:
        """page -> (object, page of the object, access)"""
        return {
            page: (row.obj, row.offset + page - row.start, row.access)
            for row in self.rows
            for page in range(row.start, row.end)
        }

    def row_at(self, page: int) -> Row | None:
        """The row that has this page."""
        return next((row for row in self.rows if row.start <= page < row.end), None)

    def unmap(self, start: int, end: int) -> tuple[list[int], list[int]]:
        """(released, retained) objects."""
        kept: list[Row] = []
        released, retained = [], []
        for row in self.rows:
            if row.end <= start or row.start >= end:
                kept.append(row)
                continue
            rest = []
            if row.start < start:
                rest.append(Row(row.start, start, row.obj, row.offset, row.access))
            if row.end > end:
                rest.append(Row(end, row.end, row.obj, row.offset + end - row.start, row.access))
            if not rest:
                released.append(row.obj)
            if len(rest) == 2:
                retained.append(row.obj)
            kept += rest
        self.rows = kept
        return released, retained


def as_rows(columns: Columns) -> list[Row]:
    """Columns as the model's rows."""
    each = zip(
        columns.starts,
        columns.ends,
        columns.objects,
        columns.offsets,
        columns.access,
        strict=True,
    )
    return [
        Row((start - BASE) // PAGE, (end - BASE) // PAGE, obj, offset // PAGE, access)
        for start, end, obj, offset, access in each
    ]


def q(*values: int) -> array[int]:
    """A column of unsigned 64-bit integers."""
    return array("Q", values)


def b(*values: int) -> array[int]:
    """A column of access bits."""
    return array("B", values)
