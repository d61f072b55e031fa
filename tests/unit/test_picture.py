"""Pictures as data: strips, holes, aliases, widths; and that what is drawn is what there is."""

from __future__ import annotations

import io
import re
from array import array
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ze_ipc.cli import picture as pictures
from ze_ipc.cli import picture_layout as layout
from ze_ipc.cli import picture_svg, picture_text
from ze_ipc.cli.picture import Hole, Picture, Piece, Strip, size_text
from ze_ipc.manifest.model import Manifest

PAGE = 4096
BASE = 0x4000_0000


def told(rows: list[tuple[int, int, int, int, int]], **table: Any) -> dict[str, Any]:
    """What a broker says of (start, end, object, offset, access) rows."""
    objects = sorted({row[2] for row in rows})
    size = max((row[3] + row[1] - row[0] for row in rows), default=PAGE)
    names = ("starts", "ends", "objects", "offsets", "access")
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    return {
        "pid": 7,
        "command": ["/usr/bin/python3", "train.py"],
        "device": "a GPU",
        "pci_address": "0000:03:00.0",
        "exports": [],
        "table": {
            "mapping_count": len(rows),
            "reservations": [],
            "usm": [],
            "imports": [],
            "object_sizes": [[obj, size] for obj in objects],
            **columns,
            **table,
        },
    }


def pages(*numbers: int) -> list[tuple[int, int, int, int, int]]:
    """One mapping of an object of its own at each of these pages."""
    return [(BASE + n * PAGE, BASE + (n + 1) * PAGE, 10 + i, 0, 0) for i, n in enumerate(numbers)]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 B"),
        (1023, "1,023 B"),
        (4096, "4 KiB"),
        (1536 << 10, "1.5 MiB"),
        ((3 << 20) + 4096, "3,076 KiB"),
        (5 << 40, "5 TiB"),
    ],
)
def test_sizes_are_exact(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_process_with_holes_windows_and_reservations_side_by_side() -> None:
    said = told(
        pages(0, 1, 3, 6),
        reservations=[[BASE, 4 * PAGE], [BASE + 4 * PAGE, 4 * PAGE], [BASE + 100 * PAGE, PAGE]],
    )
    said["exports"] = [{"generation": 5, "ptr": BASE + 10, "size": 2 * PAGE - 20}]
    picture = pictures.of_process(said)
    joined, empty = picture.strips
    assert (joined.start, joined.end) == (BASE, BASE + 8 * PAGE)
    assert joined.seams == [BASE + 4 * PAGE]
    assert [(hole.start - BASE) // PAGE for hole in joined.holes()] == [2, 4, 7]
    assert joined.mapped == 4 * PAGE
    (window,) = joined.windows
    assert (window.start, window.end) == (BASE + 10, BASE + 2 * PAGE - 10)
    assert empty.holes() == [Hole(empty.start, empty.end)]
    assert "train.py" in picture.title
    only = pictures.of_process(said, at=BASE + 100 * PAGE)
    assert only.strips == [empty]
    assert pictures.of_process(said, at=1).notes == ["nothing is reserved at 0x1"]


def test_imports_and_allocations_are_named_as_what_they_are() -> None:
    said = told(
        pages(0, 1),
        reservations=[[BASE, PAGE], [BASE + PAGE, PAGE]],
        imports=[[BASE + PAGE + 5, 10]],
        usm=[[BASE + 50 * PAGE, PAGE]],
    )
    kinds = [(strip.kind, len(strip.pieces)) for strip in pictures.of_process(said).strips]
    assert kinds == [("reservation", 1), ("import", 1), ("allocation", 0)]


def test_a_table_that_was_cut_says_so() -> None:
    said = told(pages(0), reservations=[[BASE, PAGE]], mapping_count=1_000_000)
    assert "1 of 1,000,000" in pictures.of_process(said).notes[0]


def test_the_same_object_twice_is_an_alias_only_where_bytes_are() -> None:
    strip = Strip("handle", 0, 4 * PAGE)
    strip.pieces = [
        Piece(0, PAGE, 0, 0, False),
        Piece(PAGE, 2 * PAGE, 0, PAGE, False),
        Piece(2 * PAGE, 4 * PAGE, 1, 0, False),
    ]
    assert strip.aliases() == set()
    strip.pieces.append(Piece(4 * PAGE, 5 * PAGE, 1, PAGE, False))
    assert strip.aliases() == {1}


def manifest(count: int, window_offset: int = 100) -> Manifest:
    return Manifest(
        bytes(16),
        PAGE,
        window_offset,
        count * PAGE - 200,
        PAGE,
        array("Q", [2 * PAGE] * count),
        array("I", range(count)),
        array("Q", [PAGE] * count),
        array("Q", [PAGE] * count),
        array("B", [1] + [0] * (count - 1)),
    )


def test_a_handle_lies_where_its_exporter_says() -> None:
    said = {"pid": 7, "command": [], "export": {"ptr": BASE + 100}}
    (strip,) = pictures.of_handle(manifest(3), said).strips
    assert (strip.start, strip.end) == (BASE, BASE + 3 * PAGE)
    assert [piece.read_only for piece in strip.pieces] == [True, False, False]
    assert strip.holes() == []
    assert strip.windows[0].start == BASE + 100


@given(
    st.lists(st.floats(1, 1e15), min_size=1, max_size=60),
    st.floats(100, 5000),
    st.floats(0, 60),
)
def test_widths_fill_the_room_and_none_is_too_small(
    weights: list[float], total: float, least: float
) -> None:
    found = layout.spread(weights, total, least)
    assert sum(found) == pytest.approx(total)
    assert min(found) >= min(least, total / len(weights)) * 0.999
    by_weight = sorted(zip(weights, found, strict=True))
    assert all(a[1] <= b[1] + 1e-6 for a, b in pairwise(by_weight))


@given(st.sets(st.integers(0, 3000), min_size=1, max_size=400))
def test_grouping_loses_nothing(numbers: set[int]) -> None:
    strip = Strip("reservation", BASE, BASE + 3001 * PAGE)
    strip.pieces = [
        Piece(start, end, obj, offset, False)
        for start, end, obj, offset, _ in pages(*sorted(numbers))
    ]
    items = layout.items_of(strip)
    assert len(items) <= layout.MAX_ITEMS + 2 * layout.KEPT_HOLES
    assert items[0].start == strip.start
    assert items[-1].end == strip.end
    assert all(a.end == b.start for a, b in pairwise(items))
    mappings = sum(
        item.mappings if isinstance(item, layout.Group) else isinstance(item, Piece)
        for item in items
    )
    assert mappings == len(numbers)
    cells = picture_text._cells(items, 120)
    assert sum(cells) == 120
    assert min(cells) >= 1


def boxes(svg: str) -> list[str]:
    """The tooltips of everything drawn, after proof that it is well-formed."""
    root = ElementTree.fromstring(svg)
    assert "script" not in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]


def test_the_drawing_names_what_it_shows() -> None:
    rows = [
        (BASE, BASE + PAGE, 3, 0, 0),
        (BASE + PAGE, BASE + 2 * PAGE, 4, 2 * PAGE, 1),
        (BASE + 3 * PAGE, BASE + 4 * PAGE, 3, 0, 0),
    ]
    said = told(rows, reservations=[[BASE, 5 * PAGE]], object_sizes=[[3, PAGE], [4, 8 * PAGE]])
    said["command"] = ["a<b>&c"]
    svg = picture_svg.render(pictures.of_process(said))
    tips = boxes(svg)
    assert len({tip for tip in tips if tip.startswith("hole")}) == 2
    assert "0x40001000 to 0x40002000: object 1, bytes 0x2000 to 0x3000, read-only" in tips
    assert "a&lt;b&gt;&amp;c" in svg
    assert svg.count("alias: 2×") == 1
    assert "from +8 KiB" in svg


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("count", [1, 12, 3000])
def test_the_terminals_width_is_kept(width: int, count: int) -> None:
    numbers = [n for n in range(count) if n % 7 != 3 or count == 1]
    said = told(pages(*numbers), reservations=[[BASE, (count + 2) * PAGE]])
    said["exports"] = [{"generation": 1, "ptr": BASE, "size": PAGE}]
    picture = pictures.of_process(said)
    boxes(picture_svg.render(picture))
    for colours in ("truecolor", None):
        console = Console(
            width=width,
            record=True,
            force_terminal=bool(colours),
            color_system=colours,
            file=io.StringIO(),
        )
        picture_text.print_picture(picture, console, 20)
        lines = console.export_text().splitlines()
        assert all(len(line.rstrip()) <= width for line in lines)
        assert any(re.search(r"exported window", line) for line in lines)
        assert any("more rows" in line for line in lines) is (len(numbers) > 20)


def test_nothing_is_a_picture_too() -> None:
    empty = Picture("t", "s", [], [])
    assert "nothing is reserved" in picture_svg.render(empty)
    console = Console(width=80, record=True, file=io.StringIO())
    picture_text.print_picture(empty, console, 5)
    assert "nothing is reserved" in console.export_text()
