"""The device tests again, on render nodes that the preload library provides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ze_ipc import mock_run

TESTS = Path(__file__).parents[1]
LIMIT = 230.0

CHOSEN = {
    "test_ranges.py": "",
    "test_sharing.py": "",
    "test_lifecycle.py": "not wrong_arguments",  # some are arguments of open_device itself
}


@pytest.mark.timeout(LIMIT + 10)
@pytest.mark.parametrize("file", CHOSEN)
def test_device_tests_pass_on_nodes(file: str) -> None:
    with mock_run.environment(devices=2) as variables:
        env = {
            **os.environ,
            **variables,
            "ZE_IPC_TEST_BACKEND": "xe",
            "PYTHONPATH": str(TESTS),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "helpers.on_nodes", "-p", "no:xdist"]
        command += ["-p", "no:cacheprovider", "-k", CHOSEN[file], str(TESTS / "device" / file)]
        result = subprocess.run(
            command,
            env=env,
            cwd=TESTS.parent,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    assert result.returncode == 0, result.stdout + result.stderr
