"""The differences between two runs, row by row, and the few that a virtual function explains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..harness import REFERENCE
from .script import Script
from .versions import lack


@dataclass(frozen=True, slots=True)
class Mask:
    """A known difference: scripts that match `script` may differ in lines that match `line`.

    On one `platform` only, if given. `line` is searched in the command that the runner executed,
    not in what it printed. `ends`: what comes after it in the script follows from it.
    """

    script: str
    line: str
    reason: str
    platform: str = ""
    ends: bool = False
    answer: str = ""
    """What the driver's answer begins with, if not any."""


MASKS = (
    Mask(r"^query/.*ENGINE_CYCLES|^query/id=6(/|$)", r"^I ", "a virtual function has none"),
    Mask(r"^queue-create/class=[23]/gt=1/instance=1$", r"^I ",
         "the emulated Battlemage has one media engine of a kind, the mock has two", "bmg"),
    Mask(r"^query/values/", r"^[IR] ", "sizes and fuses are what the emulated device says"),
    Mask(r"^import/things-that-are-no-dma-buf$", r"^I ",
         "on the mock a memfd plays the dma-buf of another driver"),
    Mask(r"^dma-buf/", r"^K ", "lseek is not in the seam; the preload library answers it"),
    Mask(r"^(random|found)/", r"^[GT] ",
         "a page of a CPU view that is first touched after its object was offered for purging: the "
         "driver refuses the fault, and the mock, whose objects are files, sees none",
         answer="signal 7"),
    Mask(r"^bind/userptr/bind.range=131072$", r"^I ",
         "what lies behind the buffer is the process's own business"),
    Mask(r"^bind|^madvise-pat/", r" (36:2|32:4)=16 ?",
         "Panther Lake has one page-attribute entry more than the mock's Lunar Lake", "ptl", True),
    Mask(r"^bind-array/count=", r"^I ", "how much the kernel can allocate depends on the guest"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """One row: the command of a script and what each side printed ("" for nothing)."""

    script: str
    command: str
    kernel: str
    mock: str
    reason: str = ""

    def __str__(self) -> str:
        lines = [self.script, f"    {self.command}", f"    kernel {self.kernel or '(nothing)'}"]
        lines.append(f"    mock   {self.mock or '(nothing)'}")
        if self.reason:
            lines.append(f"    known: {self.reason}")
        return "\n".join(lines)


def _rows(lines: Iterable[str]) -> dict[str, str]:
    """What was printed by number of the script's line (or by its first word)."""
    rows: dict[str, str] = {}
    for line in lines:
        number, _, rest = line.partition(" ")
        rows[number] = rest
    return rows


def _command(script: Script, number: str) -> str:
    if number.isdigit() and 0 < int(number) <= len(script.lines):
        return script.lines[int(number) - 1]
    return f"({number})"


def _mask(platform: str, script: str, command: str, answer: str) -> Mask | None:
    for mask in MASKS:
        if mask.platform not in ("", platform) or not answer.startswith(mask.answer):
            continue
        if re.search(mask.script, script) and re.search(mask.line, command):
            return mask
    return None


def differences(
    platform: str,
    wanted: Iterable[Script],
    kernel: Mapping[str, list[str]],
    mock: Mapping[str, list[str]],
    release: str = REFERENCE,
) -> list[Difference]:
    """The first differing row of every script that differs: later ones follow from it."""
    found: list[Difference] = []
    for script in wanted:
        real, ours = _rows(kernel.get(script.name, [])), _rows(mock.get(script.name, []))
        numbers = sorted(
            {*real, *ours}, key=lambda n: (not n.isdigit(), int(n) if n.isdigit() else 0)
        )
        if not numbers:
            found.append(Difference(script.name, "(whole script)", "", ""))
        for number in numbers:
            one, other = real.get(number, ""), ours.get(number, "")
            if one == other:
                continue
            command = _command(script, number)
            mask = _mask(platform, script.name, command, one)
            older = lack(release, command, one)
            reason = (
                mask.reason if mask else f"since {older.since}: {older.reason}" if older else ""
            )
            found.append(Difference(script.name, command, one, other, reason))
            if not reason or (mask and mask.ends) or (older and older.ends):
                break
    return found
