"""``ze-ipc trace``: run a command and record its calls and ioctls."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

FAILED, USAGE = 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command and where the record goes."""
    parser.description = (
        "Run a command and record what it and its children do with ze_ipc: calls, results, ioctls,"
        " as JSON lines. The record has no memory contents, no secrets and no addresses;"
        " ze-ipc replay runs it again on the mock."
    )
    parser.usage = "%(prog)s [--output FILE] -- COMMAND"
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("ze-ipc-trace.jsonl"),
        help="the record (default: ze-ipc-trace.jsonl), made anew",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")


def run(arguments: argparse.Namespace) -> int:
    """Exit code of the command; 2 without one."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        print("usage: ze-ipc trace [--output FILE] -- COMMAND", file=sys.stderr)
        return USAGE
    output = arguments.output.resolve()
    try:
        output.write_text("")
        done = subprocess.run(command, env=os.environ | {"ZE_IPC_TRACE": str(output)}, check=False)
    except OSError as error:
        print(f"ze-ipc: {error}", file=sys.stderr)
        return FAILED
    lines = sum(1 for _ in output.open())
    print(f"ze-ipc: {lines:,} lines in {arguments.output}", file=sys.stderr)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode
