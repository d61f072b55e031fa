"""The examples run, as a user runs them, and say what they should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "ZE_IPC_BACKEND": "mock"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_expandable() -> None:
    counts = (1000, 300_000, 5, 2_000_000)
    wanted, used, total = [], 0, 0
    for number, count in enumerate(counts, 1):
        used, total = used + 4 * count, total + number * count
        objects = -(-used // (1 << 20))
        wanted.append(f"{objects} MiB, {objects} objects, stayed=True, total={total}")
    assert run("expandable.py") == wanted
    assert len((EXAMPLES / "expandable.py").read_text().splitlines()) <= 100
