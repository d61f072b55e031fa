"""Opens that succeed: both transports, in one process and between several, and what they cost."""

from __future__ import annotations

import os
import resource
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers import broker_child
from helpers.broker_fakes import FakeExport, expected, fd_count, open_range, receive_objects
from helpers.waiting import eventually
from ze_ipc import broker_importers
from ze_ipc.broker import Broker
from ze_ipc.broker_limits import Limits
from ze_ipc.errors import Closed, InvalidArgument
from ze_ipc.fds import Fd
from ze_ipc.handle import HandleFields
from ze_ipc.policy import Peer
from ze_ipc.socket_dir import SocketDir
from ze_ipc.transport import TransportName, connect, probe


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(params=["broker", "pidfd"])
def transport(request: pytest.FixtureRequest) -> TransportName:
    name: TransportName = request.param
    return name


def serve(broker: Broker, export: FakeExport) -> HandleFields:
    return HandleFields.unpack(broker.handle_fields(*broker.register(export)).pack())


@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 98305, 3_000_000])
@pytest.mark.parametrize("objects", [0, 1, 20])
def test_manifest_and_objects(
    broker: Broker, transport: TransportName, size: int, objects: int
) -> None:
    export = FakeExport(objects, secrets.token_bytes(size))
    handle = serve(broker, export)
    for _ in range(2):
        assert open_range(handle, transport=transport) == expected(export)
    export.wait_for("opened", 2)


def test_transport_is_visible_and_chosen_by_the_environment(
    broker: Broker, transport: TransportName, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = serve(broker, FakeExport())
    monkeypatch.setenv("ZE_IPC_TRANSPORT", transport)
    with connect(handle, time.monotonic() + 5) as connection:
        assert connection.transport == transport
        assert transport in repr(connection)
    monkeypatch.setenv("ZE_IPC_TRANSPORT", "")
    with connect(handle, time.monotonic() + 5) as connection:
        assert connection.transport == "broker"
    monkeypatch.setenv("ZE_IPC_TRANSPORT", "tcp")
    with pytest.raises(InvalidArgument):
        connect(handle, time.monotonic() + 5)


def test_objects_that_the_importer_has_are_not_sent(
    broker: Broker, transport: TransportName
) -> None:
    export = FakeExport(5)
    handle = serve(broker, export)
    manifest, contents = open_range(handle, transport=transport, skip_objects=True)
    assert (manifest, contents) == (export.manifest_bytes, [])
    export.wait_for("opened")


def test_probe_opens_nothing(broker: Broker) -> None:
    export = FakeExport(5, b"x" * 100_000)
    handle = serve(broker, export)
    reply = probe(handle, time.monotonic() + 5)
    assert (reply.manifest_size, reply.object_count, reply.manifest) == (100_000, 5, b"")
    assert export.events == []
    assert broker.importers(handle.generation) == []


def test_importer_that_fails_has_not_opened(broker: Broker) -> None:
    export = FakeExport(1)
    handle = serve(broker, export)
    with connect(handle, time.monotonic() + 5) as connection:
        connection.request()
        connection.manifest()
        receive_objects(connection, 1)
        connection.finish(7)
    assert eventually(lambda: not broker._running())
    assert export.events == []


def test_between_processes(broker: Broker, transport: TransportName) -> None:
    export = FakeExport(300)
    handle = serve(broker, export)
    with broker_child.importer(handle, transport_name=transport) as child:
        assert child.hear() == "ready"
        assert child.ask("open")[0] == 300
        assert child.ask("probe")[0] == 300
        export.wait_for("opened")
        assert export.importers[0].pid == child.pid
        [importer] = broker.importers(handle.generation)
        assert (importer.pid, importer.size, importer.opens) == (child.pid, export.size, 1)
        assert abs(importer.since - time.time()) < 30
        assert child.ask("open")[0] == 300
        export.wait_for("opened", 2)
        assert eventually(lambda: broker.importers(handle.generation)[0].opens == 2)


@pytest.fixture
def short_of_fds() -> Iterator[None]:
    """The limits of the smallest process that must work: 256 fds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("watched", [True, False])
def test_end_of_an_importer_is_reported(broker: Broker, watched: bool) -> None:
    if not watched:
        broker._importers._max_watched = 0
    export = FakeExport()
    handle = serve(broker, export)
    with broker_child.importer(handle) as child:
        child.hear()
        child.ask("open")
        export.wait_for("opened")
        assert eventually(
            lambda: [e.pid for e in broker.importers(handle.generation)] == [child.pid]
        )
        child.kill()
        child.wait()
        if watched:
            export.wait_for("died")
        assert eventually(lambda: broker.importers(handle.generation) == [])
    export.wait_for("died")
    assert export.importers[0] == export.importers[1]


def test_forked_child_of_the_exporter_hides_no_end(broker: Broker) -> None:
    """A child that forked without Python's knowledge has duplicates of the pidfds."""
    export = FakeExport()
    handle = serve(broker, export)
    with broker_child.importer(handle) as child:
        child.hear()
        child.ask("open")
        assert eventually(lambda: len(broker._importers._processes) == 1)
        [process] = broker._importers._processes.values()
        assert process.pidfd is not None
        with Fd.duplicate(process.pidfd.fileno()):
            child.kill()
            child.wait()
            export.wait_for("died")
            busy = time.process_time()
            time.sleep(0.2)
            assert time.process_time() - busy < 0.1
    assert open_range(handle) == expected(export)


def test_records_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_importers, "_MAX_PROCESSES", 5)
    near, far = socket.socketpair()
    with near, far:
        for _ in range(20):
            broker._importers.add(1, Peer(0, 0, 0), 4096, near)
    assert len(broker.importers(1)) == 5


def test_put_forgets_the_importers(broker: Broker) -> None:
    export = FakeExport()
    handle = serve(broker, export)
    fds = fd_count()
    open_range(handle)
    assert eventually(lambda: len(broker.importers(handle.generation)) == 1)
    assert broker.revoke(handle.generation)
    assert broker.importers(handle.generation) == []
    assert eventually(lambda: fd_count() == fds)
    assert export.events == ["opened", "retired"]


def test_exporter_in_another_process(transport: TransportName) -> None:
    with broker_child.exporter(objects=3) as child:
        handle = HandleFields.unpack(bytes.fromhex(child.hear()))
        assert handle.pid == child.pid
        assert len(open_range(handle, transport=transport)[1]) == 3
        assert eventually(lambda: child.ask("stats")["importers"] == [os.getpid()])


def test_64_importers_at_once(broker: Broker) -> None:
    export = FakeExport(10, b"m" * 50_000)
    handle = serve(broker, export)
    barrier = threading.Barrier(64)

    def work(_: int) -> bool:
        barrier.wait(20)
        return open_range(handle, 30) == expected(export)

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(work, range(64)))
    export.wait_for("opened", 64)


def test_64_importers_at_once_with_256_fds(short_of_fds: None) -> None:
    limits = Limits.of_process()
    assert (limits.pending, limits.queued, limits.watched, limits.threads) == (32, 64, 32, 32)
    with Broker() as broker, broker_child.Child("import_many", count=64) as child:
        export = FakeExport(10, b"m" * 50_000)
        handle = serve(broker, export)
        assert child.ask(handle.pack().hex()) == 64
        export.wait_for("opened", 64)


def test_brokers_that_start_and_end_at_once() -> None:
    """The clean-up of one never takes the socket of another, however young."""
    directory = Path(os.environ["ZE_IPC_DIR"])

    def work(number: int) -> bool:
        export = FakeExport(1, b"%d" % number)
        for _ in range(15):
            with Broker() as broker:
                if open_range(serve(broker, export), 20) != expected(export):
                    return False
            with SocketDir(directory, create=False) as sockets:
                sockets.listen(secrets.token_bytes(8), mode=0o600, backlog=1).close()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    with SocketDir(directory, create=False) as sockets:
        sockets.remove_stale()
    assert not list(directory.iterdir())


def test_1000_importers_in_a_row(broker: Broker) -> None:
    export = FakeExport(1)
    handle = serve(broker, export)
    fds = fd_count()
    for _ in range(1000):
        assert open_range(handle) == expected(export)
    export.wait_for("opened", 1000)
    # One pidfd: all of them were this process.
    assert eventually(lambda: fd_count() == fds + 1)


def test_at_rest_a_broker_costs_the_same_whatever_it_serves(broker: Broker) -> None:
    fds, threads = fd_count(), threading.active_count()
    for _ in range(200):
        serve(broker, FakeExport(100_000))
    assert (fd_count(), threading.active_count()) == (fds, threads)


def test_connection_after_close(broker: Broker) -> None:
    handle = serve(broker, FakeExport(0))
    connection = connect(handle, time.monotonic() + 5)
    with pytest.raises(InvalidArgument):
        connection.manifest()
    connection.close()
    connection.close()
    assert connection.closed
    assert "closed" in repr(connection)
    for use in (connection.fileno, connection.request, connection.finish):
        with pytest.raises(Closed):
            use()


def test_default_timeout_of_python_sockets_changes_nothing(
    transport: TransportName,
) -> None:
    socket.setdefaulttimeout(3.0)
    try:
        with Broker() as broker:
            export = FakeExport(3, b"m" * 1_000_000)
            begun = time.monotonic()
            handle = serve(broker, export)
            assert open_range(handle, transport=transport) == expected(export)
            with connect(handle, time.monotonic() + 0.2, transport=transport) as connection:
                connection.request()
                connection.manifest()
            assert time.monotonic() - begun < 2
    finally:
        socket.setdefaulttimeout(None)


def test_two_brokers_of_one_process(transport: TransportName) -> None:
    exports = [FakeExport(1, b"one"), FakeExport(2, b"two")]
    with Broker() as first, Broker() as second:
        handles = [serve(broker, e) for broker, e in zip((first, second), exports, strict=True)]
        assert handles[0].broker != handles[1].broker
        for handle, export in zip(handles, exports, strict=True):
            assert open_range(handle, transport=transport) == expected(export)
