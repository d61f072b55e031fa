"""Honest peers are served within a second, whatever the others do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from helpers import broker_child
from helpers.broker_fakes import FakeExport, expected, fd_count, open_range
from helpers.waiting import eventually
from ze_ipc import broker_protocol as protocol
from ze_ipc import broker_service
from ze_ipc.broker import Broker
from ze_ipc.broker_limits import Limits
from ze_ipc.broker_protocol import Flag
from ze_ipc.errors import FdLimit
from ze_ipc.handle import HandleFields
from ze_ipc.socket_dir import SocketDir, candidate_dirs, socket_name
from ze_ipc.transport import connect

HONEST_SECONDS = 1.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def serve(broker: Broker, export: FakeExport) -> HandleFields:
    return broker.handle_fields(*broker.register(export))


class Crowd:
    """Strangers from this process: keeps ``size`` connections open and says only ``words``."""

    def __init__(self, broker: Broker, size: int, *words: bytes) -> None:
        self._stack = contextlib.ExitStack()
        self._directory = self._stack.enter_context(
            SocketDir(broker.address.directory, create=False)
        )
        self._name = socket_name(broker.address.broker)
        self._words = words
        self.sockets = [self.connect() for _ in range(size)]

    def connect(self) -> socket.socket:
        sock = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        sock.connect(self._directory.address(self._name))
        for word in self._words:
            sock.send(word)
        return sock

    def reconnect(self) -> int:
        """Come back with every connection that the broker ended; how many those were."""
        count = 0
        for index, sock in enumerate(self.sockets):
            try:
                ended = not sock.recv(1 << 17, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                sock.close()
                self.sockets[index] = self.connect()
                count += 1
        return count

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextlib.contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Repeat ``work`` on a thread."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.wait(0.002):
                work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


def slowest_open(handle: HandleFields, export: FakeExport, count: int = 30) -> float:
    worst = 0.0
    for _ in range(count):
        begun = time.monotonic()
        assert open_range(handle) == expected(export)
        worst = max(worst, time.monotonic() - begun)
    return worst


def test_half_open_connections(broker: Broker) -> None:
    export = FakeExport(5)
    handle = serve(broker, export)
    with Crowd(broker, 500) as crowd:
        assert eventually(lambda: len(broker._listener._pending) == Limits().pending)
        returned = 0

        def come_back() -> None:
            nonlocal returned
            returned += crowd.reconnect()

        with meanwhile(come_back):
            assert slowest_open(handle, export) < HONEST_SECONDS
        assert returned > 100
    assert eventually(lambda: not broker._listener._pending)


def test_half_open_connections_of_another_process() -> None:
    with broker_child.exporter(objects=3) as child:
        handle = HandleFields.unpack(bytes.fromhex(child.hear()))
        before = child.ask("stats")["fds"]
        with SocketDir(candidate_dirs()[0], create=False) as directory:
            address = directory.address(socket_name(handle.broker))
            with contextlib.ExitStack() as stack:
                for _ in range(300):
                    sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                    sock.connect(address)
                begun = time.monotonic()
                assert len(open_range(handle)[1]) == 3
                assert time.monotonic() - begun < HONEST_SECONDS
        assert eventually(lambda: child.ask("stats")["fds"] <= before + 1)


def test_silent_peers_are_dropped_in_time() -> None:
    with Broker(limits=Limits(handshake_seconds=0.2)) as broker:
        fds = fd_count()
        with Crowd(broker, 50) as crowd:
            assert eventually(lambda: len(broker._listener._pending) == 50)
            begun = time.monotonic()
            assert all(sock.recv(10) == b"" for sock in crowd.sockets)
            assert time.monotonic() - begun < 2
            assert not broker._listener._pending
        assert fd_count() == fds


def test_a_crowd_pushes_out_only_itself() -> None:
    with Broker(limits=Limits(pending=8, handshake_seconds=30)) as broker:
        export = FakeExport(1)
        handle = serve(broker, export)
        with broker_child.importer(handle) as child:
            child.hear()
            assert child.ask("connected")[0] == "connected"
            assert eventually(lambda: len(broker._listener._pending) == 1)
            with Crowd(broker, 100) as crowd:
                assert eventually(lambda: len(broker._listener._pending) == 8)
                assert eventually(lambda: sum(_is_open(sock) for sock in crowd.sockets) == 7)
                pids = {entry.peer.pid for entry in broker._listener._pending.values()}
                assert child.pid in pids


def _is_open(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
    except BlockingIOError:
        return True


@pytest.mark.parametrize("word", [b"x", b"ZQ01" + bytes(68), bytes(60_000)])
def test_nonsense(broker: Broker, word: bytes) -> None:
    export = FakeExport(5)
    handle = serve(broker, export)
    with Crowd(broker, 100, word) as crowd, meanwhile(crowd.reconnect):
        assert slowest_open(handle, export) < HONEST_SECONDS


def test_peers_that_know_the_secret_and_read_nothing(broker: Broker) -> None:
    """They can hold no more than their share of the threads."""
    export = FakeExport(5)
    handle = serve(broker, export)
    slow = serve(broker, FakeExport(5, b"m" * 2_000_000))
    request = protocol.encode_request(Flag(0), slow.pack())
    with broker_child.importer(handle) as child, Crowd(broker, 100, request):
        child.hear()
        assert eventually(lambda: len(broker._running()) == 100)
        for _ in range(10):
            count, seconds = child.ask("open")
            assert count == 5
            assert seconds < HONEST_SECONDS
        begun = time.monotonic()
        broker.close()
        assert time.monotonic() - begun < 3


def test_processes_that_know_the_secret_and_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several of them leave room for one that comes later."""
    monkeypatch.setattr(broker_service, "SECONDS", 60.0)
    export = FakeExport(5)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(limits=Limits(threads=8, threads_a_peer=4)))
        handle = serve(broker, export)
        slow = serve(broker, FakeExport(5, b"m" * 2_000_000))
        for _ in range(2):
            hostile = stack.enter_context(broker_child.importer(slow))
            hostile.hear()
            for _ in range(5):
                hostile.ask("requested")
        assert eventually(lambda: broker._pool._busy == 6)
        child = stack.enter_context(broker_child.importer(handle))
        child.hear()
        for _ in range(5):
            count, seconds = child.ask("open")
            assert count == 5
            assert seconds < HONEST_SECONDS
        assert len(broker._running()) >= 10
        broker.close()


def test_queue_that_is_full(broker: Broker) -> None:
    handle = serve(broker, FakeExport(5, b"m" * 2_000_000))
    broker._pool._max_queued = 3
    request = protocol.encode_request(Flag(0), handle.pack())
    with Crowd(broker, 20, request) as crowd:
        answers = [
            protocol.decode_reply(sock.recv(1 << 17), check=False).status for sock in crowd.sockets
        ]
        assert answers.count(protocol.Status.BUSY) == 20 - 8 - 3
    # Told to come again, an importer does.
    export = FakeExport(1)
    assert open_range(serve(broker, export)) == expected(export)


def test_exporter_out_of_fds() -> None:
    with broker_child.exporter(objects=2) as child:
        handle = HandleFields.unpack(bytes.fromhex(child.hear()))
        assert len(open_range(handle)[1]) == 2
        child.ask("limit", 4)
        child.ask("fill")
        cpu = child.ask("cpu")
        begun = time.monotonic()
        for _ in range(5):
            with pytest.raises(FdLimit):
                open_range(handle, 5)
        spent, passed = child.ask("cpu") - cpu, time.monotonic() - begun
        assert passed < 5
        assert spent < 0.5 * passed
        # Whoever waits while fds come back is served.
        with connect(handle, time.monotonic() + 10) as connection:
            time.sleep(0.1)
            child.ask("free")
            assert connection.request().object_count == 2
        assert len(open_range(handle)[1]) == 2
