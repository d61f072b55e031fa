"""Runs the blocks of one page in an empty directory, one after another."""

from __future__ import annotations

import configparser
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from helpers.doc_blocks import EXECUTED, Block, missing_lines
from ze_ipc.peer_process import Peer

SECONDS = 200.0
"""For one block."""


class BlockFailed(AssertionError):
    """A block did something else than the page says."""


def execute(state: dict[str, Any], code: str, name: str, directory: str) -> str:
    """In the page's Python: run a block, and what it printed."""
    os.chdir(directory)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    printed = io.StringIO()
    state.setdefault("__name__", "__main__")
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), state)
    return printed.getvalue()


class PageRunner:
    """One page: its directory, its Python, its last output."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._python: Peer | None = None
        self._printed = ""

    def run(self, block: Block) -> None:
        """BlockFailed when it does not do what the page says."""
        if block.output:
            if missing := missing_lines(block.code, self._printed):
                raise BlockFailed(f"{block}: not printed: {missing}\nprinted:\n{self._printed}")
        elif block.file:
            path = self._directory / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
        elif block.language == "sh":
            self._printed = self._shell(block)
        elif block.language == "python":
            self._printed = self._in_python(block)
        else:
            _parse(block)

    def _in_python(self, block: Block) -> str:
        if self._python is None:
            self._python = Peer()
        # The line numbers of a traceback are those of the page.
        code = "\n" * (block.line - 1) + block.code
        try:
            printed = self._python.call(
                execute, code, str(block), str(self._directory), timeout=SECONDS
            )
        except Exception as error:
            if block.fails:
                return f"{type(error).__name__}: {error}"
            raise BlockFailed(f"{block}: {type(error).__name__}: {error}") from error
        if block.fails:
            raise BlockFailed(f"{block}: did not fail")
        return str(printed)

    def _shell(self, block: Block) -> str:
        command = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", block.code],
            cwd=self._directory,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = command.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(command.pid, signal.SIGKILL)
            printed, _ = command.communicate()
            raise BlockFailed(f"{block}: not done in {SECONDS} s:\n{printed}") from None
        if (command.returncode == 0) is block.fails:
            raise BlockFailed(f"{block}: exit code {command.returncode}:\n{printed}")
        return printed

    def close(self) -> None:
        if self._python is not None:
            self._python.close()


def _environment() -> dict[str, str]:
    scripts = sysconfig.get_path("scripts")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return kept | {
        "ZE_IPC_BACKEND": "mock",
        "PATH": f"{scripts}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "100",
    }


def _parse(block: Block) -> None:
    assert block.language not in EXECUTED
    if block.language == "json":
        json.loads(block.code)
    elif block.language == "ini":
        configparser.ConfigParser().read_string(block.code)
    elif sys.version_info >= (3, 11):
        import tomllib

        tomllib.loads(block.code)
