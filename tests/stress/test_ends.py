"""Limits, forks, finalisers and the end of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stress import scripts
from stress.settings import times

TESTS = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.timeout(3600)
LIMIT = 1800.0


def run(code: str, directory: Path, *words: object, flags: tuple[str, ...] = ()) -> str:
    """Run a program with directories of its own; its output, when it ended well and silently."""
    for name in ("brokers", "memory"):
        (directory / name).mkdir(mode=0o700)
    env = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "ZE_IPC_DIR": str(directory / "brokers"),
        "ZE_IPC_MOCK_DIR": str(directory / "memory"),
    }
    done = subprocess.run(
        [sys.executable, *flags, "-c", code, *map(str, words)],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert "Exception ignored" not in done.stderr, done.stderr[-3000:]
    assert list((directory / "brokers").iterdir()) == []
    left = [path for path in (directory / "memory").rglob("*") if path.is_file()]
    assert left == []
    return done.stdout


def test_an_exporter_that_is_short_of_memory(tmp_path: Path) -> None:
    outcomes = set(run(scripts.LIMITED, tmp_path, times(12, 200), "memory").split())
    assert outcomes & {"MemoryError", "OutOfHostMemory", "KernelError"}, outcomes


def test_an_exporter_that_is_short_of_descriptors(tmp_path: Path) -> None:
    outcomes = set(run(scripts.LIMITED, tmp_path, times(16, 40), "fds").split())
    assert "FdLimit" in outcomes


def test_forks_while_threads_export_and_open(tmp_path: Path) -> None:
    run(scripts.FORKS, tmp_path, times(12, 500), flags=("-W", "ignore::DeprecationWarning"))


def test_the_collector_closes_while_threads_export_and_open(tmp_path: Path) -> None:
    run(scripts.GARBAGE, tmp_path, times(20, 1000))


@pytest.mark.parametrize(
    "way", ["open", "cycle", "busy thread", "exit in a thread", "two devices", "exit"]
)
def test_the_interpreter_ends_with_everything_open(tmp_path: Path, way: str) -> None:
    run(scripts.SHUTDOWN, tmp_path, way, flags=("-W", "ignore::ResourceWarning"))
