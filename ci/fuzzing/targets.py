"""The targets: those in C by libFuzzer and the sanitizers, those in Python by atheris."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ROOT / "tests" / "fuzz"
CORPUS = TARGETS / "corpus"
IN_C = sorted(path.stem[len("fuzz_") :] for path in TARGETS.glob("fuzz_*.c"))
IN_PYTHON = sorted(path.stem[len("fuzz_") :] for path in TARGETS.glob("fuzz_*.py"))
FOLDERS = ("native/mock", "native/stream", "ioctl", "tests/native", "tests/fuzz")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
FLAGS = (
    *("-std=gnu11", "-O1", "-g", "-w", "-D_GNU_SOURCE", "-fno-omit-frame-pointer", "-pthread"),
    *(f"-I{ROOT / folder}" for folder in FOLDERS),
    *SANITIZERS,
)
_SECONDS = 600


def sources() -> list[Path]:
    """What the targets in C are linked with."""
    patterns = ("native/mock/*.c", "native/stream/*.c", "ioctl/xe_*.c")
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def fuzzing_compiler() -> str | None:
    """A clang that has libFuzzer's library, or None."""
    for name in ("clang", *(f"clang-{version}" for version in range(30, 12, -1))):
        clang = shutil.which(name)
        if clang is None:
            continue
        asked = subprocess.run(
            [clang, "-fsanitize=fuzzer,address", "-xc", "-", "-o", os.devnull],
            input="int LLVMFuzzerTestOneInput(void) { return 0; }",
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        if asked.returncode == 0:
            return clang
    return None


def has_atheris() -> bool:
    """Whether this Python can fuzz Python."""
    return importlib.util.find_spec("atheris") is not None


def build(targets: list[str], directory: Path, clang: str | None) -> dict[str, Path]:
    """A program for each target in C: a fuzzer by clang, or by gcc one that runs files."""
    directory.mkdir(parents=True, exist_ok=True)
    compiler = clang or shutil.which("gcc") or "cc"
    core_flags = ["-fsanitize=fuzzer-no-link"] if clang else []
    main = ["-fsanitize=fuzzer"] if clang else [str(TARGETS / "replay.c")]

    def run(*arguments: str) -> None:
        subprocess.run([compiler, *FLAGS, *arguments], check=True, timeout=_SECONDS)

    def compile_one(source: Path) -> str:
        target = directory / f"{source.stem}.o"
        run(*core_flags, "-c", str(source), "-o", str(target))
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources()))
    programs = {target: directory / target for target in targets}
    for target, program in programs.items():
        run(*main, str(TARGETS / f"fuzz_{target}.c"), *objects, "-o", str(program))
    return programs
