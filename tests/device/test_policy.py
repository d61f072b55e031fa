"""What an exporter allows, held against processes of their own: who, how often, until when, how."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator

import pytest

import ze_ipc
from helpers import ranges
from helpers.broker_probes import OTHER_UID
from ze_ipc.peer_process import Peer

PAGE = 4096


@pytest.fixture
def reservation(xe_mock: ze_ipc.Device) -> Iterator[ze_ipc.Reservation]:
    with xe_mock.reserve(4 * PAGE) as made:
        for at in (0, 2 * PAGE):
            with xe_mock.physical_memory(8 * PAGE) as memory:
                made.map(memory, at=at, offset=3 * PAGE, size=2 * PAGE)
        yield made


class Peers:
    """Other processes, started when they are first needed."""

    def __init__(self) -> None:
        self._started: dict[int, Peer] = {}

    def __getitem__(self, index: int) -> Peer:
        if index not in self._started:
            self._started[index] = Peer()
            self._started[index].call(ranges.open_device)
        return self._started[index]

    def close(self) -> None:
        for peer in self._started.values():
            with peer:
                peer.call(ranges.close_all)


@pytest.fixture
def peers() -> Iterator[Peers]:
    started = Peers()
    yield started
    started.close()


def export(reservation: ze_ipc.Reservation, policy: ze_ipc.Policy) -> ze_ipc.RangeHandle:
    device = reservation._device
    return device.get_ipc_handle(reservation.ptr + 5, 4 * PAGE - 10, policy)


def test_only_a_named_process_opens(reservation: ze_ipc.Reservation, peers: Peers) -> None:
    named, other = peers[0], peers[1]
    with export(reservation, ze_ipc.Policy(pids=frozenset({named.pid}))) as handle:
        with pytest.raises(ze_ipc.AccessDenied):
            other.call(ranges.open_view, bytes(handle))
        named.call(ranges.open_view, bytes(handle))


def test_another_user_alone_is_not_us(reservation: ze_ipc.Reservation, peers: Peers) -> None:
    with (
        export(reservation, ze_ipc.Policy(uids=frozenset({OTHER_UID}))) as handle,
        pytest.raises(ze_ipc.AccessDenied),
    ):
        peers[0].call(ranges.open_view, bytes(handle))


def test_opens_are_counted(reservation: ze_ipc.Reservation, peers: Peers) -> None:
    with export(reservation, ze_ipc.Policy(max_opens=1)) as handle:
        assert reservation._device.can_open(handle)
        peers[0].call(ranges.open_view, bytes(handle))
        for index in (0, 1):
            with pytest.raises(ze_ipc.HandleRevoked):
                peers[index].call(ranges.open_view, bytes(handle))


def test_a_handle_ends(reservation: ze_ipc.Reservation, peers: Peers) -> None:
    with (
        export(reservation, ze_ipc.Policy(not_after=time.monotonic() - 1)) as handle,
        pytest.raises(ze_ipc.HandleRevoked),
    ):
        peers[0].call(ranges.open_view, bytes(handle))


def test_read_only_is_kept_by_the_importer(reservation: ze_ipc.Reservation, peers: Peers) -> None:
    device = reservation._device
    device.write(reservation.ptr, b"exporter")
    with export(reservation, ze_ipc.Policy(read_only=True)) as handle:
        peer = peers[0]
        peer.call(ranges.open_view, bytes(handle))
        assert peer.call(is_read_only) == (True, True)
        assert peer.call(ranges.read_view, 0, 3) == b"ter"
        with pytest.raises(ze_ipc.InvalidArgument):
            peer.call(ranges.write_view, 0, b"x")
        with pytest.raises(ze_ipc.InvalidArgument):
            peer.call(ranges.gpu_copy, 0, PAGE, 8)
        # What is opened read-only is handed on read-only.
        onward = peer.call(ranges.reexport)
        with device.open_ipc_handle(onward) as view:
            assert view.read_only
        device.write(reservation.ptr + 5, b"new")
        assert peer.call(ranges.read_view, 0, 3) == b"new"
    with device.get_ipc_handle(reservation.ptr, PAGE) as ordinary:
        assert not peers[0].call(open_ordinary, bytes(ordinary))


def is_read_only(state: ranges.State) -> tuple[bool, bool]:
    with memoryview(state["view"]) as window:
        return state["view"].read_only, window.readonly


def open_ordinary(state: ranges.State, handle: bytes) -> bool:
    with state["device"].open_ipc_handle(handle) as view:
        state["device"].write(view.ptr, b"y")
        return bool(view.read_only)


def test_the_kernel_holds_nobody_to_read_only(reservation: ze_ipc.Reservation) -> None:
    """SECURITY.md says so: whoever has an object's dma-buf binds the object as it likes."""
    device = reservation._device
    with (
        ze_ipc.open_device("mock") as importer,
        export(reservation, ze_ipc.Policy(read_only=True)) as handle,
        importer.open_ipc_handle(handle) as view,
    ):
        backend, objects = importer._backend, view._objects.objects
        base = backend.reserve(8 * PAGE, None, PAGE, 0)
        whole = objects[:1], array("Q", [0]), array("Q", [8 * PAGE]), array("B", [0])
        backend.map_extents(base, *whole, time.monotonic() + 20)
        backend.fill(base + 3 * PAGE, 0x61, PAGE, time.monotonic() + 20)
        backend.unmap(base, 8 * PAGE, time.monotonic() + 20)
        backend.unreserve(base, 8 * PAGE)
    assert device.read(reservation.ptr, 4) == b"aaaa"


def test_exposure_is_whole_objects(reservation: ze_ipc.Reservation, peers: Peers) -> None:
    with export(reservation, ze_ipc.Policy()) as handle:
        found = handle.exposure
        assert found is not None
        assert (found.window, found.reachable) == (4 * PAGE - 10, 16 * PAGE)
        assert (found.beyond, found.beyond_of(0)) == (12 * PAGE + 10, 6 * PAGE + 5)
        assert f"reachable={16 * PAGE:#x}" in repr(handle)
        peers[0].call(ranges.open_view, bytes(handle))
        assert peers[0].call(exposure_of_view) == found.beyond


def exposure_of_view(state: ranges.State) -> int:
    return int(state["view"].exposure.beyond)


def test_revoked_is_for_everybody_and_keeps_what_is_open(
    reservation: ze_ipc.Reservation, peers: Peers
) -> None:
    with export(reservation, ze_ipc.Policy()) as handle:
        peers[0].call(ranges.open_view, bytes(handle))
        handle.revoke()
        handle.revoke()
        for index in (0, 1):
            with pytest.raises(ze_ipc.HandleRevoked):
                peers[index].call(ranges.open_view, bytes(handle), 20.0, "again")
        assert len(peers[0].call(ranges.read_view)) == 4 * PAGE - 10
        assert not handle.closed
        assert os.getpid() not in [importer.pid for importer in handle.importers()]


class DriversWay:
    """A driver that shares ranges by itself."""

    def export(self, *_: object) -> bytes:
        return b"DRVR" + bytes(60)

    def put(self, data: bytes) -> None:
        assert data == b"DRVR" + bytes(60)


def test_a_drivers_handle_has_no_policy(
    reservation: ze_ipc.Reservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = reservation._device
    monkeypatch.setattr(type(device._backend), "native", DriversWay())
    with pytest.raises(ze_ipc.UnsupportedFeature):
        export(reservation, ze_ipc.Policy())
    with device.get_ipc_handle(reservation.ptr, PAGE) as handle:
        for call in (lambda: handle.on_importer(print), handle.revoke):
            with pytest.raises(ze_ipc.UnsupportedFeature):
                call()
        assert handle.exposure is None
        assert handle.importers() == []
        assert repr(handle)
