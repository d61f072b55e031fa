"""A broker and a peer that says and sends what the input says: it is answered or dropped, costs no
descriptor in the end, and the next honest peer is served.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import struct
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from fuzz.reader import Reader
from helpers.broker_fakes import FakeExport, expected, open_range
from ze_ipc.broker import Broker
from ze_ipc.broker_limits import Limits
from ze_ipc.broker_protocol import RELEASE, Flag, encode_done, encode_request
from ze_ipc.handle import HandleFields
from ze_ipc.socket_dir import socket_name

_SECONDS = 20.0
_MAGICS = (b"ZQ01", b"ZD01", RELEASE, b"ZL01", b"ZB01", b"")


class _Exporter:
    """One broker for all inputs; an export that is answered at once and one that is streamed."""

    def __init__(self) -> None:
        directory = tempfile.TemporaryDirectory(prefix="zeipc-fuzz-")
        # So a peer that goes on is never waited for.
        limits = Limits(handshake_seconds=0.2, last_word_seconds=0.2)
        self.broker = Broker(directory=Path(directory.name), limits=limits)
        os.environ["ZE_IPC_DIR"] = directory.name
        self.exports = FakeExport(3), FakeExport(2, b"m" * 40_000)
        self.exports[0].at_once = True
        self.handles = [
            self.broker.handle_fields(*self.broker.register(export)) for export in self.exports
        ]
        self.path = str(Path(directory.name, socket_name(self.broker.address.broker)))
        self.inputs = 0
        self.close = lambda: (self.broker.close(), directory.cleanup())
        self.fds = self._settled()

    def _settled(self) -> int:
        """Descriptors when nobody is served any more."""
        deadline = time.monotonic() + _SECONDS
        while self.broker._running() or self.broker._listener._pending:
            assert time.monotonic() < deadline, "somebody is served for ever"
            time.sleep(0.0005)
        self.broker._importers.watch_nobody()
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    def check(self) -> None:
        """An honest peer is served, and nothing is left of the others."""
        for handle, export in zip(self.handles[1:], self.exports[1:], strict=True):
            assert open_range(handle, _SECONDS) == expected(export)
        deadline = time.monotonic() + _SECONDS
        while (fds := self._settled()) > self.fds:
            assert time.monotonic() < deadline, f"{fds} descriptors where {self.fds} were"


@lru_cache(maxsize=1)
def _exporter() -> _Exporter:
    made = _Exporter()
    atexit.register(made.close)
    return made


def close() -> None:
    """End what the inputs needed; a later input begins anew."""
    if _exporter.cache_info().currsize:
        exporter = _exporter()
        _exporter.cache_clear()
        atexit.unregister(exporter.close)
        exporter.close()


def _message(reader: Reader, handles: list[HandleFields]) -> bytes:
    """A good request, perhaps with a byte changed, or other words."""
    what = reader.number()
    if what < 0x80:
        flags = Flag(what % 4 if what % 4 < 3 else 0)
        room = 0 if flags else reader.number() % 254
        message = bytearray(encode_request(flags, handles[what // 4 % 2].pack(), room))
        if what & 0x40:
            at = reader.number() % len(message)
            message[at] ^= reader.number()
        return bytes(message)
    if what < 0xA0:
        return encode_done(what % 2, reader.number(8))
    return _MAGICS[what % len(_MAGICS)] + reader.raw(reader.number(2) % 70_000)


def one_input(data: bytes) -> None:
    """Messages with descriptors, one after another, with or without waiting for an answer."""
    exporter = _exporter()
    reader = Reader(data)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock,
        Path(os.devnull).open() as null,
    ):
        sock.settimeout(_SECONDS)
        sock.connect(exporter.path)
        for _ in range(6):
            if not reader.left:
                break
            how = reader.number()
            rights = struct.pack("i", null.fileno()) * (how % 8 if how & 0x40 else 0)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
            try:
                sock.sendmsg([_message(reader, exporter.handles)], ancillary, socket.MSG_NOSIGNAL)
                if how & 0x80:
                    _hear(sock)
            except OSError:
                break
    exporter.inputs += 1
    if exporter.inputs % 64 == 0:
        exporter.check()


def _hear(sock: socket.socket) -> None:
    """Whatever is answered soon; its descriptors are closed."""
    sock.settimeout(0.01)
    with contextlib.suppress(TimeoutError):
        _, fds, _, _ = socket.recv_fds(sock, 1 << 17, 253)
        for fd in fds:
            os.close(fd)
    sock.settimeout(_SECONDS)


def finish() -> None:
    """After the last input."""
    if _exporter.cache_info().currsize:
        _exporter().check()
    close()
