"""Run targets for a while each, from their committed corpus on; a finding is kept as a file."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fuzzing.targets import (
    CORPUS,
    IN_C,
    IN_PYTHON,
    ROOT,
    TARGETS,
    build,
    fuzzing_compiler,
    has_atheris,
)

_GRACE = 120

DESCRIPTION = """
Fuzz what strangers can reach. In C, with libFuzzer and the sanitizers: the object stream, the
mock's ioctls, its GPU commands. In Python, with atheris: the messages, a broker, an importer. Where
clang or atheris are missing, the committed corpus is run without them. Exit code 1 when something
is found; the input that shows it is in DIR/findings.
"""

_REPLAY = """
import importlib, logging, pathlib, sys
logging.disable(logging.CRITICAL)
sys.path.insert(0, sys.argv[1])
target = importlib.import_module("fuzz.fuzz_" + sys.argv[2])
for path in sorted(pathlib.Path(sys.argv[3]).iterdir()):
    target.one_input(path.read_bytes())
getattr(target, "finish", lambda: None)()
"""


def fuzz(command: list[str], target: str, seconds: int, directory: Path) -> bool:
    """Whether a fuzzer found nothing."""
    kept, findings = directory / "corpus" / target, directory / "findings"
    for folder in (kept, findings):
        folder.mkdir(parents=True, exist_ok=True)
    return succeeds(
        target,
        [
            *command,
            str(kept),
            str(CORPUS / target),
            f"-max_total_time={seconds}",
            "-max_len=4096",
            "-timeout=30",
            "-rss_limit_mb=2048",
            f"-artifact_prefix={findings}/{target}-",
        ],
        seconds + _GRACE,
    )


def succeeds(target: str, command: list[str], seconds: int) -> bool:
    """Run and say how it went; what was printed only if it failed."""
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=seconds
    )
    took = time.monotonic() - begun
    print(f"{target}: {'FOUND' if done.returncode else 'ok'}, {took:.0f} s", flush=True)
    if done.returncode:
        print((done.stdout + done.stderr)[-6000:])
    return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="ci/fuzz", description=DESCRIPTION)
    known = [*IN_C, *IN_PYTHON]
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(known)}")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target (default 1)")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "fuzz", metavar="DIR")
    options = parser.parse_args(arguments)
    targets = options.targets or known
    if unknown := set(targets) - set(known):
        parser.error(f"no target {', '.join(sorted(unknown))}")
    seconds = max(1, round(60 * options.minutes))
    directory = options.directory.resolve()
    good = True
    in_c = [target for target in targets if target in IN_C]
    if in_c:
        clang = fuzzing_compiler()
        if clang is None:
            print("no clang with libFuzzer: the corpora of the targets in C are only replayed")
        for target, program in build(in_c, directory, clang).items():
            if clang is None:
                command = [str(program), *map(str, sorted((CORPUS / target).iterdir()))]
                good = succeeds(target, command, _GRACE) and good
            else:
                good = fuzz([str(program)], target, seconds, directory) and good
    in_python = [target for target in targets if target in IN_PYTHON]
    fuzzes = has_atheris()
    if in_python and not fuzzes:
        print("no atheris: the corpora of the targets in Python are only replayed")
    for target in in_python:
        python = [sys.executable, "-W", "ignore"]
        if fuzzes:
            command = [*python, str(TARGETS / "atheris_main.py"), target]
            good = fuzz(command, target, seconds, directory) and good
        else:
            files = [str(TARGETS.parent), target, str(CORPUS / target)]
            good = succeeds(target, [*python, "-c", _REPLAY, *files], _GRACE) and good
    return 0 if good else 1
