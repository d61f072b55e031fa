"""``ze-ipc inspect``: what a handle is, and whether it could be opened here."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from ze_ipc.cli import arguments as types
from ze_ipc.errors import InvalidHandle
from ze_ipc.handle import HandleFields
from ze_ipc.host import host_identity
from ze_ipc.open_device import open_device


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
        report = {"valid": False, "can_open": False, "reason": str(error)}
    else:
        with open_device(arguments.backend) as device:
            check = device.can_open(arguments.handle)
        report = {
            "valid": True,
            "this_host": fields.host == host_identity(),
            "exporter_pid": fields.pid,
            "broker": fields.broker.hex(),
            "generation": fields.generation,
            "doorbell_fd": fields.doorbell,
            "can_open": check.ok,
            "reason": check.reason,
        }
    if arguments.json:
        print(json.dumps(report))
    else:
        table = Table(show_header=False, box=None)
        for name, value in report.items():
            table.add_row(name.replace("_", " "), "-" if value is None else str(value))
        Console(highlight=False, width=120).print(table)
    return 0 if report["can_open"] else 1
