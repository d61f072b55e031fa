"""The code blocks of the documentation, and how each of them is run.

A comment on the line before a block says what is special about it:

    <!-- test: file=share.py -->    the block is written to that file, for later blocks to run
    <!-- test: output -->           the lines are in what the block before printed ("..." is any)
    <!-- test: fails -->            the command fails, as the text around it says
    <!-- test: where=interop -->    ci/interop runs it, beside the real libraries
    <!-- test: shown, REASON -->    cannot be run anywhere we are; REASON says why

Without one, ``python`` blocks of a page run one after another in one process, ``sh`` blocks in a
shell, and ``toml``, ``ini`` and ``json`` blocks are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

EXECUTED = frozenset({"python", "sh"})
PARSED = frozenset({"toml", "ini", "json"})
WHERE = frozenset({"default", "interop"})

_FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}|:{3,})(?P<info>.*)$")
_MARK = re.compile(r"<!-- test: (?P<words>.*?) -->")
_DIRECTIVE = re.compile(r"^\{[\w:-]+\}")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    """Of its first line of code."""
    language: str
    code: str
    file: str = ""
    where: str = "default"
    output: bool = False
    fails: bool = False
    shown: str = ""
    """Why it is not run."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Every code block of a page; ValueError for a mark that says nothing known."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        match = _FENCE.match(lines[number])
        mark = _MARK.fullmatch(lines[number - 1].strip()) if number else None
        if match is None:
            if mark is not None:
                raise ValueError(f"{page.name}:{number}: a mark without a block")
            number += 1
            continue
        begin = number + 1
        number = begin
        while number < len(lines) and lines[number].rstrip() != match["fence"]:
            number += 1
        code = "\n".join(lines[begin:number]) + "\n"
        number += 1
        if _DIRECTIVE.match(match["info"].strip()):
            if mark is not None:
                raise ValueError(f"{page.name}:{begin}: a directive is not run")
            continue
        words = mark["words"] if mark else ""
        yield _block(page, begin + 1, match["info"].strip(), code, words)


def _block(page: Path, line: int, language: str, code: str, words: str) -> Block:
    if words.startswith("shown,"):
        return Block(page, line, language, code, shown=words.removeprefix("shown,").strip())
    marks: dict[str, str] = {}
    for word in words.split():
        name, _, value = word.partition("=")
        marks[name] = value
    block = Block(
        page,
        line,
        language,
        code,
        file=marks.pop("file", ""),
        where=marks.pop("where", "default"),
        output=marks.pop("output", None) is not None,
        fails=marks.pop("fails", None) is not None,
    )
    if marks or block.where not in WHERE:
        raise ValueError(f"{block}: what is {words!r}?")
    known = block.file or block.output or language in EXECUTED | PARSED
    if not known:
        raise ValueError(f"{block}: nothing runs a block of {language!r}; say test: shown, WHY")
    return block


def pages(root: Path = ROOT) -> list[Path]:
    """Every page of the site."""
    return sorted(path for path in (root / "docs").rglob("*.md") if "_build" not in path.parts)


def missing_lines(expected: str, printed: str) -> list[str]:
    """The lines of an output block that were not printed, in order; ``...`` stands for anything
    within a line, and alone for lines that do not matter.
    """
    remaining = printed.splitlines()
    missing = []
    for line in expected.splitlines():
        if not line.strip() or line.strip() == "...":
            continue
        pattern = re.compile(".*".join(map(re.escape, line.strip().split("..."))))
        found = next((i for i, seen in enumerate(remaining) if pattern.search(seen)), None)
        if found is None:
            missing.append(line)
        else:
            remaining = remaining[found + 1 :]
    return missing
