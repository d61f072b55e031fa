"""Measure, compare, repeat what was beyond, report."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench_gate.bounds import Bound, Row, read_bounds

HOLDS, BROKEN, USAGE = 0, 1, 2
BOUNDS = Path(__file__).with_name("bounds.json")
ATTEMPTS = 3
_SECONDS = 300

DESCRIPTION = """
Run `ze-ipc bench` on the mock device and hold it against the bounds in ci/bench_gate/bounds.json:
ratios to the same job in plain C, measured in turns in the same minutes, so that a slow or a busy
machine slows both. A row that is beyond a bound is measured again, twice at most: noise does not
come three times, a regression does. Exit code 1 when a bound is broken.
"""


def measured(bound: Bound) -> Row:
    """One row by the bench of this Python's ze_ipc."""
    numbers = ("--objects", str(bound.objects), "--pairs", str(bound.pairs))
    options = ["--busy"] if bound.busy else []
    command = [sys.executable, "-m", "ze_ipc", "bench", "--backend", "mock", "--json"]
    answer = subprocess.run(
        [*command, *numbers, *options], check=True, capture_output=True, text=True, timeout=_SECONDS
    )
    (row,) = json.loads(answer.stdout)["rows"]
    return row


def recorded(path: Path) -> Callable[[Bound], Row]:
    """Rows from a file of ``ze-ipc bench --json`` in place of a measurement."""
    rows = {(row["objects"], row["busy"]): row for row in json.loads(path.read_text())["rows"]}
    return lambda bound: rows[bound.objects, bound.busy]


def judge(bounds: Sequence[Bound], measure: Callable[[Bound], Row], attempts: int) -> bool:
    """Whether every bound holds; one line a measurement on standard output."""
    holds = True
    for bound in bounds:
        for attempt in range(1, attempts + 1):
            row = measure(bound)
            breaches = bound.breaches(row)
            verdict = "BEYOND: " + ", ".join(breaches) if breaches else "ok"
            print(f"{bound}: ratio {row['ratio']:.2f}, at most {bound.ratio:g}: {verdict}", end="")
            print(f" (attempt {attempt} of {attempts})" if breaches else "", flush=True)
            if not breaches:
                break
        holds = holds and not breaches
    return holds


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="ci/bench-gate", description=DESCRIPTION)
    parser.add_argument("--bounds", type=Path, default=BOUNDS, metavar="FILE")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="judge what `ze-ipc bench --json` wrote instead of measuring",
    )
    options = parser.parse_args(arguments)
    bounds = read_bounds(options.bounds)
    if options.results:
        return HOLDS if judge(bounds, recorded(options.results), 1) else BROKEN
    return HOLDS if judge(bounds, measured, ATTEMPTS) else BROKEN
