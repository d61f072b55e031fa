"""The host's end of the line to the guest's agent (guest/agent.c has the frames)."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PUT, RUN, WAIT, OFF, READY, OUTPUT, STATUS = 1, 2, 3, 4, 8, 9, 10
_HEAD = struct.Struct("<II")


class Result(NamedTuple):
    """What a program in the guest printed (both streams) and its exit status (-N: signal N)."""

    output: bytes
    status: int


class GuestError(Exception):
    """The guest did not answer, or refused what it must be able to do.

    `output` is what a program had printed until then.
    """

    def __init__(self, message: str, output: bytes = b"") -> None:
        super().__init__(message)
        self.output = output


class Agent:
    """One connection to one agent. Not for several threads."""

    def __init__(self, path: Path, deadline: float) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            try:
                self._sock.connect(str(path))
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise GuestError(f"no agent socket: {error}") from error
                time.sleep(0.05)

    def close(self) -> None:
        self._sock.close()

    def wait_ready(self, seconds: float) -> None:
        kind, _ = self._receive(time.monotonic() + seconds)
        if kind != READY:
            raise GuestError(f"frame {kind} instead of READY")

    def put(self, path: str, data: bytes, mode: int = 0o755) -> None:
        self._send(PUT, struct.pack("<I", mode) + path.encode() + b"\0" + data)
        status = self._status(time.monotonic() + 120)
        if status:
            raise GuestError(f"put {path}: {os.strerror(status)}")

    def put_tree(self, source: Path, target: str) -> None:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                mode = path.stat().st_mode & 0o777
                self.put(f"{target}/{path.relative_to(source)}", path.read_bytes(), mode)

    def run(self, argv: Sequence[str], stdin: bytes = b"", seconds: int = 60) -> Result:
        """Runs a program to its end or for `seconds`; then it is killed and its status is 124."""
        head = struct.pack("<II", seconds, len(argv))
        self._send(RUN, head + b"".join(arg.encode() + b"\0" for arg in argv) + stdin)
        deadline = time.monotonic() + seconds + 20
        output = bytearray()
        while True:
            try:
                kind, payload = self._receive(deadline)
            except GuestError as error:
                raise GuestError(str(error), bytes(output)) from error
            if kind == OUTPUT:
                output += payload
            elif kind == STATUS:
                status = struct.unpack("<I", payload)[0]
                return Result(bytes(output), os.waitstatus_to_exitcode(status))
            else:
                raise GuestError(f"frame {kind} in an answer to RUN")

    def wait_for(self, path: str, seconds: int) -> bool:
        self._send(WAIT, struct.pack("<I", seconds) + path.encode() + b"\0")
        return self._status(time.monotonic() + seconds + 60) == 0

    def power_off(self) -> None:
        self._send(OFF, b"")

    def _status(self, deadline: float) -> int:
        kind, payload = self._receive(deadline)
        if kind != STATUS:
            raise GuestError(f"frame {kind} instead of STATUS")
        value: int = struct.unpack("<I", payload)[0]
        return value

    def _send(self, kind: int, payload: bytes) -> None:
        self._sock.settimeout(120)
        try:
            self._sock.sendall(_HEAD.pack(kind, len(payload)) + payload)
        except OSError as error:
            raise GuestError(f"the guest takes nothing: {error}") from error

    def _receive(self, deadline: float) -> tuple[int, bytes]:
        kind, size = _HEAD.unpack(self._exactly(_HEAD.size, deadline))
        return kind, self._exactly(size, deadline)

    def _exactly(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise GuestError("the guest did not answer in time")
            self._sock.settimeout(left)
            try:
                part = self._sock.recv(size - len(data))
            except OSError as error:
                raise GuestError(f"the guest did not answer in time: {error}") from error
            if not part:
                raise GuestError("the guest is gone")
            data += part
        return bytes(data)
