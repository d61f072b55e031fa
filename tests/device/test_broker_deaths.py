"""Either side dies at every step: the other gets an error, or nothing to notice, and goes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from helpers import broker_child
from helpers.broker_fakes import FakeExport, expected, fd_count, open_range, receive_objects
from helpers.waiting import eventually
from ze_ipc import broker_service
from ze_ipc.broker import Broker
from ze_ipc.errors import ExporterGone, ZeIpcError
from ze_ipc.handle import HandleFields
from ze_ipc.transport import TransportName, connect, probe


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(params=["broker", "pidfd"])
def name(request: pytest.FixtureRequest) -> TransportName:
    name: TransportName = request.param
    return name


def handle_of(child: broker_child.Child) -> HandleFields:
    return HandleFields.unpack(bytes.fromhex(child.hear()))


def test_exporter_dies_before_the_open(name: TransportName) -> None:
    with broker_child.exporter() as child:
        handle = handle_of(child)
        child.kill()
        child.wait()
        begun = time.monotonic()
        with pytest.raises(ExporterGone):
            open_range(handle, transport=name)
        with pytest.raises(ExporterGone):
            probe(handle, time.monotonic() + 5)
        assert time.monotonic() - begun < 1


def test_exporter_dies_before_it_accepts(name: TransportName) -> None:
    with broker_child.exporter() as child:
        handle = handle_of(child)
        child.stop()
        caught: list[BaseException] = []

        def work() -> None:
            try:
                open_range(handle, 20, transport=name)
            except ZeIpcError as error:
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        child.kill()
        thread.join()
        assert [type(error) for error in caught] == [ExporterGone]


def test_exporter_dies_at_the_request(name: TransportName) -> None:
    with broker_child.exporter(die_at="manifest") as child:
        handle = handle_of(child)
        with pytest.raises(ExporterGone):
            open_range(handle, transport=name)
        assert child.wait() == -signal.SIGKILL


def test_exporter_dies_after_the_reply(name: TransportName) -> None:
    with broker_child.exporter(objects=5, die_at="0") as child:
        handle = handle_of(child)
        with connect(handle, time.monotonic() + 5, transport=name) as connection:
            assert connection.request().object_count == 5
            connection.manifest()
            with pytest.raises(ConnectionError):
                receive_objects(connection, 5)


def test_exporter_dies_in_the_manifest(name: TransportName) -> None:
    with broker_child.exporter(manifest=5_000_000) as child:
        handle = handle_of(child)
        with connect(handle, time.monotonic() + 5, transport=name) as connection:
            assert connection.request().manifest_size == 5_000_000
            child.kill()
            child.wait()
            with pytest.raises(ExporterGone):
                connection.manifest()


def test_exporter_dies_in_the_objects(name: TransportName) -> None:
    with broker_child.exporter(objects=20, die_at="11") as child:
        handle = handle_of(child)
        with connect(handle, time.monotonic() + 5, transport=name) as connection:
            connection.request()
            connection.manifest()
            with pytest.raises(ConnectionError):
                receive_objects(connection, 20)


def test_exporter_dies_before_the_last_word(name: TransportName) -> None:
    with broker_child.exporter(objects=3) as child:
        handle = handle_of(child)
        with connect(handle, time.monotonic() + 5, transport=name) as connection:
            reply = connection.request()
            connection.manifest()
            assert len(receive_objects(connection, reply.object_count)) == 3
            child.kill()
            child.wait()
            connection.finish()
            assert connection.closed


@pytest.mark.parametrize("step", ["connected", "requested", "manifest", "part", "objects"])
def test_importer_dies(broker: Broker, step: str, name: TransportName) -> None:
    export = FakeExport(20, b"m" * 500_000)
    handle = broker.handle_fields(*broker.register(export))
    fds = fd_count()
    with broker_child.importer(handle, transport_name=name) as child:
        child.hear()
        assert child.ask(step)[0] == step
        child.kill()
        child.wait()
        assert eventually(lambda: not broker._running() and not broker._listener._pending)
    assert eventually(lambda: fd_count() == fds)
    assert export.events == []
    assert open_range(handle) == expected(export)
    broker.revoke(handle.generation)
    export.wait_for("retired")


def test_importer_stops_in_the_middle(broker: Broker) -> None:
    """A stopped importer is not waited for by put; close() ends it."""
    export = FakeExport(20, b"m" * 500_000)
    handle = broker.handle_fields(*broker.register(export))
    with broker_child.importer(handle) as child:
        child.hear()
        child.ask("part")
        child.stop()
        begun = time.monotonic()
        assert broker.revoke(handle.generation)
        assert export.events == []
        broker.close()
        assert time.monotonic() - begun < 2
        assert export.events == ["retired"]
        child.kill()


def test_put_can_interrupt(broker: Broker) -> None:
    export = FakeExport(20)
    handle = broker.handle_fields(*broker.register(export))
    other = FakeExport(3)
    kept = broker.handle_fields(*broker.register(other))
    deadline = time.monotonic() + 5
    with connect(handle, deadline) as connection, connect(kept, deadline) as untouched:
        connection.request()
        connection.manifest()
        untouched.request()
        assert broker.revoke(handle.generation, interrupt=True)
        export.wait_for("retired")
        with pytest.raises(ConnectionError):
            receive_objects(connection, 20)
        untouched.manifest()
        assert len(receive_objects(untouched, 3)) == 3
        untouched.finish()
    other.wait_for("opened")


def test_put_lets_an_open_finish(broker: Broker) -> None:
    export = FakeExport(20)
    handle = broker.handle_fields(*broker.register(export))
    with connect(handle, time.monotonic() + 5) as connection:
        connection.request()
        assert broker.revoke(handle.generation)
        connection.manifest()
        assert len(receive_objects(connection, 20)) == 20
        assert export.events == []
        connection.finish()
    export.wait_for("retired")
    assert export.events == ["opened", "retired"]
    assert broker.importers(handle.generation) == []


def test_exporter_ends_while_its_broker_lives() -> None:
    """No close(): the process still ends at once, also with a peer in the middle, and tidies up."""
    with broker_child.exporter(objects=20, manifest=5_000_000) as child:
        handle = handle_of(child)
        with connect(handle, time.monotonic() + 5) as connection:
            connection.request()
            begun = time.monotonic()
            child.say("exit")
            assert child.wait() == 0
            assert time.monotonic() - begun < 3
        with pytest.raises(ExporterGone):
            open_range(handle)


@pytest.mark.parametrize("manifest", [8, 2_000_000])
def test_importer_that_takes_no_more_is_given_up(
    broker: Broker, manifest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_service, "SECONDS", 0.2)
    export = FakeExport(2, b"m" * manifest)
    handle = broker.handle_fields(*broker.register(export))
    with connect(handle, time.monotonic() + 5) as connection:
        connection.request()
        assert eventually(lambda: len(broker._running()) == 1)
        assert eventually(lambda: not broker._running(), 3)
        if manifest > 1_000_000:
            with pytest.raises(ExporterGone):
                connection.manifest()
        else:
            connection.manifest()
            with pytest.raises(ConnectionError):
                receive_objects(connection, 2)
    assert export.events == []
