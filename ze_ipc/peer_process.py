"""A second process to talk to: module-level functions run in it, each with a deadline."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_spawn = multiprocessing.get_context("spawn")

State = dict[str, Any]
"""What lives in the other process between calls."""


class RemoteTraceback(Exception):
    """The traceback of the other process, as the cause of what it raised."""


def _serve(pipe: Connection) -> None:
    state: State = {}
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, function(state, *arguments), "")
        except BaseException as error:
            answer = (False, error, traceback.format_exc())
        pipe.send(answer)


class Peer:
    """A spawned process that runs ``function(state, *arguments)`` on demand."""

    def __init__(self) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Begin a call; result() waits for it."""
        self._pipe.send((function, arguments))

    def result(self, timeout: float = 30.0) -> Any:
        """What the call returned; raises what it raised."""
        if not self._pipe.poll(timeout):
            self.kill()
            raise TimeoutError(f"the other process did not answer within {timeout} s")
        good, value, text = self._pipe.recv()
        if good:
            return value
        raise value from RemoteTraceback(text)

    def call(self, function: Callable[..., Any], *arguments: Any, timeout: float = 30.0) -> Any:
        """Run one function there and wait for its result."""
        self.start(function, *arguments)
        return self.result(timeout)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.join(10)

    def close(self) -> None:
        """End it: politely, then not."""
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self.kill()
        self._process.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
