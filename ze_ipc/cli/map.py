"""``ze-ipc map``: a picture of a handle's range, or of all mappings of a process."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from ze_ipc import manifest as manifests
from ze_ipc.broker_listing import What
from ze_ipc.cli import arguments as types
from ze_ipc.cli import picture as pictures
from ze_ipc.cli import picture_svg, picture_text
from ze_ipc.cli.picture import Picture
from ze_ipc.errors import ExporterGone, InvalidArgument
from ze_ipc.handle import HandleFields
from ze_ipc.transport_listing import ask_about, ask_all

ROWS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to draw and where."""
    parser.description = (
        "Draw what is behind a handle, or everything that a process of this user has mapped:"
        " virtual addresses on one axis, objects as colours, offsets, holes, aliases, windows."
    )
    parser.add_argument(
        "what",
        type=_handle_or_pid,
        metavar="HANDLE|PID",
        help="a handle (128 hexadecimal digits), or a process that exports or has exported",
    )
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write an SVG file instead")
    parser.add_argument(
        "--at", metavar="ADDRESS", type=_address, help="of a process: only the range around it"
    )
    parser.add_argument(
        "--rows", type=types.count, default=ROWS, help=f"rows of each table (default {ROWS})"
    )
    types.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 if there was something to draw."""
    if isinstance(arguments.what, bytes):
        found = [_of_handle(arguments.what)]
    else:
        found = _of_process(arguments.what, arguments.at)
    if arguments.json:
        print(json.dumps({"pictures": [asdict(picture) for picture in found]}))
    elif arguments.svg:
        # A process has a broker for each device that it exports from.
        for number, picture in enumerate(found):
            path: Path = arguments.svg
            if number:
                path = path.with_stem(f"{path.stem}-{number + 1}")
            path.write_text(picture_svg.render(picture))
            print(path)
    else:
        console = Console(highlight=False)
        for picture in found:
            picture_text.print_picture(picture, console, arguments.rows)
    return 0


def _handle_or_pid(text: str) -> bytes | int:
    if text.isdecimal() and len(text) <= 10:
        return int(text)
    return types.handle(text)


def _address(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no address, such as 0x200000") from None


def _of_handle(raw: bytes) -> Picture:
    said = ask_about(HandleFields.unpack(raw), time.monotonic() + 5.0)
    return pictures.of_handle(manifests.parse(said["manifest"]), said)


def _of_process(pid: int, at: int | None) -> list[Picture]:
    told = [row for row in ask_all(What.MAPPINGS) if pid in (row.pid, row.said.get("pid"))]
    for row in told:
        if row.problem:
            raise ExporterGone(f"process {pid} does not answer: {row.problem}", call="map")
    found = [row for row in told if "table" in row.said]
    if found:
        return [pictures.of_process(row.said, at) for row in found]
    if Path(f"/proc/{pid}").is_dir():
        raise InvalidArgument(
            f"process {pid} does not listen: it has exported nothing yet, or is of another user",
            call="map",
            hint="draw a process after its first get_ipc_handle(); give both the same ZE_IPC_DIR",
        )
    raise ExporterGone(
        f"there is no process {pid}", call="map", hint="ze-ipc ls lists those that export"
    )
