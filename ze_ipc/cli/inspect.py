"""``ze-ipc inspect``: what a handle is, and whether it could be opened here."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import uuid
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ze_ipc import manifest as manifests
from ze_ipc.cli import arguments as types
from ze_ipc.cli.picture import size_text
from ze_ipc.errors import InvalidHandle, ZeIpcError
from ze_ipc.handle import HandleFields
from ze_ipc.host import host_identity
from ze_ipc.open_device import open_device
from ze_ipc.transport_listing import ask_about

SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The handle and how to print it."""
    parser.add_argument(
        "handle", type=types.handle, metavar="HANDLE", help="128 hexadecimal digits"
    )
    types.add_backend(parser)
    types.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 if the handle could be opened here now."""
    try:
        fields = HandleFields.unpack(arguments.handle)
    except InvalidHandle as error:
        report: dict[str, Any] = {"valid": False, "can_open": False, "reason": str(error)}
    else:
        report = _report(fields, arguments)
    if arguments.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0 if report["can_open"] else 1


def _report(fields: HandleFields, arguments: argparse.Namespace) -> dict[str, Any]:
    here = fields.host == host_identity()
    report: dict[str, Any] = {
        "valid": True,
        "this_host": here,
        "exporter_pid": fields.pid,
        "exporter_alive": here and Path(f"/proc/{fields.pid}").is_dir(),
        "broker": fields.broker.hex(),
        "generation": fields.generation,
        "doorbell_fd": fields.doorbell,
    }
    # can_open() says why it cannot; an exporter of another version may serve it all the same.
    with contextlib.suppress(ZeIpcError):
        report |= _range(fields)
    with open_device(arguments.backend) as device:
        check = device.can_open(arguments.handle)
    return report | {"can_open": check.ok, "reason": check.reason}


def _range(fields: HandleFields) -> dict[str, Any]:
    """What its exporter says of it."""
    said = ask_about(fields, time.monotonic() + SECONDS)
    manifest = manifests.parse(said["manifest"])
    export = said.get("export", {})
    return {
        "exporter_pid": said.get("pid", fields.pid),
        "exporter_alive": True,
        "exporter_command": said.get("command", []),
        "device_uuid": str(uuid.UUID(bytes=manifest.device_uuid)),
        "size": manifest.window_size,
        "objects": manifest.object_count,
        "extents": manifest.extent_count,
        "page_size": manifest.page_size,
        "window_offset": manifest.window_offset,
        "mapped_size": manifest.covered_size,
        "read_only": manifest.read_only,
        "reachable_beyond_window": manifests.exposure(manifest).beyond,
        "exported_from": export.get("ptr"),
        "opens": export.get("opens"),
        "importers": [importer["pid"] for importer in export.get("importers", [])],
    }


def _print(report: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in report.items():
        table.add_row(name.replace("_", " "), _shown(name, value))
    Console(highlight=False).print(table)


def _shown(name: str, value: Any) -> Text:
    if value is None or value == "" or value == []:
        return Text("-")
    if name in ("size", "mapped_size", "page_size", "window_offset", "reachable_beyond_window"):
        exact = f"{value:,} bytes"
        short = size_text(value)
        return Text(exact if short.endswith(" B") else f"{short} ({exact})")
    if name == "exported_from":
        return Text(f"{value:#x}")
    if isinstance(value, bool):
        return Text("yes" if value else "no", style="green" if value else "yellow")
    if isinstance(value, list):
        return Text((" " if name == "exporter_command" else ", ").join(map(str, value)))
    return Text(str(value))
