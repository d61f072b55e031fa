"""Programs that do not touch the GPU must not notice the preload library."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ze_ipc import mock_run

REPOSITORY = Path(__file__).parents[2]
LIMIT = 60.0

LISTS_FDS = """
import os, subprocess, sys
child = subprocess.run(["ls", "/"], capture_output=True, text=True, close_fds=True)
print(child.stdout, sorted(os.listdir("/proc/self/fd")), os.stat("/dev/null").st_rdev)
print(os.path.realpath("/usr/bin/python3"), os.getcwd(), os.access("/etc/passwd", os.R_OK))
with open("/proc/self/status") as file:
    print(len(file.readlines()) > 10)
sys.exit(7)
"""

COMMANDS = {
    "python": [sys.executable, "-c", LISTS_FDS],
    "git": ["git", "-C", str(REPOSITORY), "log", "--stat", "-3"],
    "tar": ["tar", "cf", "-", "-C", str(REPOSITORY), "ze_ipc", "native"],
    "ls": ["ls", "-lR", "/usr/include"],
    "find": ["find", "/sys/class", "-name", "lo"],
    "sysfs": ["find", "/sys/class", "-path", "/sys/class/drm", "-prune", "-o", "-print"],
    "shell": ["sh", "-c", "cd /sys/class && pwd && cd /dev && ls null zero && cd .. && pwd"],
    "missing": ["cat", "/sys/class/none", "/dev/none"],
    "cc": ["cc", "-E", "-dM", "-x", "c", "/dev/null"],
}


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    with mock_run.environment() as values:
        yield values


def output(command: list[str], env: dict[str, str]) -> tuple[int, bytes, bytes]:
    result = subprocess.run(command, env=env, capture_output=True, timeout=LIMIT, check=False)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_same_output(name: str, variables: dict[str, str]) -> None:
    plain = output(COMMANDS[name], dict(os.environ))
    assert output(COMMANDS[name], {**os.environ, **variables}) == plain
    assert plain[1] or plain[2]


def test_without_a_tree_it_does_nothing(variables: dict[str, str]) -> None:
    env = {**os.environ, "LD_PRELOAD": variables["LD_PRELOAD"]}
    command = ["ls", "-l", "/dev/dri", "/sys/class/drm"]
    assert output(command, env) == output(command, dict(os.environ))


def test_exports_only_what_it_interposes() -> None:
    names = subprocess.run(
        ["nm", "-D", "--defined-only", str(mock_run.library())],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    ).stdout.split()[2::3]
    calls = (REPOSITORY / "native/preload/calls.def").read_text()
    assert names
    for name in names:
        assert re.search(rf", {name},\s+\(", calls), name


def test_exported_names_are_libc_names() -> None:
    libc = ctypes.CDLL(None)
    names = subprocess.run(
        ["nm", "-D", "--defined-only", str(mock_run.library())],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    ).stdout.split()[2::3]
    assert [name for name in names if not hasattr(libc, name)] == []
