"""``ze-ipc bench``: what sharing costs against the number of objects, beside plain C."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ze_ipc.cli import arguments as types
from ze_ipc.cli import bench_plot
from ze_ipc.cli.bench_run import STEPS, Target, measure
from ze_ipc.open_device import open_device

COUNTS = (1, 16, 256, 1_000, 10_000, 100_000)
HUGE = 1_000_000
PAIRS = 11
VIEW_LIMIT = 60_000
"""More objects than this have no CPU view under the default vm.max_map_count."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure and how to show it."""
    parser.add_argument(
        "--objects",
        type=types.count,
        action="append",
        metavar="N",
        help="a row of N objects; may be repeated (default: 1 to 100,000)",
    )
    parser.add_argument("--huge", action="store_true", help="a row of 1,000,000 objects as well")
    parser.add_argument("--object-size", type=types.size, default=64 << 10, metavar="BYTES")
    parser.add_argument(
        "--pairs", type=types.count, default=PAIRS, help=f"pairs of runs a row (default {PAIRS})"
    )
    parser.add_argument(
        "--busy", action="store_true", help="with one busy Python thread in each process"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the cost against N (.svg or .png)"
    )
    types.add_backend(parser)
    types.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 when every row was measured."""
    if arguments.plot:
        bench_plot.check(arguments.plot)
    counts = list(arguments.objects or COUNTS) + ([HUGE] if arguments.huge else [])
    with open_device(arguments.backend) as device:
        target = Target.of(device)
        heading = f"{device.name}, {device.backend}"
    rows = []
    for count in counts:
        view = count <= VIEW_LIMIT
        row = measure(
            target, count, arguments.object_size, arguments.pairs, busy=arguments.busy, view=view
        )
        rows.append(row)
    if arguments.plot:
        bench_plot.plot(rows, heading, arguments.plot)
    if arguments.json:
        print(json.dumps({"device": heading, "rows": rows}))
    else:
        _print(rows, heading)
    return 0


WIDE = 110
"""Columns of a terminal that the steps have room in."""


def _print(rows: list[dict[str, Any]], heading: str) -> None:
    console = Console(highlight=False)
    wide = console.width >= WIDE
    steps = [name for name in STEPS if wide and (name != "view" or any(r["view_us"] for r in rows))]
    console.print(heading)
    console.print("microseconds an object, medians; in brackets plain C")
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("objects", justify="right", no_wrap=True)
    for name in (*steps, "total"):
        heads = {"view": "CPU view"}
        table.add_column(heads.get(name, name), justify="right", no_wrap=True)
    for name in ("ratio", "peak MiB", "fds"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [_cost(row, name) for name in (*steps, "total")]
        memory, fds = (
            f"{row[f'exporter_{key}'] >> shift} + {row[f'importer_{key}'] >> shift}"
            for key, shift in (("peak_bytes", 20), ("fds", 0))
        )
        table.add_row(f"{row['objects']:,}", *cells, f"{row['ratio']:.2f}", memory, fds)
    console.print(table)


def _cost(row: dict[str, Any], name: str) -> str:
    """Of one object: ours, and in brackets the yardstick's."""
    ours, yardstick = (row[f"{key}_us"] / row["objects"] for key in (name, f"yardstick_{name}"))
    return f"{_short(ours)} ({_short(yardstick)})" if ours else "-"


def _short(cost: float) -> str:
    """Three digits or so."""
    return f"{cost:,.{0 if cost >= 100 else 1 if cost >= 10 else 2}f}"
