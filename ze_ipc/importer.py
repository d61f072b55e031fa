"""Who holds a range of ours, and what became of it, as an exporter is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Importer:
    """A process that opened a handle, and neither closed all of it nor ended since."""

    pid: int
    """In our pid namespace; 0 when it has none there."""
    uid: int
    size: int
    """Bytes of the window it opened."""
    since: float
    """time.time() of its first open."""
    opens: int
    """How often it opened the handle, also where it closed some of these again."""


@dataclass(frozen=True, slots=True)
class ImporterEvent:
    """Something that an importing process did."""

    kind: Literal["opened", "released", "died"]
    """``opened``: once more. ``released``: it closed all that it had opened. ``died``: its process
    ended, and with it whatever it held.
    """
    importer: Importer
    """As importers() listed it: after an open, before a release or an end."""
