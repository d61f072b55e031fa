"""What is traced: a side, the way the objects travel, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["exporter", "importer"]
SIDES: tuple[Side, Side] = ("exporter", "importer")
OBJECT_SIZE = 4096
"""Bytes."""
LEAD = 100
"""Bytes of the first object before the window: it starts in the middle of a page."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One job to trace."""

    side: Side
    """Who is traced; the other is the survivor."""
    transport: str
    objects: int
    """Up to 64 come with the broker's answer, more by the stream, 253 a message."""

    def __str__(self) -> str:
        return f"{self.side}/{self.transport}/{self.objects}"


def pattern(objects: int) -> bytes:
    """The bytes of a range of so many objects."""
    return b"".join(
        index.to_bytes(4, "little") * (OBJECT_SIZE // 4) for index in range(1, objects + 1)
    )
