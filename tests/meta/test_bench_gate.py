"""The bench gate is red on results that are too slow in any way that it bounds, and only then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_gate.bounds import Bound, read_bounds
from bench_gate.main import BOUNDS, BROKEN, HOLDS, judge

ROOT = Path(__file__).resolve().parents[2]


def good(bound: Bound) -> dict[str, Any]:
    """A row that is as slow as it may be."""
    return {
        "objects": bound.objects,
        "busy": bound.busy,
        "ratio": bound.ratio,
        "total_us": 1000.0,
        "export_us": 1000.0 * min(bound.export_share, 0.5),
        "exporter_fds_before": 14,
        "exporter_fds": 14 + bound.fds_above_start,
        "importer_fds_before": 6,
        "importer_fds": 6 + bound.fds_above_start,
    }


def gate(tmp_path: Path, rows: list[dict[str, Any]]) -> int:
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"device": "doctored", "rows": rows}))
    command = [sys.executable, str(ROOT / "ci/bench-gate"), "--results", str(results)]
    return subprocess.run(command, capture_output=True).returncode


BOUNDED = read_bounds(BOUNDS)


def test_results_within_the_bounds(tmp_path: Path) -> None:
    assert gate(tmp_path, [good(bound) for bound in BOUNDED]) == HOLDS


@pytest.mark.parametrize("index", range(len(BOUNDED)), ids=map(str, BOUNDED))
def test_a_ratio_that_is_too_high(tmp_path: Path, index: int) -> None:
    rows = [good(bound) for bound in BOUNDED]
    rows[index]["ratio"] *= 1.01
    assert gate(tmp_path, rows) == BROKEN


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ratio", float("nan")),
        ("export_us", 51.0),
        ("exporter_fds", 14 + 301),
        ("importer_fds", 6 + 301),
    ],
)
def test_other_bounds(tmp_path: Path, key: str, value: float) -> None:
    rows = [good(bound) for bound in BOUNDED]
    next(row for row in rows if row["objects"] == 1000)[key] = value
    assert gate(tmp_path, rows) == BROKEN


def test_a_row_that_is_missing(tmp_path: Path) -> None:
    assert gate(tmp_path, [good(bound) for bound in BOUNDED[1:]]) not in (HOLDS,)


@pytest.mark.parametrize(("slow_attempts", "holds"), [(0, True), (1, True), (2, True), (3, False)])
def test_what_is_beyond_is_measured_again(slow_attempts: int, holds: bool) -> None:
    bound = Bound(objects=1, ratio=2.0)
    measured = []

    def measure(_: Bound) -> dict[str, Any]:
        measured.append({**good(bound), "ratio": 9.0 if len(measured) < slow_attempts else 1.0})
        return measured[-1]

    assert judge([bound], measure, 3) is holds
    assert len(measured) == min(slow_attempts + 1, 3)


def test_every_kind_of_bound_is_in_use() -> None:
    """Doctored results above prove the gate; a bound that no row sets would prove nothing."""
    assert any(bound.export_share < 1 for bound in BOUNDED)
    assert all(bound.fds_above_start <= 300 for bound in BOUNDED)
    assert any(bound.busy for bound in BOUNDED)
    assert all(bound.pairs >= 11 for bound in BOUNDED)
