"""Who holds a handle: listed while it is so, and told to the exporter as it changes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

import ze_ipc
from helpers import ranges
from helpers.waiting import eventually
from ze_ipc.peer_process import Peer

PAGE = 4096
SECONDS = 30.0

Events = queue.Queue[ze_ipc.ImporterEvent]


@pytest.fixture
def handle(xe_mock: ze_ipc.Device) -> Iterator[ze_ipc.RangeHandle]:
    with xe_mock.reserve(3 * PAGE) as reservation, xe_mock.physical_memory(3 * PAGE) as memory:
        reservation.map(memory, at=0)
        with xe_mock.get_ipc_handle(reservation.ptr, 2 * PAGE) as made:
            yield made


@pytest.fixture
def events(handle: ze_ipc.RangeHandle) -> Events:
    found: Events = queue.Queue()
    handle.on_importer(found.put)
    return found


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as other:
        other.call(ranges.open_device)
        yield other


def next_event(events: Events) -> tuple[str, int]:
    event = events.get(timeout=SECONDS)
    return event.kind, event.importer.pid


def test_a_close_and_a_death_are_told(
    handle: ze_ipc.RangeHandle, events: Events, peer: Peer
) -> None:
    for _ in range(3):
        peer.call(ranges.open_view, bytes(handle))
        assert next_event(events) == ("opened", peer.pid)
        peer.call(ranges.close_view)
        assert next_event(events) == ("released", peer.pid)
        assert handle.importers() == []
    peer.call(ranges.open_view, bytes(handle))
    assert next_event(events) == ("opened", peer.pid)
    peer.kill()
    assert next_event(events) == ("died", peer.pid)
    assert handle.importers() == []
    assert events.empty()


def test_it_is_held_until_its_last_view_is_closed(
    handle: ze_ipc.RangeHandle, events: Events, peer: Peer
) -> None:
    for name in ("one", "two"):
        peer.call(ranges.open_view, bytes(handle), 20.0, name)
        assert next_event(events) == ("opened", peer.pid)
    [importer] = handle.importers()
    assert (importer.pid, importer.opens, importer.size) == (peer.pid, 2, 2 * PAGE)
    peer.call(ranges.close_view, "one")
    assert [entry.pid for entry in handle.importers()] == [peer.pid]
    peer.call(ranges.close_view, "two")
    assert next_event(events) == ("released", peer.pid)
    assert handle.importers() == []


def test_two_devices_of_one_process_hold_it_apart(
    handle: ze_ipc.RangeHandle, events: Events
) -> None:
    with ze_ipc.open_device("mock") as first, ze_ipc.open_device("mock") as second:
        one, two = first.open_ipc_handle(handle), second.open_ipc_handle(handle)
        assert [next_event(events)[0] for _ in range(2)] == ["opened"] * 2
        one.close()
        assert len(handle.importers()) == 1
        two.close()
        assert next_event(events)[0] == "released"


def test_a_device_that_is_closed_releases_what_it_held(
    handle: ze_ipc.RangeHandle, events: Events, peer: Peer
) -> None:
    peer.call(ranges.open_view, bytes(handle))
    assert next_event(events)[0] == "opened"
    peer.call(close_device)
    assert next_event(events) == ("released", peer.pid)


def close_device(state: ranges.State) -> None:
    state["device"].close()


def test_a_view_is_closed_at_once_when_the_exporter_is_gone(xe_mock: ze_ipc.Device) -> None:
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        view = xe_mock.open_ipc_handle(exporter.call(ranges.export_range, 2, PAGE, b"ab"))
        exporter.kill()
        assert xe_mock.read(view.ptr, 1) == b"a"
        view.close()
    with xe_mock.reserve(PAGE) as reservation, xe_mock.physical_memory(PAGE) as memory:
        reservation.map(memory, at=0)
        # The next broker of this user removes what the dead one left.
        xe_mock.get_ipc_handle(reservation.ptr, 1).close()


def test_a_callback_that_fails_or_waits_holds_up_nobody(
    handle: ze_ipc.RangeHandle, events: Events, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    def wait(event: ze_ipc.ImporterEvent) -> None:
        assert go_on.wait(SECONDS)
        raise RuntimeError("a user's mistake")

    handle.on_importer(wait)
    for _ in range(3):
        peer.call(ranges.open_view, bytes(handle))
        peer.call(ranges.close_view)
    assert eventually(lambda: handle.importers() == [], SECONDS)
    go_on.set()
    kinds = [next_event(events)[0] for _ in range(6)]
    assert kinds == ["opened", "released"] * 3
    assert "a user's mistake" in caplog.text


def test_a_callback_may_close_the_handle_and_the_device(peer: Peer) -> None:
    device = ze_ipc.open_device("mock")
    closed = threading.Event()
    with device.reserve(PAGE) as reservation, device.physical_memory(PAGE) as memory:
        reservation.map(memory, at=0)
        handle = device.get_ipc_handle(reservation.ptr, PAGE)

        def close(event: ze_ipc.ImporterEvent) -> None:
            handle.close()
            device.close()
            closed.set()

        handle.on_importer(close)
        peer.call(ranges.open_view, bytes(handle))
        assert closed.wait(SECONDS)
    assert device.closed
    device.close()
    assert peer.call(ranges.read_view, 0, 1) == bytes(1)


def test_only_the_owner_of_the_export_listens(handle: ze_ipc.RangeHandle) -> None:
    copy = ze_ipc.RangeHandle.from_bytes(bytes(handle))
    for call in (lambda: copy.on_importer(print), copy.revoke):
        with pytest.raises(ze_ipc.Closed):
            call()
    assert copy.exposure is None
