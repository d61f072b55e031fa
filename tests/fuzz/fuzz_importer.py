"""An importer and an exporter that lies: wrong manifests, descriptors of anything, too many or too
few. It is an error of ours, and nothing is held afterwards; or all that was asked for is there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import struct
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from unittest import mock

import ze_ipc
from fuzz.reader import Reader
from ze_ipc import manifest as manifests
from ze_ipc import transport
from ze_ipc.errors import ZeIpcError
from ze_ipc.handle import HandleFields
from ze_ipc.host import host_identity
from ze_ipc.socket_dir import socket_name

_PAGE = 4096
_REPLY = struct.Struct("<4sIQQ")
_BATCH = struct.Struct("<QII")
_SECONDS = 0.25


class _Sides:
    """A device that imports, and descriptors of every kind that an exporter may send."""

    def __init__(self) -> None:
        self.importer = ze_ipc.open_device("mock", 1)
        self.exporter = ze_ipc.open_device("mock", 0)
        backend = self.exporter._backend
        self.objects = (
            backend.create_object(_PAGE, "host"),
            backend.create_object(4 * _PAGE, "host"),
        )
        self.kinds = [self._dma_buf(array("Q", [obj])) for obj in self.objects]
        self.kinds += [
            os.memfd_create("liar"),
            os.memfd_create("sealable", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC),
            os.eventfd(0),
            os.open(os.devnull, os.O_RDONLY),
            os.open("/", os.O_RDONLY | os.O_DIRECTORY),
        ]
        for fd in self.kinds[2:4]:
            os.ftruncate(fd, _PAGE)
        self.directory = tempfile.TemporaryDirectory(prefix="zeipc-fuzz-")
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(f"{self.directory.name}/{socket_name(bytes(8))}")
        self.listening.listen(16)
        self.say: Callable[[socket.socket], None] = lambda sock: None
        self.thread = threading.Thread(target=self._answer, daemon=True)
        self.thread.start()
        self.before = self.held()

    def _answer(self) -> None:
        """Whoever connects is told what is to be said now."""
        while True:
            try:
                sock, _ = self.listening.accept()
            except OSError:
                return
            with sock:
                self.say(sock)

    def _dma_buf(self, objects: array[int]) -> int:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with left, right:
            assert self.exporter._backend.send_reply(left.fileno(), b"x", b"", objects)
            _, fds, _, _ = socket.recv_fds(right, 1, 1)
        return fds[0]

    def held(self) -> tuple[int, int, int]:
        """Descriptors, objects and mappings of the importer."""
        fds = sum(1 for _ in Path("/proc/self/fd").iterdir())
        live: int = self.importer._backend.live_objects  # type: ignore[attr-defined]
        return fds, live, len(self.importer._table)

    def close(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listening.close()
        self.directory.cleanup()
        for fd in self.kinds:
            os.close(fd)
        self.exporter._backend.release_objects(array("Q", self.objects))
        self.exporter.close()
        self.importer.close()


@lru_cache(maxsize=1)
def _sides() -> _Sides:
    made = _Sides()
    atexit.register(made.close)
    return made


def finish() -> None:
    """End what the inputs needed."""
    if _sides.cache_info().currsize:
        sides = _sides()
        _sides.cache_clear()
        atexit.unregister(sides.close)
        sides.close()


def _manifest(reader: Reader, sides: _Sides) -> tuple[bytes, int]:
    """A manifest of a few objects, honest or not, and how many objects it says."""
    count = 1 + reader.number() % 3
    sizes = [(_PAGE, 4 * _PAGE, 2 * _PAGE, 1 << 40)[reader.number() % 4] for _ in range(count)]
    how = reader.number()
    extents = count + how % 3
    made = manifests.Manifest(
        device_uuid=sides.exporter.uuid if how & 0x80 else bytes(16),
        page_size=_PAGE,
        window_offset=0,
        window_size=_PAGE * extents,
        va_phase=reader.number() * _PAGE % manifests.VA_PHASE_SIZE,
        object_sizes=array("Q", sizes),
        object_indices=array("I", [*range(count), *([0] * (extents - count))]),
        offsets=array("Q", [reader.number() % 4 * _PAGE if how & 0x40 else 0] * extents),
        sizes=array("Q", [_PAGE] * extents),
        access=array("B", [how >> 5 & 1] * extents),
    )
    raw = bytearray(manifests.encode(made))
    if how & 0x10:
        raw[reader.number(2) % len(raw)] ^= reader.number()
    return bytes(raw), count


def _say(reader: Reader, sock: socket.socket, sides: _Sides) -> None:
    """All that the exporter says, at once; then it has gone."""
    raw, count = _manifest(reader, sides)
    how = reader.number()
    reply = _REPLY.pack(b"ZR01", how % 12 if how & 0x40 else 0, len(raw), count) + raw
    if how & 0x80:
        changed = bytearray(reply)
        changed[reader.number(2) % len(changed)] ^= reader.number()
        reply = bytes(changed)
    _send(sock, reply, _fds(reader, count if how & 0x20 else 0, sides))
    first = 0
    for _ in range(reader.number() % 4):
        how = reader.number()
        fds = _fds(reader, how % 8, sides)
        batch = bytearray(_BATCH.pack(first, len(fds), 0 if fds else reader.number(2)))
        if how & 0x80:
            batch[reader.number() % len(batch)] ^= reader.number()
        _send(sock, bytes(batch), fds)
        first += len(fds)


def _fds(reader: Reader, count: int, sides: _Sides) -> list[int]:
    """Honest ones mostly, one kind after another else."""
    how = reader.number()
    if how < 0x80:
        return [sides.kinds[how % 2]] * count
    return [sides.kinds[reader.number() % len(sides.kinds)] for _ in range(count + how % 2)]


def _send(sock: socket.socket, message: bytes, fds: list[int]) -> None:
    with contextlib.suppress(OSError):
        socket.send_fds(sock, [message], fds, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def one_input(data: bytes) -> None:
    """One open by a device on the mock: by a socket's file, where few objects take the short way in
    C, or over a connection that is there, step by step.
    """
    sides = _sides()
    reader = Reader(data)
    by_steps = reader.number() % 2
    handle = HandleFields(host_identity(), os.getpid(), bytes(8), bytes(16), 1)
    lock = threading.Lock()

    def say(sock: socket.socket) -> None:
        with lock:
            if reader.left:
                _say(reader, sock, sides)

    sides.say = say

    def dial(handle: HandleFields, deadline: float) -> socket.socket:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            say(far)
        return near

    environment = {
        "ZE_IPC_DIR": sides.directory.name,
        "ZE_IPC_TRANSPORT": "pidfd" if by_steps else "broker",
    }
    with (
        mock.patch.dict(transport._DIALS, {"pidfd": dial}),
        mock.patch.dict(os.environ, environment),
    ):
        try:
            view = sides.importer.open_ipc_handle(handle.pack(), timeout=_SECONDS)
        except ZeIpcError:
            pass
        else:
            assert len(sides.importer.read(view.ptr, view.size)) == view.size
            view.close()
    sides.say = lambda sock: None
    # A connection may not have been taken yet.
    deadline = time.monotonic() + 20
    while (left := sides.held()) != sides.before:
        assert time.monotonic() < deadline, f"{left} held, {sides.before} before"
        time.sleep(0.0005)
