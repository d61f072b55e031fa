"""The lines of SECURITY.md and the tests that they name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_TEST = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)?)`")


def claims(text: str) -> list[tuple[str, list[str]]]:
    """(statement, node ids) of each line of each table."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and line.count("|") >= 3]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [(cell[0], _TEST.findall(cell[-1])) for cell in cells if cell[0]]


def problems(text: str, root: Path) -> list[str]:
    """A line for each statement without a test and each test that is not there."""
    found = []
    for statement, nodes in claims(text):
        if not nodes:
            found.append(f"no test shows: {statement}")
        found += [f"{node} is not there" for node in nodes if not _exists(node, root)]
    return found


def _exists(node: str, root: Path) -> bool:
    name, _, function = node.partition("::")
    path = root / name
    if not path.is_file():
        return False
    parts = ast.walk(ast.parse(path.read_text()))
    names = {part.name for part in parts if isinstance(part, ast.FunctionDef)}
    return function in names if function else any(name.startswith("test_") for name in names)
