"""Files are short and belong to no machine; the checks are shown red."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import repository


def test_files_are_short() -> None:
    assert repository.too_long() == []


def test_files_name_no_machine() -> None:
    assert repository.names_a_machine() == []


def test_the_files_are_looked_at() -> None:
    names = {str(path.relative_to(repository.ROOT)) for path in repository.files()}
    assert {"pyproject.toml", "ze_ipc/errors.py", "ioctl/xe_ops.h", "tests/conftest.py"} <= names


@pytest.mark.parametrize("name", ["native/x.c", "ze_ipc/x.py", "ioctl/x.h"])
@pytest.mark.parametrize(("lines", "red"), [(601, True), (600, False)])
def test_a_long_file_is_found(tmp_path: Path, name: str, lines: int, red: bool) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text("x\n" * lines)
    assert bool(repository.too_long(tmp_path)) is red


PARTS = [
    ("cd /", "root", "/project"),
    ("cd /", "home", "/somebody/project"),
    ("see /", "work", "/main"),
    ("/tmp/", "wt", "/x"),
    ("/tmp/", "venv", "-x/bin/python"),
    ("--ind", "ex-url", " x"),
    ("--extra-index", "-url", " x"),
    ("https://py", "pi.org", "/simple"),
    ("/opt/", "wheels", ""),
]


@pytest.mark.parametrize("parts", PARTS)
def test_a_machine_is_found(tmp_path: Path, parts: tuple[str, str, str]) -> None:
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "run").write_text("first\n" + "".join(parts) + "\n")
    (found,) = repository.names_a_machine(tmp_path)
    assert found.startswith("ci/run:2:")


@pytest.mark.parametrize("line", ["/dev/shm", "build/work/x", "$HOME/x", "<root>/x", "network/a"])
def test_ordinary_lines_are_not(tmp_path: Path, line: str) -> None:
    (tmp_path / "README.md").write_text(line)
    assert repository.names_a_machine(tmp_path) == []
