"""``ze-ipc replay``: run a record of ``ze-ipc trace`` on the mock."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ze_ipc import replay as replays
from ze_ipc.cli import arguments as types


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The record and how to print what came of it."""
    parser.description = (
        "Run a record again on the mock, all its processes in one. Ioctls that failed in the record"
        " fail with the same errno. Prints the first call that ends in another way."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="made by ze-ipc trace")
    types.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 if every call did as recorded."""
    outcome = replays.replay(arguments.file)
    if arguments.json:
        print(json.dumps({"same": outcome.same, **asdict(outcome)}))
    elif outcome.same:
        print(f"the same: {outcome.calls:,} calls, {outcome.ioctls:,} ioctls recorded")
    else:
        print(f"another way in line {outcome.line}: {outcome.call}")
        print(f"  recorded: {json.dumps(outcome.recorded)}")
        print(f"  here:     {json.dumps(outcome.seen)}")
    return 0 if outcome.same else 1
