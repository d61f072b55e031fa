"""``ze-ipc devices``: the GPUs that can be opened here, and the mock."""

from __future__ import annotations

import argparse
import json
import uuid
from typing import Any

from rich.console import Console

from ze_ipc.cli import arguments as types
from ze_ipc.errors import ZeIpcError
from ze_ipc.open_device import list_devices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How to print them."""
    types.add_backend(parser)
    types.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 if a device can be opened, be it the mock."""
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for name, found in list_devices(arguments.backend):
        if isinstance(found, ZeIpcError):
            problems.append(f"{name}: {found}")
            continue
        rows.append(
            {
                "backend": name,
                "name": found.name,
                "pci_address": found.pci_address,
                "uuid": str(uuid.UUID(bytes=found.uuid)),
                "render_node": found.render_node,
                "memory": found.device_memory,
                "page_size": found.page_size,
                "mock": found.is_mock,
            }
        )
    if arguments.json:
        print(json.dumps({"devices": rows, "problems": problems}))
        return 0 if rows else 1
    console = Console(highlight=False, soft_wrap=True)
    for row in rows:
        memory = f"{row['memory'] / (1 << 30):,.1f} GiB" if row["memory"] else "system memory"
        console.print(f"[bold]{row['name']}[/]")
        console.print(
            f"  {'mock' if row['mock'] else row['backend']}  {row['pci_address']}"
            f"  {row['render_node']}  {memory}, pages of {row['page_size'] >> 10} KiB"
        )
        console.print(f"  uuid {row['uuid']}")
    for problem in problems:
        console.print(f"[dim]{problem}[/]")
    return 0 if rows else 1
