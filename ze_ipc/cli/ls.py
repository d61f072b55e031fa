"""``ze-ipc ls``: who exports ranges on this host, and who has opened them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ze_ipc.broker_listing import What
from ze_ipc.cli import arguments as types
from ze_ipc.cli.picture import size_text
from ze_ipc.transport_listing import Told, ask_all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How to print them."""
    parser.description = (
        "List the exports of this user's processes and who has opened them, as their brokers tell."
        " No handle can be made from it: secrets are not told."
    )
    types.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0, also when there is nothing to list; 1 if a broker did not answer."""
    told = list(ask_all(What.EXPORTS))
    if arguments.json:
        print(json.dumps({"exporters": [_json(row) for row in told]}))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for line in _lines(told):
            console.print(line)
    return 1 if any(row.problem for row in told) else 0


def _json(row: Told) -> dict[str, Any]:
    return {"socket": str(row.socket), "problem": row.problem, **row.said}


def _lines(told: list[Told]) -> Iterator[Text]:
    if not told:
        yield Text("nobody exports anything here")
    for row in told:
        if row.problem:
            yield Text.assemble((f"process {row.pid or '?'}", "bold"), f"  {row.socket}")
            yield Text(f"  does not answer: {row.problem}", style="yellow")
            continue
        yield from _exporter(row)


def _exporter(row: Told) -> Iterator[Text]:
    said = row.said
    command = " ".join(map(str, said.get("command", ())))
    yield Text.assemble((f"process {said['pid']}", "bold"), "  ", (_cut(command, 60), "dim"))
    if "device" in said:
        yield Text(f"  {said['device']} at {said['pci_address']}", style="dim")
    exports = said.get("exports", ())
    if not exports:
        yield Text("  exports nothing now")
    for export in exports:
        yield Text.assemble(
            (f"  handle {export['generation']}", "cyan"),
            f"  {size_text(export['size'])} in {_count(export['objects'], 'object')} from "
            f"{export['ptr']:#x}, {_age(export['since'])} old, {_count(export['opens'], 'open')}",
        )
        for importer in export["importers"]:
            pid = importer["pid"]
            who = f"process {pid}" if pid else "a process of another pid namespace"
            name = _name_of(pid)
            yield Text.assemble(
                "    held by ",
                (who, "green"),
                f" {name}".rstrip(),
                f", for {_age(importer['since'])}, {_count(importer['opens'], 'open')}",
            )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _age(since: float) -> str:
    seconds = max(0.0, time.time() - since)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"


def _name_of(pid: int) -> str:
    try:
        return f"({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})" if pid else ""
    except OSError:
        return ""


def _cut(words: str, length: int) -> str:
    return words if len(words) <= length else words[: length - 1] + "…"
