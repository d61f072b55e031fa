"""Committed bounds, and what of a measured row is beyond them; pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""A row of ``ze-ipc bench --json``."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What one row may cost."""

    objects: int
    ratio: float
    """Total over the yardstick's, the median of the pairs' ratios."""
    pairs: int = 11
    """Of runs, in turns: ours, the yardstick's."""
    busy: bool = False
    """Whether a thread of each process is busy."""
    export_share: float = 1.0
    """Walk, manifest and digest as a part of the total."""
    fds_above_start: int = 1 << 20
    """At the peak, on either side."""

    def breaches(self, row: Row) -> list[str]:
        """What is beyond the bound, in words; empty where the row holds it."""
        found = [
            ("ratio", row["ratio"], self.ratio),
            ("export share", row["export_us"] / row["total_us"], self.export_share),
        ]
        for role in ("exporter", "importer"):
            above = row[f"{role}_fds"] - row[f"{role}_fds_before"]
            found.append((f"fds of the {role}", above, self.fds_above_start))
        return [
            f"{name} {value:.3g} > {bound:g}"
            for name, value, bound in found
            if not value <= bound  # not a number is a breach
        ]

    def __str__(self) -> str:
        return f"{self.objects:,} objects{', busy' if self.busy else ''}"


def read_bounds(path: Path) -> list[Bound]:
    """The bounds of a file; a row without bounds, or a name unknown here, is an error."""
    document = json.loads(path.read_text())
    bounds = [Bound(**{**document["every_row"], **row}) for row in document["rows"]]
    if not bounds:
        raise ValueError(f"{path} bounds nothing")
    return bounds
