"""``ze-ipc doctor``: what works here, what does not, and what fixes it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from ze_ipc.cli import arguments as types
from ze_ipc.cli import demo, doctor_gpu, doctor_system
from ze_ipc.cli.doctor_check import Check
from ze_ipc.errors import ZeIpcError
from ze_ipc.open_device import open_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ze_ipc.device import Device

SELFTEST_OBJECTS = 8
COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "failure": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How strict to be, and whether to try."""
    parser.add_argument("--strict", action="store_true", help="exit 1 on warnings, too")
    parser.add_argument(
        "--selftest",
        action="store_true",
        help="share a small range between two processes on the device that would be chosen",
    )
    types.add_backend(parser)
    types.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 on a failure; with ``--strict`` on a warning, too."""
    checks = list(_checks(arguments))
    bad = {"failure", "warning"} if arguments.strict else {"failure"}
    healthy = not any(check.verdict in bad for check in checks)
    if arguments.json:
        print(json.dumps({"ok": healthy, "checks": [asdict(check) for check in checks]}))
    else:
        _print(checks)
    return 0 if healthy else 1


def _checks(arguments: argparse.Namespace) -> Iterator[Check]:
    libraries = doctor_gpu.libraries()
    yield from doctor_gpu.render_nodes()
    yield from doctor_gpu.level_zero(libraries)
    yield from doctor_gpu.ways(libraries)
    yield from doctor_system.checks()
    try:
        with open_device(arguments.backend) as device:
            yield _chosen(device)
            if arguments.selftest:
                yield _selftest(device)
    except ZeIpcError as error:
        yield Check("device", "failure", f"{type(error).__name__}: {error}", error.hint)


def _chosen(device: Device) -> Check:
    where = f"{device.name}, {device.render_node}, backend {device.backend}"
    if device.is_mock:
        return Check("device", "note", f"{where}: the mock, no GPU", "none needed without a GPU")
    return Check("device", "ok", where)


def _selftest(device: Device) -> Check:
    def quiet(_name: str, _total: int) -> Callable[[int], None]:
        return lambda _done: None

    size = max(device.page_size, 64 << 10)
    try:
        report = demo.share(device, SELFTEST_OBJECTS, size, quiet)
    except (ZeIpcError, SystemExit) as error:
        why = f"{type(error).__name__}: {error}" if isinstance(error, ZeIpcError) else "see above"
        return Check("self-test", "failure", f"two processes could not share a range: {why}")
    what = f"{SELFTEST_OBJECTS} objects, {report['bytes']:,} bytes, by {report['transport']}"
    if not report["verified"]:
        return Check("self-test", "failure", f"{what}: the bytes differ", "report this as a bug")
    return Check("self-test", "ok", f"{what}: every byte right in both directions and by GPU copy")


def _print(checks: list[Check]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for check in checks:
        colour = COLOURS[check.verdict]
        console.print(f"[{colour}]{check.verdict:8}[/] {check.name}: {escape(check.found)}")
        if check.fix and check.verdict != "ok":
            console.print(f"         [dim]fix: {escape(check.fix)}[/]")
