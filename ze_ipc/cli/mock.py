"""``ze-ipc mock``: run any program with the mock device as its GPU."""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
from pathlib import Path

from ze_ipc import mock_run
from ze_ipc.cli import arguments as types
from ze_ipc.mock_tree import MAX_DEVICES, PLATFORMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two things one can do with it."""
    what = parser.add_subparsers(metavar="run | env", required=True)
    run_parser = what.add_parser(
        "run",
        help="run a command with the mock as its GPU",
        description="Run a command with the mock as its GPU; its exit status is this program's.",
        usage="%(prog)s [--devices N] [--profile P] [--vram SIZE] [--root DIR] -- COMMAND",
    )
    _add_device_arguments(run_parser)
    run_parser.add_argument(
        "--root", metavar="DIR", help="run it inside this root directory (chroot; needs root)"
    )
    run_parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    run_parser.set_defaults(do=_run)
    env_parser = what.add_parser(
        "env",
        help="make a device tree and print the variables that use it",
        description="Make a device tree that stays, and print the variables that give a program"
        ' the mock as its GPU: eval "$(ze-ipc mock env)". Remove the directory to undo it.',
    )
    _add_device_arguments(env_parser)
    env_parser.add_argument(
        "--directory", metavar="DIR", type=Path, help="an empty or new directory for the tree"
    )
    types.add_json(env_parser)
    env_parser.set_defaults(do=_env)


def _add_device_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--devices", type=types.count, default=1, help=f"1 to {MAX_DEVICES} (default 1)"
    )
    parser.add_argument("--profile", choices=tuple(PLATFORMS), default="bmg", help="default bmg")
    parser.add_argument("--vram", type=types.size, metavar="SIZE", help="device memory of each")


def run(arguments: argparse.Namespace) -> int:
    """Exit code of the command, or 0 of ``env``."""
    return int(arguments.do(arguments))


def _run(arguments: argparse.Namespace) -> int:
    command = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    return mock_run.run(
        command, arguments.devices, arguments.profile, arguments.vram, arguments.root
    )


def _env(arguments: argparse.Namespace) -> int:
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="ze-ipc-mock-"))
    directory.mkdir(parents=True, exist_ok=True)
    variables = mock_run.prepare(
        directory, arguments.devices, arguments.profile, arguments.vram, None
    )
    if arguments.json:
        print(json.dumps({"directory": str(directory), "environment": variables}))
        return 0
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0
