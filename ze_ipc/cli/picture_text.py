"""A picture for the terminal: a bar of colours, and the rows that say exactly what it shows."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ze_ipc.cli.picture import Hole, Picture, Piece, Strip, size_text
from ze_ipc.cli.picture_layout import Group as Grouped
from ze_ipc.cli.picture_layout import Item, Scale, colour, items_of, widths
from ze_ipc.cli.picture_svg import strip_facts, strip_title

HOLE = "╌"


def render(picture: Picture, width: int, max_rows: int, *, colours: bool = True) -> RenderableType:
    """The picture for ``width`` columns; at most ``max_rows`` rows of each table."""
    parts: list[RenderableType] = [
        Text(picture.title, style="bold"),
        Text(picture.subtitle, style="dim"),
    ]
    for strip in picture.strips:
        parts += ["", *_strip(picture, strip, width, max_rows, colours)]
    if not picture.strips:
        parts += ["", Text("nothing is reserved")]
    parts += [Text(f"note: {note}", style="yellow") for note in picture.notes]
    return Group(*parts)


def print_picture(picture: Picture, console: Console, max_rows: int) -> None:
    """Print it as wide as the terminal is."""
    colours = console.color_system is not None
    console.print(render(picture, min(console.width, 160), max_rows, colours=colours))


def _strip(
    picture: Picture, strip: Strip, width: int, max_rows: int, colours: bool
) -> list[RenderableType]:
    title, facts = strip_title(strip), strip_facts(strip)
    gap = "  " if len(title) + len(facts) + 2 <= width else "\n"
    head = Text.assemble((title, "bold"), gap, (facts, "dim"))
    if strip.kind == "allocation":
        return [head]
    items = items_of(strip)
    cells = _cells(items, width)
    parts: list[RenderableType] = [head]
    starts = [sum(cells[:index]) for index in range(len(cells))]
    scale = Scale(items, 0.0, [float(cell) for cell in cells])
    parts += [
        _bracket(scale, window.start, window.end, window.label, width)
        for window in strip.windows[:6]
    ]
    parts.append(_bar(items, cells, colours))
    parts.append(_ruler(strip, items, starts, width))
    parts.append(_table(picture, strip, max_rows))
    return parts


def _cells(items: list[Item], width: int) -> list[int]:
    """Whole columns, none empty."""
    wished = widths(items, float(width), 3.0 if len(items) * 3 <= width else 1.0)
    cells, debt = [], 0.0
    for wish in wished:
        cell = max(1, round(wish + debt))
        debt += wish - cell
        cells.append(cell)
    cells[-1] = max(1, cells[-1] + width - sum(cells))
    return cells


def _bracket(scale: Scale, start: int, end: int, label: str, width: int) -> Text:
    left = min(width - 2, int(scale.at(start)))
    right = max(left + 2, min(width, round(scale.at(end))))
    room = right - left - 2
    words = f" {label} "
    if len(words) <= room:
        return Text(" " * left + "┌" + words.center(room, "─") + "┐", style="red")
    bracket = " " * left + "┌" + "─" * room + "┐"
    if len(bracket) + len(words) <= width:
        return Text(bracket + words, style="red")
    return Text(words.rjust(left) + bracket[left:], style="red")


def _bar(items: list[Item], cells: list[int], colours: bool) -> Text:
    bar = Text(no_wrap=True)
    for index, (item, cell) in enumerate(zip(items, cells, strict=True)):
        if isinstance(item, Hole):
            words = "hole" if cell >= 6 else ""
            bar.append(words.center(cell, HOLE), Style(dim=True))
        elif isinstance(item, Grouped):
            words = f"{item.mappings:,}" if len(f"{item.mappings:,}") <= cell else ""
            shade = "#aeb7c4" if index % 2 else "#c4ccd7"
            bar.append(words.center(cell), Style(color="#111418", bgcolor=shade))
        else:
            name = str(item.obj) if len(str(item.obj)) <= cell else ""
            if not colours and cell > 1:
                name = "│" + name.center(cell - 1)[: cell - 1]
            style = Style(color="#111418", bgcolor=colour(item.obj), bold=True)
            bar.append(name.center(cell), style)
    return bar


def _ruler(strip: Strip, items: list[Item], starts: list[int], width: int) -> Text:
    """Offsets from the strip's start under as many edges as there is room for."""
    line = [" "] * width
    free = 0
    end = f"+{size_text(strip.size)}"
    for item, column in zip(items, starts, strict=True):
        words = f"└+{size_text(item.start - strip.start)}" if column else f"└{strip.start:#x}"
        if column >= free and column + len(words) + len(end) + 1 <= width:
            line[column : column + len(words)] = words
            free = column + len(words) + 1
    line[width - len(end) :] = end
    return Text("".join(line), style="dim", no_wrap=True)


def _table(picture: Picture, strip: Strip, max_rows: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in (("at", "right"), ("size", "right"), ("object", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("its bytes", no_wrap=True)
    table.add_column("", overflow="fold")
    aliases = strip.aliases()
    shown = 0
    items = list(strip.items())
    for item in items[:max_rows]:
        shown += 1
        at = f"+{size_text(item.start - strip.start)}"
        if isinstance(item, Hole):
            table.add_row(at, size_text(item.size), "[dim]hole[/]", "", "", style="dim")
        else:
            table.add_row(at, size_text(item.size), *_of(picture, strip, item, aliases))
    if shown < len(items):
        more = Text(f"… {len(items) - shown:,} more rows; --rows N shows them", style="yellow")
        return Group(table, more)
    return table


def _of(picture: Picture, strip: Strip, piece: Piece, aliases: set[int]) -> tuple[Text, Text, Text]:
    thing = picture.objects[piece.obj]
    name = Text.assemble(("  ", Style(bgcolor=colour(piece.obj))), f" {thing.name}")
    if piece.size == thing.size:
        part = Text("all", style="dim")
    else:
        begin = f"from +{size_text(piece.offset)}" if piece.offset else "the first"
        part = Text(f"{begin} of {size_text(thing.size)}")
    words = []
    if piece.read_only:
        words.append("read-only")
    if piece.obj in aliases:
        others = [
            f"+{size_text(other.start - strip.start)}"
            for other in strip.pieces
            if other.obj == piece.obj and other is not piece
        ]
        words.append(f"alias: also at {', '.join(others[:4])}")
    return name, part, Text(", ".join(words), style="red")
