"""Processes that start in milliseconds: a process that has imported all forks them on demand."""

from __future__ import annotations

import array
import contextlib
import importlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from helpers.imports import import_everything

TESTS = Path(__file__).resolve().parents[1]
DEADLINE = 60.0
"""Seconds for one call."""
_LENGTH = struct.Struct("<Q")


class Nest:
    """The process that forks; as a context, so that nothing of it survives."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "stress.nest", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": str(TESTS)},
            )

    def hatch(self) -> Chick:
        """A new process."""
        ours, theirs = socket.socketpair()
        with theirs:
            rights = array.array("i", [theirs.fileno()])
            self._control.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        ours.settimeout(DEADLINE)
        return Chick(ours)

    def __enter__(self) -> Nest:
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        self._process.wait(DEADLINE)


class Chick:
    """One process: it runs module-level functions of stress.actions with a state of its own."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self.pid: int = self._receive()

    def start(self, name: str, *arguments: Any) -> None:
        """Begin a call; result() waits for it."""
        data = pickle.dumps((name, arguments))
        self._link.sendall(_LENGTH.pack(len(data)) + data)

    def result(self) -> Any:
        """What the call returned; raises what it raised."""
        good, value, text = self._receive()
        if good:
            return value
        value.__notes__ = [*getattr(value, "__notes__", []), text]
        raise value

    def call(self, name: str, *arguments: Any) -> Any:
        """Run a function there."""
        self.start(name, *arguments)
        return self.result()

    def kill(self) -> None:
        """kill -9, and wait until nothing of it runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ConnectionError):
            while self._link.recv(1 << 16):
                pass
        self._link.close()

    def end(self) -> None:
        """Let it close everything; AssertionError if something is left in it."""
        left = self.call("end")
        self._link.close()
        assert left == [], left

    def _receive(self) -> Any:
        return pickle.loads(self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0]))

    def _exactly(self, size: int) -> bytes:
        return _exactly(self._link, size)

    def __enter__(self) -> Chick:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.end()
        else:
            self.kill()


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise EOFError("the other process ended")
        data += part
    return data


def _live(link: socket.socket, actions: dict[str, Callable[..., Any]]) -> None:
    state: dict[str, Any] = {}

    def send(value: Any) -> None:
        data = pickle.dumps(value)
        link.sendall(_LENGTH.pack(len(data)) + data)

    send(os.getpid())
    while True:
        try:
            length = _LENGTH.unpack(_exactly(link, _LENGTH.size))[0]
        except EOFError:
            return
        name, arguments = pickle.loads(_exactly(link, length))
        try:
            answer = True, actions[name](state, *arguments), ""
        except BaseException as error:
            answer = False, error, traceback.format_exc()
        send(answer)
        if name == "end":
            return


def main() -> None:
    """Fork for each fd that comes, until nobody is there any more."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    import_everything()
    actions = {
        name: value
        for name, value in vars(importlib.import_module("stress.actions")).items()
        if callable(value)
    }
    while True:
        data, ancillary, _, _ = control.recvmsg(1, 64)
        if not data:
            return
        number = array.array("i", ancillary[0][2][:4])[0]
        if os.fork() == 0:
            try:
                control.close()
                _live(socket.socket(fileno=number), actions)
            finally:
                os._exit(0)
        os.close(number)


if __name__ == "__main__":
    main()
