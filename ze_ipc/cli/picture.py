"""A range as it is drawn: strips of VA, the mappings and holes in them, the objects behind.

Pure: made from what an exporter said, drawn by picture_text and picture_svg. All sizes and offsets
are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ze_ipc.backend import READ_ONLY
from ze_ipc.manifest.model import Manifest


@dataclass(frozen=True, slots=True)
class Piece:
    """A mapping: these VA bytes are those bytes of that object."""

    start: int
    """GPU VA."""
    end: int
    obj: int
    """Index in ``Picture.objects``."""
    offset: int
    read_only: bool

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Hole:
    """Reserved, and nothing mapped."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Window:
    """What a handle names, or what an importer sees."""

    start: int
    size: int
    label: str

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(slots=True)
class Strip:
    """VA without a gap: reservations that touch each other, or the pages of a handle."""

    kind: str
    """``reservation``, ``import``, ``allocation`` or ``handle``."""
    start: int
    end: int
    pieces: list[Piece] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    seams: list[int] = field(default_factory=list)
    """VA where one reservation ends and the next one begins."""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def mapped(self) -> int:
        """Bytes that are mapped."""
        return sum(piece.size for piece in self.pieces)

    def items(self) -> Iterator[Piece | Hole]:
        """Mappings and holes in VA order, without a gap."""
        at = self.start
        for piece in self.pieces:
            if piece.start > at:
                yield Hole(at, piece.start)
            yield piece
            at = piece.end
        if at < self.end:
            yield Hole(at, self.end)

    def holes(self) -> list[Hole]:
        return [item for item in self.items() if isinstance(item, Hole)]

    def aliases(self) -> set[int]:
        """The objects of which some byte is mapped here more than once."""
        reach: dict[int, int] = {}
        found = set()
        for piece in sorted(self.pieces, key=lambda piece: piece.offset):
            if piece.offset < reach.get(piece.obj, 0):
                found.add(piece.obj)
            reach[piece.obj] = max(reach.get(piece.obj, 0), piece.offset + piece.size)
        return found


@dataclass(frozen=True, slots=True)
class PhysicalObject:
    """One physical memory object."""

    name: str
    size: int


@dataclass(slots=True)
class Picture:
    """Everything on one sheet."""

    title: str
    subtitle: str
    objects: list[PhysicalObject]
    strips: list[Strip]
    notes: list[str] = field(default_factory=list)
    """What the reader must know beside it."""

    def uses(self) -> dict[int, list[Piece]]:
        """The mappings of each object, by its index."""
        found: dict[int, list[Piece]] = {}
        for strip in self.strips:
            for piece in strip.pieces:
                found.setdefault(piece.obj, []).append(piece)
        return found


def size_text(size: int) -> str:
    """Bytes for people: exact, in the largest unit that leaves no fraction beyond two digits."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size * 100 % unit == 0:
            return f"{size / unit:,.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{size:,} B"


def of_handle(manifest: Manifest, said: dict[str, Any]) -> Picture:
    """The pages of one handle."""
    export = said.get("export", {})
    ptr = int(export.get("ptr", manifest.va_phase + manifest.window_offset))
    at = ptr - manifest.window_offset
    strip = Strip("handle", at, at + manifest.covered_size)
    columns = (manifest.object_indices, manifest.offsets, manifest.sizes, manifest.access)
    for obj, offset, size, access in zip(*columns, strict=True):
        strip.pieces.append(Piece(at, at + size, obj, offset, bool(access & READ_ONLY)))
        at += size
    strip.windows.append(Window(ptr, manifest.window_size, "the handle's window"))
    objects = [PhysicalObject(str(index), size) for index, size in enumerate(manifest.object_sizes)]
    who = f"exported by {_process(said)}"
    what = f"{size_text(manifest.window_size)}, {_plural(len(objects), 'physical object')}"
    return Picture(f"A handle of {what}", who, objects, [strip])


def of_process(said: dict[str, Any], at: int | None = None) -> Picture:
    """All of a process's mappings on one device; ``at``: only the VA around that address."""
    table = said["table"]
    names = {obj: index for index, (obj, _) in enumerate(table["object_sizes"])}
    objects = [PhysicalObject(str(names[obj]), size) for obj, size in table["object_sizes"]]
    strips = _strips(table)
    columns = (table[name] for name in ("starts", "ends", "objects", "offsets", "access"))
    pieces = (
        Piece(start, end, names[obj], offset, bool(access & READ_ONLY))
        for start, end, obj, offset, access in zip(*columns, strict=True)
    )
    _distribute(strips, pieces)
    for export in said.get("exports", ()):
        label = f"exported window, handle {export['generation']}"
        _add_window(strips, Window(export["ptr"], export["size"], label))
    notes = []
    told, count = len(table["starts"]), table["mapping_count"]
    if told < count:
        notes.append(f"only the lowest {told:,} of {count:,} mappings were told")
    if at is not None:
        strips = [strip for strip in strips if strip.start <= at < strip.end]
        if not strips:
            notes.append(f"nothing is reserved at {at:#x}")
    title = f"Mappings of {_process(said)}"
    where = f"{said.get('device', 'device')} at {said.get('pci_address', '?')}"
    return Picture(title, where, objects, strips, notes)


def _process(said: dict[str, Any]) -> str:
    words = [str(word) for word in said.get("command", [])]
    if words:
        words[0] = words[0].rpartition("/")[2]
    command = " ".join(words)
    command = command if len(command) <= 60 else command[:57] + "..."
    return f"process {said.get('pid', '?')}" + (f" ({command})" if command else "")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _strips(table: dict[str, Any]) -> list[Strip]:
    imports = [Window(start, size, "imported window") for start, size in table["imports"]]
    strips: list[Strip] = []
    for start, size in sorted(map(tuple, table["reservations"])):
        inside = [window for window in imports if start <= window.start < start + size]
        if inside:
            strips.append(Strip("import", start, start + size, windows=inside))
        elif strips and strips[-1].end == start and strips[-1].kind == "reservation":
            strips[-1].end = start + size
            strips[-1].seams.append(start)
        else:
            strips.append(Strip("reservation", start, start + size))
    for start, size in table["usm"]:
        strips.append(Strip("allocation", start, start + size))
    return sorted(strips, key=lambda strip: strip.start)


def _distribute(strips: list[Strip], pieces: Iterable[Piece]) -> None:
    """Put mappings, which come in VA order, into their strips; split where strips meet."""
    remaining = iter(strips)
    strip = next(remaining, None)
    for piece in pieces:
        start = piece.start
        while start < piece.end:
            while strip is not None and strip.end <= start:
                strip = next(remaining, None)
            if strip is None:
                return
            end = min(piece.end, strip.end)
            offset = piece.offset + start - piece.start
            strip.pieces.append(Piece(start, end, piece.obj, offset, piece.read_only))
            start = end


def _add_window(strips: list[Strip], window: Window) -> None:
    for strip in strips:
        start, end = max(window.start, strip.start), min(window.end, strip.end)
        if start < end:
            strip.windows.append(Window(start, end - start, window.label))
