"""Exports without a device and an importer without one: memfds go over the broker's connections."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ze_ipc.broker_messages import receive_bytes
from ze_ipc.fds import Fd, receive_fds, send_fds
from ze_ipc.handle import HandleFields
from ze_ipc.importer import Importer, ImporterEvent
from ze_ipc.transport import Connection, TransportName, connect
from ze_ipc.xe import byte_stream

_COUNT = struct.Struct("<Q")


class FakeExport:
    """What a broker is given; remembers what the broker did with it."""

    def __init__(self, objects: int = 2, manifest: bytes = b"manifest") -> None:
        self.object_count = objects
        self.manifest_bytes = manifest
        self.size = 4096 * objects
        self.ptr = 0x10000
        self.events: list[str] = []
        self.importers: list[Importer] = []
        self.changed = threading.Condition()
        self.at_once = False
        self.before_object: Callable[[int], None] = lambda index: None

    def send_reply(self, socket_fd: int, head: bytes, body: bytes | memoryview) -> bool:
        """One memfd an object with the answer, where ``at_once`` says so."""
        if not self.at_once:
            return False
        with socket.socket(fileno=os.dup(socket_fd)) as sock, ExitStack() as memories:
            fds = []
            for index in range(self.object_count):
                fds.append(memories.enter_context(Fd(os.memfd_create("fake"))))
                os.pwrite(fds[-1].fileno(), b"object %d" % index, 0)
            send_fds(sock, head + bytes(body), fds)
        return True

    def send_bytes(self, socket_fd: int, data: memoryview, message: int, deadline: float) -> int:
        """As a backend does it."""
        return byte_stream.send_bytes(socket_fd, data, message, deadline)

    def send_objects(self, socket_fd: int, deadline: float, first: int = 0) -> None:
        """One memfd a message, each acknowledged by the count received so far."""
        with socket.socket(fileno=os.dup(socket_fd)) as sock:
            for index in range(first, self.object_count):
                self.before_object(index)
                with Fd(os.memfd_create("fake")) as memory:
                    os.pwrite(memory.fileno(), b"object %d" % index, 0)
                    send_fds(sock, _COUNT.pack(index), [memory])
                _wait(sock, deadline)
                message = sock.recv(_COUNT.size)
                if message != _COUNT.pack(index + 1):
                    raise ConnectionResetError(errno.ECONNRESET, "no acknowledgement")

    def on_importer(self, event: ImporterEvent) -> None:
        self._note(event.kind, event.importer)

    def retired(self) -> None:
        self._note("retired", None)

    def _note(self, event: str, importer: Importer | None) -> None:
        with self.changed:
            self.events.append(event)
            if importer is not None:
                self.importers.append(importer)
            self.changed.notify_all()

    def wait_for(self, event: str, count: int = 1, timeout: float = 5.0) -> None:
        """Return when the event has happened so often."""
        with self.changed:
            arrived = self.changed.wait_for(lambda: self.events.count(event) >= count, timeout)
        assert arrived, f"no {event} in {self.events}"


def receive_objects(connection: Connection, count: int) -> list[bytes]:
    """The contents of the memfds that FakeExport sends."""
    contents = []
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        for index in range(count):
            _wait(sock, connection.deadline)
            message, fds = receive_fds(sock, _COUNT.size, 1)
            if not message:
                raise ConnectionError("the exporter ended in the middle of the objects")
            assert message == _COUNT.pack(index)
            with fds[0]:
                contents.append(os.pread(fds[0].fileno(), 100, 0))
            sock.send(_COUNT.pack(index + 1), socket.MSG_NOSIGNAL)
    return contents


def open_range(
    handle: HandleFields,
    timeout: float = 5.0,
    *,
    transport: TransportName | None = None,
    skip_objects: bool = False,
) -> tuple[bytes, list[bytes]]:
    """A whole open: the manifest and the contents of the objects."""
    with connect(handle, time.monotonic() + timeout, transport=transport) as connection:
        reply = connection.request(skip_objects=skip_objects)
        manifest = connection.manifest(byte_stream.receive_bytes if skip_objects else receive_bytes)
        contents = receive_objects(connection, 0 if skip_objects else reply.object_count)
        connection.finish()
    return manifest, contents


def expected(export: FakeExport) -> tuple[bytes, list[bytes]]:
    """What open_range() of this export returns."""
    return export.manifest_bytes, [b"object %d" % index for index in range(export.object_count)]


def fd_count() -> int:
    """Open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _wait(sock: socket.socket, deadline: float) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError
