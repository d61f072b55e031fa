"""Short of fds or threads at every point: an error of ours, nothing left, and it works again."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import broker_child
from helpers.broker_fakes import FakeExport, expected, fd_count, open_range
from helpers.waiting import eventually
from ze_ipc import broker_listener
from ze_ipc.broker import Broker
from ze_ipc.broker_limits import Limits
from ze_ipc.broker_protocol import Status
from ze_ipc.errors import FdLimit, KernelError
from ze_ipc.handle import HandleFields
from ze_ipc.transport import TransportName, probe


@contextlib.contextmanager
def limited(count: int) -> Iterator[None]:
    """Let this process open only ``count`` fds more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is on numbers: it is above the first that are free.
    free = (
        number for number in itertools.count() if not Path(f"/proc/self/fd/{number}").is_symlink()
    )
    limit = next(itertools.islice(free, count, None))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_broker_that_cannot_start_for_want_of_fds() -> None:
    for count in range(20):
        before = fd_count()
        with limited(count), contextlib.suppress(FdLimit):
            broker = Broker()
            break
        assert fd_count() == before
        assert not sockets()
    else:
        pytest.fail("20 fds are not enough")
    assert count > 3
    broker.close()
    assert not sockets()


def test_broker_that_cannot_start_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(KernelError):
            Broker()
    assert not sockets()
    Broker().close()


@pytest.mark.parametrize("name", ["broker", "pidfd"])
def test_importer_out_of_fds(name: TransportName) -> None:
    with broker_child.exporter(objects=3) as child:
        handle = HandleFields.unpack(bytes.fromhex(child.hear()))
        failures = 0
        for count in range(20):
            before = fd_count()
            with limited(count):
                try:
                    assert len(open_range(handle, transport=name)[1]) == 3
                    break
                except FdLimit:
                    failures += 1
                except OSError:
                    # What stands for the object stream here says it in its own words.
                    assert count > 1
            assert fd_count() == before
        assert failures > 1
        assert eventually(lambda: child.ask("stats")["services"] == 0)


def test_exporter_is_short_of_fds_for_a_moment() -> None:
    """Peers wait in the backlog, and are served when there are fds again."""
    with Broker() as broker:
        export = FakeExport(1)
        handle = broker.handle_fields(*broker.register(export))
        with broker_child.importer(handle) as child:
            child.hear()
            with limited(0):
                child.say("open")
                assert eventually(lambda: broker._listener._starved_since is not None)
            assert child.hear()[0] == 1
        assert open_range(handle) == expected(export)


@pytest.mark.parametrize("silent_peers", [0, 1])
def test_exporter_is_short_of_fds_for_long(silent_peers: int) -> None:
    """Peers are told, one after another, and silent ones make room."""
    with Broker(limits=Limits(patience_seconds=0.1)) as broker:
        export = FakeExport(1)
        handle = broker.handle_fields(*broker.register(export))
        with broker_child.importer(handle) as child, broker_child.importer(handle) as silent:
            child.hear()
            silent.hear()
            for _ in range(silent_peers):
                silent.ask("connected")
            assert eventually(lambda: len(broker._listener._pending) == silent_peers)
            busy = time.process_time()
            with limited(0):
                for _ in range(4):
                    answer, seconds = child.ask("open")
                    assert answer in (1, "FdLimit")
                    assert seconds < 2
                assert answer == "FdLimit"
                assert not broker._listener._pending
            assert time.process_time() - busy < 2
            # The broker may be refusing the crowd at this very moment.
            assert eventually(lambda: child.ask("open")[0] == 1)
            child.kill()
            child.wait()
        # Pidfds were given up meanwhile: the end is found out by looking.
        assert eventually(lambda: broker.importers(handle.generation) == [])
        probe(handle, time.monotonic() + 5)


def test_nobody_is_refused_for_a_shortage_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two peers comes when there is room again, while the first is being told."""
    refused = []
    with (
        Broker(limits=Limits(patience_seconds=0)) as broker,
        broker_child.importer(broker.handle_fields(*broker.register(FakeExport(1)))) as first,
        broker_child.importer(broker.handle_fields(*broker.register(FakeExport(1)))) as second,
    ):
        first.hear()
        second.hear()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

        def refuse(sock: socket.socket, status: Status) -> None:
            really(sock, status)
            refused.append(status)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            second.ask("connected")

        really = broker_listener.refuse
        monkeypatch.setattr(broker_listener, "refuse", refuse)
        with limited(0):
            assert first.ask("open")[0] == "FdLimit"
            assert eventually(lambda: len(broker._listener._pending) == 1)
        assert refused == [Status.NO_FDS]


def test_close_does_not_wait_for_ever() -> None:
    release = threading.Event()
    broker = Broker()
    export = FakeExport(1)

    def wait(index: int) -> None:
        release.wait(20)

    export.before_object = wait
    handle = broker.handle_fields(*broker.register(export))
    with broker_child.importer(handle) as child:
        child.hear()
        child.say("open")
        assert eventually(lambda: bool(broker._running()))
        begun = time.monotonic()
        broker.close(timeout=0.2)
        assert time.monotonic() - begun < 2
        assert export.events == []
        release.set()
        assert child.hear()[0] == "ConnectionError"
        # The thread that was left behind gives the export back.
        export.wait_for("retired")


def sockets() -> list[str]:
    return [path.name for path in Path(os.environ["ZE_IPC_DIR"]).iterdir()]
