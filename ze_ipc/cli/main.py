"""Parsing the command line, and what every verb has in common: exit codes, logging, errors."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from ze_ipc.errors import ZeIpcError

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, FAILED, USAGE = 0, 1, 2
"""Exit codes of every verb."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One row of the command line."""

    name: str
    module: str
    summary: str


class VerbModule(Protocol):
    """What the module of a verb offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int: ...


VERBS = (
    Verb("demo", "demo", "two processes share a range of many objects and prove it byte for byte"),
    Verb("devices", "devices", "list the GPUs that can be opened here"),
    Verb("doctor", "doctor", "say what works here, what does not, and what fixes it"),
    Verb("inspect", "inspect", "say what a handle is and whether its exporter is alive"),
    Verb("ls", "ls", "list who exports ranges on this host and who has opened them"),
    Verb("map", "map", "draw a handle's range or a process's mappings, in the terminal or as SVG"),
    Verb("trace", "trace", "run a command and record what it does, for a bug report"),
    Verb("replay", "replay", "run a record again on the mock and name the first difference"),
    Verb("bench", "bench", "measure what sharing costs, beside plain C"),
    Verb("mock", "mock", "run a program with the mock as its GPU"),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ze-ipc",
        description="Share GPU virtual-address ranges of many physical objects between processes.",
        epilog="Exit codes: 0 done, 1 the job failed, 2 usage.",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb in VERBS:
        module = cast("VerbModule", importlib.import_module(f"ze_ipc.cli.{verb.module}"))
        sub = verbs.add_parser(verb.name, help=verb.summary, description=verb.summary)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def _configure_logging() -> None:
    name = os.environ.get("ZE_IPC_LOG", "WARNING").upper()
    level = getattr(logging, name, None)
    if not isinstance(level, int):
        raise SystemExit(
            f"ze-ipc: ZE_IPC_LOG={name!r} is no logging level; use DEBUG, INFO, WARNING or ERROR"
        )
    logging.basicConfig(level=level, format="ze-ipc: %(levelname)s: %(message)s", stream=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    _configure_logging()
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except ZeIpcError as error:
        print(f"ze-ipc: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
