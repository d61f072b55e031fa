"""The mapping table against a dictionary of pages, with chunks small enough to split and join."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.page_model import BASE, PAGE, PageModel, Row, as_rows
from ze_ipc import chunked_rows
from ze_ipc.errors import AddressNotFound, HandleObjectInUse, InvalidArgument
from ze_ipc.mapping_table import MappingTable
from ze_ipc.walk import extents_of, walk

SPACE = 96
starts = st.integers(0, SPACE - 1)
lengths = st.integers(1, 24)
extents = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 9), st.integers(1, 4), st.integers(0, 1)),
    min_size=1,
    max_size=24,
)

full = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 9), st.integers(1, 3), st.integers(0, 1)),
    min_size=20,
    max_size=25,
)


def va(page: int) -> int:
    return BASE + page * PAGE


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(chunked_rows, "MAX_ROWS", 6)
        self.patch.setattr(chunked_rows, "NEW_ROWS", 4)
        self.patch.setattr(chunked_rows, "MIN_ROWS", 3)
        self.table = MappingTable()
        self.model = PageModel()
        self.references: Counter[int] = Counter()

    def teardown(self) -> None:
        self.patch.undo()
        self.references.subtract(self.table.clear())
        self.references.update(dict.fromkeys(self.model.usm.values(), 0))
        for first in set(self.model.usm.values()):
            self.references[first + 1000] += 1
        assert not +self.references
        assert not -self.references
        assert len(self.table) == 0
        assert len(self.table.window(BASE, SPACE * PAGE)) == 0

    @initialize(first=st.integers(0, 12), rows=full)
    def fill(self, first: int, rows: list[tuple[int, int, int, int]]) -> None:
        """Start from two adjacent reservations, most of both mapped back to back."""
        self.reserve(0, SPACE // 2)
        self.reserve(SPACE // 2, SPACE // 2 - 8)
        self.map_extents(first, rows)

    @rule(start=starts, length=lengths)
    def reserve(self, start: int, length: int) -> None:
        pages = range(start, start + length)
        if any(page in self.model.reserved or page in self.model.usm for page in pages):
            with pytest.raises(InvalidArgument):
                self.table.reserve(va(start), length * PAGE)
        else:
            self.table.reserve(va(start), length * PAGE)
            self.model.reserved.update(dict.fromkeys(pages, start))

    @rule(start=starts, data=st.data())
    def unreserve(self, start: int, data: st.DataObject) -> None:
        first = self.model.reserved.get(start, start)
        pages = [page for page, owner in self.model.reserved.items() if owner == first]
        size = len(pages) * PAGE or PAGE
        if not pages:
            with pytest.raises(InvalidArgument):
                self.table.unreserve(va(first), size)
        elif any(self.model.row_at(page) for page in pages):
            with pytest.raises(HandleObjectInUse):
                self.table.unreserve(va(first), size)
        else:
            with pytest.raises(InvalidArgument):
                self.table.unreserve(va(first), size + PAGE)
            self.table.unreserve(va(first), size)
            for page in pages:
                del self.model.reserved[page]

    @rule(start=starts, rows=extents)
    def map_extents(self, start: int, rows: list[tuple[int, int, int, int]]) -> None:
        objects, offsets, sizes, access = zip(*rows, strict=True)
        arguments = (
            va(start),
            array("Q", objects),
            array("Q", (offset * PAGE for offset in offsets)),
            array("Q", (size * PAGE for size in sizes)),
            array("B", access),
        )
        pages = range(start, start + sum(sizes))
        mapped = self.model.pages()
        unreserved = [page for page in pages if page not in self.model.reserved]
        taken = [page for page in pages if page in mapped]
        if unreserved or taken:
            with pytest.raises(InvalidArgument) as caught:
                self.table.map_extents(*arguments)
            assert caught.value.address == va((unreserved or taken)[0])
            return
        self.table.map_extents(*arguments)
        at = start
        for obj, offset, size, bits in rows:
            self.model.rows.append(Row(at, at + size, obj, offset, bits))
            at += size
        self.model.rows.sort(key=lambda row: row.start)
        self.references.update(objects)

    @rule(start=starts, length=lengths)
    def unmap(self, start: int, length: int) -> None:
        released, retained = self.model.unmap(start, start + length)
        gone = self.table.unmap(va(start), length * PAGE)
        assert list(gone.released) == released
        assert list(gone.retained) == retained
        self.references.subtract(released)
        self.references.update(retained)

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def unmap_inside_a_row(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.model.rows))
        start = data.draw(st.integers(row.start, row.end - 1))
        self.unmap(start, data.draw(st.integers(1, row.end - start)))

    @rule(start=starts, length=st.integers(1, 4))
    def add_usm(self, start: int, length: int) -> None:
        pages = range(start, start + length)
        if any(page in self.model.reserved or page in self.model.usm for page in pages):
            with pytest.raises(InvalidArgument):
                self.table.add_usm(va(start), length * PAGE, start + 1000)
        else:
            self.table.add_usm(va(start), length * PAGE, start + 1000)
            self.model.usm.update(dict.fromkeys(pages, start))

    @rule(start=starts)
    def remove_usm(self, start: int) -> None:
        size = list(self.model.usm.values()).count(start) * PAGE
        if not size:
            with pytest.raises(InvalidArgument):
                self.table.remove_usm(va(start), PAGE)
        else:
            with pytest.raises(InvalidArgument):
                self.table.remove_usm(va(start), size + PAGE)
            assert self.table.remove_usm(va(start), size) == start + 1000
            self.model.usm = {p: s for p, s in self.model.usm.items() if s != start}

    @rule(start=starts, length=lengths, inside=st.integers(0, PAGE - 1), cut=st.integers(0, PAGE))
    def look(self, start: int, length: int, inside: int, cut: int) -> None:
        """window(), walk() and extents_of() of an arbitrary window."""
        ptr = va(start) + inside
        size = max(1, length * PAGE - inside - cut)
        pages = range(start, (ptr + size - 1 - BASE) // PAGE + 1)
        expected = [row for row in self.model.rows if row.start < pages.stop and row.end > start]
        assert as_rows(self.table.window(ptr, size)) == expected
        mapped = self.model.pages()
        usm = [page for page in pages if page in self.model.usm]
        holes = [page for page in pages if page not in mapped]
        if usm:
            with pytest.raises(InvalidArgument) as refused:
                walk(self.table, ptr, size, PAGE)
            assert refused.value.address == max(ptr, va(usm[0]))
        elif holes:
            with pytest.raises(AddressNotFound) as missing:
                walk(self.table, ptr, size, PAGE)
            assert missing.value.address == max(ptr, va(holes[0]))
            end = next((page for page in pages if page > holes[0] and page in mapped), None)
            assert missing.value.end == (ptr + size if end is None else va(end))
        else:
            found = PageModel(as_rows(walk(self.table, ptr, size, PAGE)))
            assert found.pages() == {page: mapped[page] for page in pages}
        self._look_at_extents(ptr, size, pages, mapped)

    def _look_at_extents(
        self, ptr: int, size: int, pages: range, mapped: dict[int, tuple[int, int, int]]
    ) -> None:
        usm = self.model.usm
        both = {page: (start + 1000, page - start, 0) for page, start in usm.items()} | mapped
        if any(page not in both for page in pages):
            with pytest.raises(AddressNotFound):
                extents_of(self.table, ptr, size)
            return
        rows = extents_of(self.table, ptr, size)
        assert (rows.starts[0], rows.ends[-1]) == (ptr, ptr + size)
        assert sum(rows.sizes) == size
        for start, obj, offset, access in zip(
            rows.starts, rows.objects, rows.offsets, rows.access, strict=True
        ):
            page, byte = divmod(start - BASE, PAGE)
            assert (obj, offset - byte, access) == (
                both[page][0],
                both[page][1] * PAGE,
                both[page][2],
            )

    @rule(page=starts, byte=st.integers(0, PAGE - 1))
    def ask(self, page: int, byte: int) -> None:
        """address_range() and reservation_at() of an arbitrary address."""
        address = va(page) + byte
        row = self.model.row_at(page)
        first = self.model.usm.get(page)
        if row:
            assert self.table.address_range(address) == (
                va(row.start),
                (row.end - row.start) * PAGE,
            )
        elif first is not None:
            size = list(self.model.usm.values()).count(first) * PAGE
            assert self.table.address_range(address) == (va(first), size)
        else:
            with pytest.raises(AddressNotFound) as caught:
                self.table.address_range(address)
            assert caught.value.address == address
        owner = self.model.reserved.get(page)
        found = self.table.reservation_at(address)
        assert (found and found.ptr) == (None if owner is None else va(owner))

    @invariant()
    def same_rows(self) -> None:
        rows = self.table.window(BASE, 4 * SPACE * PAGE)
        assert as_rows(rows) == self.model.rows
        assert len(self.table) == len(self.model.rows)
        assert Counter(rows.objects) == +self.references

    @invariant()
    def chunks_are_well_formed(self) -> None:
        rows = self.table._rows
        assert rows._firsts == [chunk.starts[0] for chunk in rows._chunks]
        assert all(1 <= len(chunk) <= chunked_rows.MAX_ROWS for chunk in rows._chunks)


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
