"""Every line of SECURITY.md names tests that are there; the check is shown red."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.claims import claims, problems
from helpers.repository import ROOT

TEXT = (ROOT / "SECURITY.md").read_text()


def test_each_line_has_its_tests() -> None:
    assert problems(TEXT, ROOT) == []
    assert len(claims(TEXT)) > 30


@pytest.mark.timeout(300)
def test_pytest_finds_them() -> None:
    nodes = sorted({node for _, found in claims(TEXT) for node in found})
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *nodes], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for node in nodes:
        assert node in done.stdout


HEAD = "| | shown by |\n|---|---|\n"


@pytest.mark.parametrize(
    ("line", "red"),
    [
        ("| good | `tests/test_x.py::test_y` |", False),
        ("| the whole file | `tests/test_x.py` |", False),
        ("| nothing shows it | |", True),
        ("| only words | somebody looked |", True),
        ("| gone | `tests/test_x.py::test_z` |", True),
        ("| no file | `tests/test_w.py::test_y` |", True),
        ("| one of two | `tests/test_x.py::test_y` `tests/test_x.py::test_z` |", True),
    ],
)
def test_a_line_without_its_test_is_found(tmp_path: Path, line: str, red: bool) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text("def test_y(): ...\n")
    assert bool(problems(HEAD + line + "\n", tmp_path)) is red
