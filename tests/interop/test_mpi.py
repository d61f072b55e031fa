"""mpi4py on one machine, started by the mpiexec that is installed beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("ranks", [3])
def test_ranks_of_a_node(ranks: int) -> None:
    program = TESTS / "helpers/mpi_ranks.py"
    done = subprocess.run(
        [Path(sys.executable).with_name("mpiexec"), "-n", str(ranks), sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["all ranks are done"]
