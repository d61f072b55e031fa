"""A picture as SVG: one file, no scripts, no fonts from elsewhere, legible on light and on dark."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from ze_ipc.cli.picture import Hole, Picture, Piece, Strip, Window, size_text
from ze_ipc.cli.picture_layout import (
    Group,
    Item,
    Scale,
    colour,
    is_broken,
    items_of,
    spread,
    widths,
)

WIDTH = 1200.0
MARGIN = 32.0
INNER = WIDTH - 2 * MARGIN
MAX_STRIPS = 24

BAND = 58.0
RIBBON = 74.0
OBJECT = 26.0
WINDOW_ROW = 24.0
TICKS = 56.0
OBJECT_GAP = 8.0
LEAST = 66.0
"""A box of this width has room for what is written in it."""

# Plain class rules and one media query: also viewers without CSS variables show it.
STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px}
.bg{fill:#ffffff}.t{fill:#1c1f24}.d{fill:#59616e}.l{stroke:#59616e;fill:none}
.title{font-size:20px;font-weight:600}.head{font-size:14px;font-weight:600}
.m{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:11px}.s{font-size:10.5px}
.in{fill:#111418}.n{font-size:15px;font-weight:700}
.hole{fill:#f1f3f6;stroke:#8a93a1;stroke-dasharray:4 3}.hatch{stroke:#c3c9d2}
.unused{fill:#eceff3;stroke:#8a93a1}.win{stroke:#b3261e;fill:none;stroke-width:2}
.wt{fill:#b3261e;font-weight:600}.wl{stroke:#b3261e;stroke-dasharray:3 3;opacity:.6}
.edge{stroke:#2b3038;stroke-width:1}.group{fill:#aeb7c4}.group.odd{fill:#c4ccd7}
@media (prefers-color-scheme:dark){
.bg{fill:#14171c}.t{fill:#eceff3}.d{fill:#a7b0bd}.l{stroke:#a7b0bd}
.hole{fill:#1d222a;stroke:#7d8796}.hatch{stroke:#3d4653}
.unused{fill:#252b34;stroke:#7d8796}.win{stroke:#ff8a80}.wt{fill:#ff8a80}.wl{stroke:#ff8a80}
.edge{stroke:#0b0d10}}
""".strip()


@dataclass
class _Sheet:
    """The drawing so far, and how far down it reaches."""

    parts: list[str] = field(default_factory=list)
    y: float = MARGIN

    def add(self, text: str) -> None:
        self.parts.append(text)

    def text(
        self, x: float, y: float, words: str, names: str, anchor: str = "start", extra: str = ""
    ) -> None:
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{names}" text-anchor="{anchor}"{extra}>'
            f"{escape(words)}</text>"
        )

    def box(
        self, x: float, y: float, width: float, height: float, names: str, tip: str, extra: str = ""
    ) -> None:
        self.add(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}"'
            f' class="{names}"{extra}><title>{escape(tip)}</title></rect>'
        )


def render(picture: Picture) -> str:
    """The whole SVG document."""
    sheet = _Sheet()
    sheet.text(MARGIN, sheet.y + 14, picture.title, "t title")
    sheet.text(MARGIN, sheet.y + 36, picture.subtitle, "d")
    sheet.y += 60
    notes = list(picture.notes)
    if len(picture.strips) > MAX_STRIPS:
        notes.append(f"{len(picture.strips) - MAX_STRIPS:,} more address ranges are not drawn")
    if not picture.strips:
        notes.append("nothing is reserved")
    for strip in picture.strips[:MAX_STRIPS]:
        _strip(sheet, picture, strip)
    for note in notes:
        sheet.text(MARGIN, sheet.y + 4, f"Note: {note}.", "t")
        sheet.y += 22
    _legend(sheet, picture)
    height = sheet.y + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}"'
        f' width="{WIDTH:.0f}" height="{height:.0f}" role="img" aria-labelledby="zt zd">'
        f'<title id="zt">{escape(picture.title)}</title>'
        f'<desc id="zd">{escape(describe(picture))}</desc><style>{STYLE}</style>'
        '<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="8" class="hatch"/></pattern>'
        '<pattern id="ro" width="6" height="6" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(-45)"><line x1="0" y1="0" x2="0" y2="6" stroke="#111418"'
        ' stroke-opacity=".28" stroke-width="2"/></pattern></defs>'
        f'<rect class="bg" width="{WIDTH:.0f}" height="{height:.0f}" rx="10"/>'
    )
    return head + "\n".join(sheet.parts) + "\n</svg>\n"


def describe(picture: Picture) -> str:
    """The picture in words, for those who do not see it."""
    lines = [picture.subtitle]
    lines += [
        f"{strip_title(strip)}: {strip_facts(strip)}." for strip in picture.strips[:MAX_STRIPS]
    ]
    return " ".join(lines)


def strip_title(strip: Strip) -> str:
    """What a strip is, and where."""
    names = {
        "reservation": "Reserved range",
        "import": "Imported range",
        "allocation": "USM allocation",
        "handle": "Pages of the handle",
    }
    return f"{names[strip.kind]} {strip.start:#x} to {strip.end:#x}"


def strip_facts(strip: Strip) -> str:
    """How much of it is what."""
    holes = strip.holes()
    facts = [size_text(strip.size)]
    if strip.kind == "allocation":
        return facts[0]
    facts.append(f"{len(strip.pieces):,} mapping{'s' * (len(strip.pieces) != 1)}")
    if holes:
        total = size_text(sum(hole.size for hole in holes))
        facts.append(f"{len(holes):,} hole{'s' * (len(holes) != 1)} of {total} in all")
    else:
        facts.append("no holes")
    if strip.seams:
        facts.append(f"{len(strip.seams) + 1:,} reservations side by side")
    return ", ".join(facts)


def _strip(sheet: _Sheet, picture: Picture, strip: Strip) -> None:
    sheet.text(MARGIN, sheet.y + 12, strip_title(strip), "t head")
    sheet.text(WIDTH - MARGIN, sheet.y + 12, strip_facts(strip), "d", "end")
    sheet.y += 26
    items = items_of(strip)
    item_widths = widths(items, INNER, LEAST if len(items) * LEAST <= INNER else 50.0)
    scale = Scale(items, MARGIN, item_widths)
    band = sheet.y + _window_rows(strip.windows) * WINDOW_ROW + TICKS
    _windows(sheet, strip, scale, band)
    _ticks(sheet, strip, items, scale, band)
    for index, item in enumerate(items):
        _item(sheet, strip, item, scale.left(index), item_widths[index], band, items)
    for seam in strip.seams:
        x = scale.at(seam)
        sheet.add(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{band - 5:.1f}" y2="{band + BAND + 5:.1f}"'
            ' class="l" stroke-width="3"><title>a reservation ends, the next begins</title></line>'
        )
    sheet.y = band + BAND
    if strip.pieces and not any(isinstance(item, Group) for item in items):
        _objects(sheet, picture, strip, scale)
    sheet.y += 34


def _window_rows(windows: list[Window]) -> int:
    return max((row + 1 for row, _ in _placed(windows)), default=0)


def _placed(windows: list[Window]) -> list[tuple[int, Window]]:
    """Windows in rows, so that none overlaps another."""
    ends: list[int] = []
    placed = []
    for window in sorted(windows, key=lambda window: (window.start, -window.size))[:12]:
        row = next((row for row, end in enumerate(ends) if end <= window.start), len(ends))
        if row == len(ends):
            ends.append(0)
        ends[row] = window.end
        placed.append((row, window))
    return placed


def _windows(sheet: _Sheet, strip: Strip, scale: Scale, band: float) -> None:
    rows = _window_rows(strip.windows)
    for row, window in _placed(strip.windows):
        left, right = scale.at(window.start), scale.at(window.end)
        y = sheet.y + (rows - row) * WINDOW_ROW - 2
        sheet.add(
            f'<path class="win" d="M{left:.1f} {y + 7:.1f}V{y:.1f}H{right:.1f}V{y + 7:.1f}"/>'
            f'<line class="wl" x1="{left:.1f}" x2="{left:.1f}" y1="{y + 7:.1f}" y2="{band:.1f}"/>'
            f'<line class="wl" x1="{right:.1f}" x2="{right:.1f}" y1="{y + 7:.1f}" y2="{band:.1f}"/>'
        )
        words = f"{window.label}: {size_text(window.size)} from {window.start:#x}"
        anchor, x = ("start", left + 4) if left < WIDTH / 2 else ("end", right - 4)
        sheet.text(x, y - 5, words, "wt", anchor)


def _ticks(sheet: _Sheet, strip: Strip, items: list[Item], scale: Scale, band: float) -> None:
    last = -100.0
    edges = [(scale.left(index), item.start) for index, item in enumerate(items)]
    edges.append((WIDTH - MARGIN, strip.end))
    for x, va in edges:
        at_end = va == strip.end
        if (x - last < 15 or WIDTH - MARGIN - x < 15) and not at_end:
            continue
        last = x
        sheet.add(
            f'<line class="l" x1="{x:.1f}" x2="{x:.1f}" y1="{band - 6:.1f}" y2="{band:.1f}"/>'
        )
        words = f"+{size_text(va - strip.start)}" if va != strip.start else "+0"
        turn = f' transform="rotate(-38 {x:.1f} {band - 10:.1f})"'
        if at_end:
            sheet.text(x, band - 10, words, "d s", "end")
        else:
            sheet.text(x, band - 10, words, "d s", "start", turn)


def _item(
    sheet: _Sheet, strip: Strip, item: Item, x: float, width: float, y: float, items: list[Item]
) -> None:
    middle = x + width / 2
    if isinstance(item, Hole):
        tip = f"hole {item.start:#x} to {item.end:#x}, {size_text(item.size)}: nothing mapped"
        if strip.kind == "allocation":
            sheet.box(x, y, width, BAND, "group", f"USM allocation of {size_text(item.size)}")
            sheet.text(middle, y + 34, "an ordinary allocation", "in", "middle")
            return
        sheet.box(x, y, width, BAND, "hole", tip)
        sheet.box(x, y, width, BAND, "", tip, ' fill="url(#hatch)"')
        sheet.text(middle, y + 24, "hole", "t", "middle")
        _fitting(sheet, middle, y + 40, width, size_text(item.size), "d s")
        if is_broken(item, items):
            _break(sheet, middle, y)
        return
    if isinstance(item, Group):
        odd = " odd" if items.index(item) % 2 else ""
        tip = f"{item.start:#x} to {item.end:#x}: {item.mappings:,} mappings, {item.holes:,} holes"
        sheet.box(x, y, width, BAND, f"group{odd}", tip)
        _fitting(sheet, middle, y + 26, width, f"{item.mappings:,}", "in n")
        _fitting(sheet, middle, y + 42, width, "mappings", "in s")
        return
    _piece(sheet, item, x, width, y)


def _piece(sheet: _Sheet, piece: Piece, x: float, width: float, y: float) -> None:
    middle = x + width / 2
    access = "read-only" if piece.read_only else "read-write"
    tip = (
        f"{piece.start:#x} to {piece.end:#x}: object {piece.obj}, bytes {piece.offset:#x} to "
        f"{piece.offset + piece.size:#x}, {access}"
    )
    sheet.box(x, y, width, BAND, "edge", tip, f' fill="{colour(piece.obj)}"')
    if piece.read_only:
        sheet.box(x, y, width, BAND, "", tip, ' fill="url(#ro)"')
    _fitting(sheet, middle, y + 18, width, str(piece.obj), "in n")
    _fitting(sheet, middle, y + 33, width, size_text(piece.size), "in s")
    below = f"from +{size_text(piece.offset)}" if piece.offset else ""
    if piece.read_only:
        below = "read-only" if not below else f"{below}, ro"
    _fitting(sheet, middle, y + 48, width, below, "in s")


def _fitting(sheet: _Sheet, middle: float, y: float, width: float, words: str, names: str) -> None:
    """Words in the middle of a box, smaller or not at all where they do not fit."""
    if not words:
        return
    size = 15.0 if " n" in f" {names}" else 10.5
    needed = 0.57 * size * len(words)
    if needed > width - 2:
        size *= (width - 2) / needed
    if size >= 6.5:
        sheet.text(middle, y, words, names, "middle", f' style="font-size:{size:.1f}px"')


def _break(sheet: _Sheet, x: float, y: float) -> None:
    """The sign for an axis that leaves something out."""
    for top in (y - 5, y + BAND - 5):
        sheet.add(
            f'<path class="bg" d="M{x - 9:.1f} {top + 8:.1f}l6 -6h12l-6 6z"/>'
            f'<path class="l" d="M{x - 9:.1f} {top + 8:.1f}l6 -6M{x + 3:.1f} {top + 8:.1f}l6 -6"/>'
        )


def _objects(sheet: _Sheet, picture: Picture, strip: Strip, scale: Scale) -> None:
    """The objects in order of first appearance, and which of their bytes are mapped where."""
    order = list(dict.fromkeys(piece.obj for piece in strip.pieces))
    room = INNER - OBJECT_GAP * (len(order) - 1)
    bars = spread([float(picture.objects[obj].size) for obj in order], room, 62.0)
    top, y = sheet.y, sheet.y + RIBBON
    left: dict[int, tuple[float, float]] = {}
    x = MARGIN
    for obj, width in zip(order, bars, strict=True):
        left[obj] = x, width
        x += width + OBJECT_GAP
    for obj in order:
        x, width = left[obj]
        thing = picture.objects[obj]
        sheet.box(x, y, width, OBJECT, "unused", f"object {thing.name}, {size_text(thing.size)}")
    for piece in strip.pieces:
        x, width = left[piece.obj]
        total = picture.objects[piece.obj].size
        a, b = scale.at(piece.start), scale.at(piece.end)
        c = x + width * piece.offset / total
        d = max(c + 1, x + width * min(1.0, (piece.offset + piece.size) / total))
        fill = f'fill="{colour(piece.obj)}"'
        m = (top + y) / 2
        sheet.add(
            f'<path d="M{a:.1f} {top:.1f}C{a:.1f} {m:.1f} {c:.1f} {m:.1f} {c:.1f} {y:.1f}'
            f'H{d:.1f}C{d:.1f} {m:.1f} {b:.1f} {m:.1f} {b:.1f} {top:.1f}z" {fill} opacity=".42"'
            f' stroke="{colour(piece.obj)}"/>'
            f'<rect x="{c:.1f}" y="{y:.1f}" width="{d - c:.1f}" height="{OBJECT:.0f}" {fill}'
            ' class="edge"/>'
        )
    aliases, everywhere = strip.aliases(), picture.uses()
    for obj in order:
        x, width = left[obj]
        thing = picture.objects[obj]
        _fitting(sheet, x + width / 2, y + OBJECT + 15, width + 6, f"object {thing.name}", "t")
        _fitting(sheet, x + width / 2, y + OBJECT + 29, width + 6, size_text(thing.size), "d s")
        here = sum(piece.obj == obj for piece in strip.pieces)
        if obj in aliases:
            _fitting(sheet, x + width / 2, y + OBJECT + 43, width + 6, f"alias: {here}×", "wt s")
        elif len(everywhere[obj]) > here:
            _fitting(sheet, x + width / 2, y + OBJECT + 43, width + 6, "elsewhere, too", "d s")
    sheet.y = y + OBJECT + 46


def _legend(sheet: _Sheet, picture: Picture) -> None:
    y = sheet.y
    sheet.add(
        f'<line class="l" x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y}" y2="{y}" opacity=".4"/>'
    )
    y += 16
    x = MARGIN

    def entry(words: str) -> None:
        nonlocal x
        sheet.text(x + 34, y + 13, words, "t")
        x += 34 + 6.6 * len(words) + 26

    sheet.box(x, y, 26, 18, "edge", "a mapping", f' fill="{colour(0)}"')
    sheet.text(x + 13, y + 13, "0", "in", "middle")
    entry("mapping, with the number of its object")
    sheet.box(x, y, 26, 18, "hole", "a hole")
    sheet.box(x, y, 26, 18, "", "a hole", ' fill="url(#hatch)"')
    entry("hole: reserved, nothing mapped")
    sheet.add(
        f'<path class="win" d="M{x:.1f} {y + 14:.1f}V{y + 5:.1f}H{x + 26:.1f}V{y + 14:.1f}"/>'
    )
    entry("window of a handle or an import")
    sheet.box(x, y, 26, 18, "edge", "read-only", f' fill="{colour(1)}"')
    sheet.box(x, y, 26, 18, "", "read-only", ' fill="url(#ro)"')
    entry("read-only")
    lines = (
        "Top row: virtual addresses, left to right; the numbers above it count from the range's"
        " start. Bottom row: the physical objects; bands lead from each mapping to the bytes behind"
        " it.",
        "“from +64 KiB”: the mapping begins that far inside its object; grey parts of an object are"
        " mapped nowhere in this range. Alias: the same bytes at several addresses.",
        "Widths follow sizes, but small boxes are widened for their text, and a hole with // is"
        " longer than drawn.",
    )
    for row, words in enumerate(lines):
        sheet.text(MARGIN, y + 40 + 17 * row, words, "d")
    sheet.y = y + 40 + 17 * len(lines)
