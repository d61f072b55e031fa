"""The preload library's table of open files under sanitizers, which its wrappers do not bear."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PRELOAD = ROOT / "native" / "preload"
SOURCES = [PRELOAD / name for name in ("files.c", "tree.c", "real.c", "internal.c")]
INCLUDE = [f"-I{path}" for path in (PRELOAD, ROOT / "native" / "mock", ROOT / "ioctl")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_open_files(sanitizer: str, tmp_path: Path) -> None:
    program = tmp_path / "preload_files"
    command = ["gcc", "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    command += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", *INCLUDE, "-pthread"]
    command += [str(HERE / "preload_files.c"), *map(str, SOURCES), "-ldl", "-o", str(program)]
    subprocess.run(command, check=True, timeout=200)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
