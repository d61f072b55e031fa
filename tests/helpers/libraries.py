"""Shared libraries of the Level Zero tests, made with this system's compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "level_zero"
API = Path(__file__).parents[2] / "native/ze"
RANGE_DRIVER = ("range_driver.c", "range_memory.c", "range_ipc.c", "empty_tables.c")


def compile_library(target: Path, *sources: Path) -> Path:
    """A library of ours, with our declarations of Level Zero."""
    command = [shutil.which("gcc") or "cc", "-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC"]
    command += ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", f"-I{API}"]
    command += ["-Wl,-Bsymbolic", "-o", str(target), *map(str, sources), "-pthread", "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return target


def range_driver(target: Path) -> Path:
    """The test driver, which has the range extension."""
    return compile_library(target, *(SOURCES / name for name in RANGE_DRIVER))


def mapper(target: Path) -> Path:
    """A library that maps memory and knows nothing of this package."""
    return compile_library(target, SOURCES / "mapper.c", API / "ze_table.c")
