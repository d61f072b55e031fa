"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and the one thing that fixes it."""

    name: str
    verdict: Verdict
    """``note``: works, but know it; ``warning``: something will not work; ``failure``: sharing
    cannot work at all.
    """
    found: str
    fix: str = ""
