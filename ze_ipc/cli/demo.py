"""``ze-ipc demo``: two processes share a range of many objects and prove it in both directions."""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from ze_ipc.cli import arguments as types
from ze_ipc.cli.demo_pattern import Pattern
from ze_ipc.open_device import open_device

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.reservation import Reservation

TIMEOUT = 600.0
"""Seconds for the other process."""

Step = Callable[[str, int], "Callable[[int], None]"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo's options."""
    parser.add_argument(
        "--objects", type=types.count, default=1000, help="physical memory objects (default 1000)"
    )
    parser.add_argument(
        "--object-size",
        type=types.size,
        default=64 << 10,
        metavar="BYTES",
        help="bytes of each (default 64K)",
    )
    types.add_backend(parser)
    types.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 only if every check passed."""
    with open_device(arguments.backend) as device, _progress(quiet=arguments.json) as step:
        report = share(device, arguments.objects, arguments.object_size, step)
    if arguments.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0 if report["verified"] else 1


def share(device: Device, objects: int, object_size: int, step: Step) -> dict[str, Any]:
    """Run the demo on an open device; the report is what ``--json`` prints."""
    there = Pattern(secrets.randbits(63), objects, object_size)
    back = Pattern(secrets.randbits(63), objects, object_size)
    with device.reserve(there.size) as reservation:
        _fill_with_objects(
            device, reservation, objects, object_size, step("making objects", objects)
        )
        there.write(device, reservation.ptr, step("writing", there.written))
        begin = time.perf_counter()
        with device.get_ipc_handle(reservation.ptr, there.size) as handle:
            export_us = (time.perf_counter() - begin) * 1e6
            waiting = step("the other process opens, checks and answers", 1)
            importer = _import_elsewhere(device, handle.hex(), there, back)
            waiting(1)
            difference = back.first_difference(
                device, reservation.ptr, step("checking the answer", back.written)
            )
            report = {
                "verified": difference is None
                and importer["difference"] is None
                and importer["gpu_difference"] is None
                and importer["self_describing"],
                "backend": device.backend,
                "mock": device.is_mock,
                "device": device.name,
                "objects": objects,
                "object_size": object_size,
                "bytes": there.size,
                "checked": there.method,
                "gpu_bytes": importer["gpu_bytes"],
                "export_us": round(export_us, 1),
                "open_us": round(importer["open_us"], 1),
                "transport": importer["transport"],
                "ptr": f"{reservation.ptr:#x}",
                "importer_ptr": f"{importer['ptr']:#x}",
                "importer_pid": importer["pid"],
                "first_difference_there": importer["difference"],
                "first_difference_gpu": importer["gpu_difference"],
                "first_difference_back": difference,
                "handle": handle.hex(),
            }
    return report


def _fill_with_objects(
    device: Device,
    reservation: Reservation,
    objects: int,
    size: int,
    progress: Callable[[int], None],
) -> None:
    for index in range(objects):
        with device.physical_memory(size) as memory:  # the mapping keeps it alive
            reservation.map(memory, at=index * size)
        progress(1)


def _import_elsewhere(device: Device, handle: str, there: Pattern, back: Pattern) -> dict[str, Any]:
    in_process = device.render_node.startswith("mock:")
    job = {
        "backend": "mock" if in_process else device.backend,
        "device": int(device.render_node.removeprefix("mock:"))
        if in_process
        else device.pci_address,
        "handle": handle,
        "objects": there.objects,
        "object_size": there.object_size,
        "seed": there.seed,
        "answer_seed": back.seed,
        "timeout": TIMEOUT / 2,
    }
    process = subprocess.run(
        [sys.executable, "-m", "ze_ipc.cli.demo_importer"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd="/",  # else a source tree in the current folder would shadow the installed package
        check=False,
    )
    sys.stderr.write(process.stderr)
    if process.returncode:
        raise SystemExit(1)
    result: dict[str, Any] = json.loads(process.stdout)
    return result


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Step]:
    console = Console(stderr=True, quiet=quiet)
    with Progress(
        *Progress.get_default_columns(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bars:

        def step(name: str, total: int) -> Callable[[int], None]:
            task = bars.add_task(name, total=total)
            return lambda done: bars.advance(task, done)

        yield step


def _print(report: dict[str, Any]) -> None:
    console = Console(highlight=False)
    where = "the mock device (no GPU)" if report["mock"] else report["device"]
    console.print(f"backend    {report['backend']} on {where}")
    console.print(
        f"range      {report['objects']:,} objects, {report['bytes']:,} bytes at {report['ptr']}"
    )
    console.print(f"handle     {report['handle'][:64]}\n           {report['handle'][64:]}")
    console.print(f"export     {report['export_us'] / 1e3:,.2f} ms")
    console.print(
        f"open       {report['open_us'] / 1e3:,.2f} ms in process {report['importer_pid']}"
        f" at {report['importer_ptr']}, by {report['transport']}"
    )
    console.print(
        f"checked    {report['checked']}, both directions;"
        f" {report['gpu_bytes']:,} bytes by GPU copy"
    )
    if report["verified"]:
        console.print("[bold green]verified[/]   the same memory in both processes")
        return
    for name in ("there", "gpu", "back"):
        offset = report[f"first_difference_{name}"]
        if offset is not None:
            console.print(f"[bold red]DIFFERS[/]    first at offset {offset:#x} ({name})")
