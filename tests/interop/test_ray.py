"""Ray: handles through its object store, and arrays of a range through a tensor transport."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.timeout(300)
def test_actors_share_a_range(tmp_path: Path) -> None:
    (tmp_path / "brokers").mkdir(mode=0o700)
    env = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "ZE_IPC_DIR": str(tmp_path / "brokers"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        [sys.executable, TESTS / "helpers/ray_program.py"],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1:] == ["done"]
