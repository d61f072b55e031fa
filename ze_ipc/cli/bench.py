"""``ze-ipc bench``: what sharing costs against the number of objects, beside plain C."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ze_ipc.cli import arguments as types
from ze_ipc.cli.bench_run import Target, measure
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
        from ze_ipc.cli.bench_plot import plot

        plot(rows, heading, arguments.plot)
    if arguments.json:
        print(json.dumps({"device": heading, "rows": rows}))
    else:
        _print(rows, heading)
    return 0


def _print(rows: list[dict[str, Any]], heading: str) -> None:
    console = Console(highlight=False, width=118)
    title = f"{heading}: microseconds an object, medians; in brackets plain C"
    table = Table(title=title, box=None, title_justify="left", header_style="bold")
    for name in ("objects", "export", "transfer", "import", "bind", "CPU view", "total"):
        table.add_column(name, justify="right")
    for name in ("ratio", "peak memory", "fds"):
        table.add_column(name, justify="right")
    for row in rows:
        count = row["objects"]
        cells = [
            f"{row[f'{step}_us'] / count:,.2f} ({row[f'yardstick_{step}_us'] / count:,.2f})"
            for step in ("export", "transfer", "import", "bind", "view", "total")
        ]
        if not row["view_us"]:
            cells[4] = "-"
        memory = f"{row['exporter_peak_bytes'] >> 20} + {row['importer_peak_bytes'] >> 20} MiB"
        fds = f"{row['exporter_fds']} + {row['importer_fds']}"
        table.add_row(f"{count:,}", *cells, f"{row['ratio']:.2f}", memory, fds)
    console.print(table)
