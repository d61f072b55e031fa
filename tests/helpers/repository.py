"""What every file of the repository must be: short enough, and of no particular machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ze_ipc", "ioctl", "native", "tests", "ci", ".ci", "docs", "examples")
TEXT = {
    *(".py", ".pyi", ".c", ".h", ".cdef", ".md", ".toml", ".txt", ".cmake", ".sh", ".yml"),
    *(".yaml", ".json", ".cfg", ".ini", ".in", ""),
}
CODE = {".py", ".c", ".h"}
MAX_LINES = 600

# Written in parts, so that this file does not name what it forbids.
MACHINE = {
    "a home directory": r"(?<![\w.$}])/(?:ro" + r"ot|ho" + r"me/\w+)/\w",
    "a working directory": r"(?<![\w.$}])/(?:wo"
    + r"rk/\w|tmp/(?:w"
    + r"t/|ven"
    + r"v-|bui"
    + r"ld-))",
    "a local package folder": r"/op" + r"t/(?:whe" + r"els|py" + r"pi)",
    "a package index": r"\b(?:extra-)?ind" + r"ex-url\b",
    "a registry host": r"\b(?:py" + r"pi\.org|pythonho" + r"sted\.org|registry\.n" + r"pmjs|"
    r"proxy\.gol" + r"ang\.org|crat" + r"es\.io)",
}


def files(root: Path = ROOT) -> Iterator[Path]:
    """Every file of ours: those in the root and those in the known folders."""
    yield from sorted(path for path in root.iterdir() if path.is_file() and path.name != ".git")
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and not {"__pycache__", "build"} & set(path.parts):
                yield path


def too_long(root: Path = ROOT) -> list[str]:
    """Source files of more than MAX_LINES lines."""
    counted = [
        (path.relative_to(root), len(path.read_bytes().splitlines()))
        for path in files(root)
        if path.suffix in CODE
    ]
    return [f"{path}: {lines} lines" for path, lines in counted if lines > MAX_LINES]


def names_a_machine(root: Path = ROOT) -> list[str]:
    """Lines that name a path or host of the machine they were written on."""
    return [
        f"{path.relative_to(root)}:{number}: {what}"
        for path in files(root)
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        for what, pattern in MACHINE.items()
        if re.search(pattern, line)
    ]
