"""Objects that come with the answer: nothing may be lost, believed, waited for or left behind."""

from __future__ import annotations

import os
import socket
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helpers.broker_fakes import FakeExport, expected, fd_count, open_range, receive_objects
from helpers.waiting import eventually
from ze_ipc import transport
from ze_ipc.broker import Broker
from ze_ipc.broker_limits import Limits
from ze_ipc.broker_messages import receive_with_fds
from ze_ipc.broker_protocol import encode_manifest
from ze_ipc.errors import HandleRevoked, InvalidHandle
from ze_ipc.fds import Fd, send_fds
from ze_ipc.handle import HandleFields
from ze_ipc.host import host_identity
from ze_ipc.socket_dir import exporter_dir, socket_name
from ze_ipc.transport import Connection, connect


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(limits=Limits(last_word_seconds=0.3)) as broker:
        yield broker


def serve(broker: Broker, export: FakeExport) -> HandleFields:
    export.at_once = True
    return HandleFields.unpack(broker.handle_fields(*broker.register(export)).pack())


def contents_of(connection: Connection) -> list[bytes]:
    contents = []
    for number in connection.take_fds():
        with Fd(number) as fd:
            contents.append(os.pread(number, 100, 0))
            assert not os.get_inheritable(fd.fileno())
    return contents


def open_at_once(handle: HandleFields, room: int) -> tuple[bytes, list[bytes], bool]:
    """The manifest, the contents of the objects, and whether these came with the answer."""
    with connect(handle, time.monotonic() + 5) as connection:
        reply = connection.request(room=room)
        manifest, contents = connection.manifest(), contents_of(connection)
        at_once = bool(contents)
        if not at_once:
            contents = receive_objects(connection, reply.object_count)
        connection.finish()
    return manifest, contents, at_once


@pytest.mark.parametrize("size", [0, 8, 32768, 32769, 300_000])
@pytest.mark.parametrize("objects", [1, 2, 17, 63, 64])
def test_all_of_it(broker: Broker, objects: int, size: int) -> None:
    export = FakeExport(objects, b"m" * size)
    handle = serve(broker, export)
    before = fd_count()
    for _ in range(3):
        assert open_at_once(handle, 64) == (*expected(export), True)
    export.wait_for("opened", 3)
    assert [entry.opens for entry in broker.importers(handle.generation)] == [3]
    broker.revoke(handle.generation)
    export.wait_for("retired")
    assert eventually(lambda: fd_count() <= before)


@pytest.mark.parametrize(("objects", "room"), [(3, 2), (1, 0), (20, 19)])
def test_more_than_there_is_room_for(broker: Broker, objects: int, room: int) -> None:
    export = FakeExport(objects)
    assert open_at_once(serve(broker, export), room) == (*expected(export), False)
    export.wait_for("opened")


def test_no_objects_for_those_that_have_them(broker: Broker) -> None:
    export = FakeExport(2)
    assert open_range(serve(broker, export), skip_objects=True) == (export.manifest_bytes, [])


def test_a_peer_that_takes_all_and_says_nothing(broker: Broker) -> None:
    """It is dropped after a while; it has not opened, and the export is given back."""
    export = FakeExport(2)
    handle = serve(broker, export)
    with connect(handle, time.monotonic() + 5) as connection:
        connection.request(room=2)
        broker.revoke(handle.generation)
        assert export.events == []
        export.wait_for("retired")
    assert export.events == ["retired"]
    assert not broker._heard
    assert not broker._running()


@pytest.mark.parametrize(
    "word", [b"", b"ZD01\1" + bytes(11), b"ZD01", b"ZD02" + bytes(12), bytes(9000)]
)
def test_a_last_word_that_is_none(broker: Broker, word: bytes) -> None:
    export = FakeExport(1)
    handle = serve(broker, export)
    with connect(handle, time.monotonic() + 5) as connection:
        connection.request(room=2)
        if word:
            os.write(connection.fileno(), word)
    assert eventually(lambda: not broker._running(), 0.25)
    assert export.events == []


def test_an_export_that_fails_in_the_end(broker: Broker) -> None:
    """It costs neither the thread nor the deadline of others."""

    class Broken(FakeExport):
        @property
        def size(self) -> int:
            if self.at_once:
                raise RuntimeError("an export that fails")
            return 0

        @size.setter
        def size(self, value: int) -> None:
            """Taken, and not given back."""

    broken = Broken(1)
    handle = serve(broker, broken)
    assert open_at_once(handle, 1)[2]
    assert eventually(lambda: not broker._running())
    time.sleep(0.4)  # past the deadline of a last word
    assert not broker._heard
    good = FakeExport(1)
    assert open_at_once(serve(broker, good), 1)[2]
    good.wait_for("opened")


def test_the_broker_ends_before_the_last_word() -> None:
    export = FakeExport(1)
    with Broker() as broker:
        handle = serve(broker, export)
        connection = connect(handle, time.monotonic() + 5)
        connection.request(room=1)
        contents = contents_of(connection)
    assert export.events == ["retired"]
    assert contents == [b"object 0"]
    connection.finish()


def test_revoked_with_interrupt(broker: Broker) -> None:
    export = FakeExport(1)
    handle = serve(broker, export)
    with connect(handle, time.monotonic() + 5) as connection:
        connection.request(room=1)
        broker.revoke(handle.generation, interrupt=True)
        export.wait_for("retired", timeout=0.25)
        assert os.read(connection.fileno(), 1) == b""
    with pytest.raises(HandleRevoked):
        open_at_once(handle, 1)


def test_many_that_say_nothing_cost_nobody_else() -> None:
    """Beyond a bounded number, the peers that were answered wait for a thread like all others."""
    export = FakeExport(1)
    with Broker(limits=Limits(heard=3, threads=2, threads_a_peer=2)) as broker:
        handle = serve(broker, export)
        silent = [connect(handle, time.monotonic() + 5) for _ in range(4)]
        for connection in silent:
            connection.request(room=1)
        assert len(broker._heard) == 3
        assert open_at_once(handle, 1)[2]
        for connection in silent:
            connection.finish()
        export.wait_for("opened", 5)


@contextmanager
def answering(promised: int, sent: int) -> Iterator[HandleFields]:
    """A broker that answers once, with another number of descriptors than of objects."""
    broker_id = os.urandom(8)
    with exporter_dir() as directory:
        listening = directory.listen(broker_id, mode=0o600, backlog=8)

        def answer() -> None:
            sock, _ = listening.accept()
            with sock, Fd(os.memfd_create("lie")) as fd:
                sock.recv(100)
                send_fds(sock, b"".join(next(encode_manifest(b"x", promised))), [fd] * sent)
                sock.recv(100)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield HandleFields(host_identity(), os.getpid(), broker_id, bytes(16), 1)
        finally:
            thread.join(5)
            listening.close()
            directory.unlink(socket_name(broker_id))
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("promised", "sent", "room"), [(2, 1, 8), (1, 2, 8), (0, 1, 8), (4, 4, 3), (9, 8, 8)]
)
def test_another_number_than_promised(promised: int, sent: int, room: int) -> None:
    before = fd_count()
    with (
        answering(promised, sent) as handle,
        connect(handle, time.monotonic() + 5) as connection,
        pytest.raises(InvalidHandle),
    ):
        connection.request(room=room)
    assert fd_count() == before


def test_room_that_others_took_meanwhile(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel drops what does not fit; the importer asks again and takes the stream."""
    export = FakeExport(9)
    handle = serve(broker, export)
    before = fd_count()
    receive = transport.receive_with_fds
    losses = []

    def lose(*arguments: Any) -> tuple[bytes, array[int], bool]:
        message, fds, lost = receive(*arguments)
        assert not lost
        os.close(fds.pop())
        losses.append(len(fds))
        return message, fds, True

    monkeypatch.setattr(transport, "receive_with_fds", lose)
    assert open_at_once(handle, 64) == (*expected(export), False)
    assert losses == [8]
    assert eventually(lambda: fd_count() <= before + 1)


def test_what_does_not_fit_is_reported_lost() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, Fd(os.memfd_create("x")) as fd:
        send_fds(theirs, b"x", [fd] * 9)
        message, fds, lost = receive_with_fds(ours, 10, 3, time.monotonic() + 5)
        for number in fds:
            os.close(number)
    assert (message, lost) == (b"x", True)
    assert 3 <= len(fds) <= 4
