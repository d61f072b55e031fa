"""The picture of a bench: cost an object against the number of objects, ours and plain C's."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ze_ipc.errors import InvalidArgument, UnsupportedFeature

OURS, YARDSTICK, GRID = "#0068b5", "#8a8f98", "#e3e6ea"


def check(path: Path) -> None:
    """Raise what plot() would raise, before anything is measured."""
    if path.suffix not in (".svg", ".png"):
        raise InvalidArgument(f"--plot draws .svg and .png, not {path.name}", call="ze-ipc bench")
    if find_spec("matplotlib") is None:
        raise UnsupportedFeature("--plot needs matplotlib", hint="pip install 'ze_ipc[plot]'")


def plot(rows: list[dict[str, Any]], heading: str, path: Path) -> None:
    """Write an SVG or PNG; needs matplotlib (``pip install ze_ipc[plot]``)."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    counts = [row["objects"] for row in rows]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for key, name, color in (
        ("yardstick_total_us", "plain C, the same system calls", YARDSTICK),
        ("total_us", "ze_ipc", OURS),
    ):
        costs = [row[key] / row["objects"] for row in rows]
        axes.plot(counts, costs, marker="o", color=color, label=name, linewidth=2)
    for row in rows:
        axes.annotate(
            f"×{row['ratio']:.2f}",
            (row["objects"], row["total_us"] / row["objects"]),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            color=OURS,
        )
    axes.margins(x=0.06, y=0.12)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    for axis, subs in ((axes.xaxis, (1.0,)), (axes.yaxis, (1.0, 2.0, 5.0))):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(plain)
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("physical memory objects in the range")
    axes.set_ylabel("microseconds an object: export, transfer, import, bind")
    axes.set_title(heading, loc="left")
    axes.grid(color=GRID)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
