"""A range grows, and those who have it open follow without moving and without a second import."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest

import ze_ipc
from helpers import ranges
from ze_ipc.policy import Policy

PAGE = 4096
ROOM = 64 * PAGE


class Growing:
    """A reservation that is filled object by object, each with its own byte."""

    def __init__(self, device: ze_ipc.Device) -> None:
        self.device = device
        self.reservation = device.reserve(ROOM)
        self.ptr = self.reservation.ptr
        self.at = 0
        self.count = 0

    def grow(self, *pages: int) -> None:
        for number in pages:
            size = number * PAGE
            with self.device.physical_memory(size) as memory:
                self.reservation.map(memory, at=self.at)
            self.count += 1
            self.device.fill(self.ptr + self.at, self.count, size)
            self.at += size

    def close(self) -> None:
        self.reservation.close()

    def bytes(self, size: int, offset: int = 0) -> bytes:
        return self.device.read(self.ptr + offset, size)


@pytest.fixture
def growing(xe_mock: ze_ipc.Device) -> Iterator[Growing]:
    growing = Growing(xe_mock)
    growing.grow(1, 2)
    yield growing
    growing.close()


@pytest.fixture
def importer() -> Iterator[ze_ipc.Device]:
    with ze_ipc.open_device("mock") as device:
        yield device


@pytest.fixture
def received(importer: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many objects came with each stream to the importer."""
    counts: list[int] = []
    real = importer._backend.receive_objects

    def receive(socket: int, sizes: array[int], *rest: Any) -> array[int]:
        counts.append(len(sizes))
        return real(socket, sizes, *rest)

    monkeypatch.setattr(importer._backend, "receive_objects", receive)
    return counts


def same(growing: Growing, view: ze_ipc.ImportedRange) -> bool:
    device = view.device
    return device.read(view.ptr, view.size) == growing.bytes(view.size)


def test_a_view_follows_and_stays_where_it_is(
    growing: Growing, importer: ze_ipc.Device, received: list[int]
) -> None:
    with ExitStack() as handles:
        handle = handles.enter_context(growing.device.get_ipc_handle(growing.ptr, 3 * PAGE))
        view = importer.open_ipc_handle(handle, reserve=ROOM)
        assert (view.room, view.size, view.objects) == (ROOM, 3 * PAGE, 2)
        ptr = view.ptr
        for pages in ((3,), (1, 1, 4), (2,)):
            growing.grow(*pages)
            handle = handles.enter_context(handle.extend())
            assert (handle.size, handle.objects) == (growing.at, growing.count)
            assert view.extend(bytes(handle)) is view
            assert (view.ptr, view.size, view.objects) == (ptr, growing.at, growing.count)
            assert same(growing, view)
            assert importer.address_range(view.ptr + growing.at - 1) == (ptr, growing.at)
            importer.write(view.ptr + growing.at - 4, b"back")
            assert growing.bytes(4, growing.at - 4) == b"back"
        assert received == [1, 3, 1]
        importer.copy(view.ptr, view.ptr + growing.at - PAGE, PAGE)
        assert growing.bytes(PAGE) == growing.bytes(PAGE, growing.at - PAGE)
        # Whoever comes later opens the newest as any other.
        with ze_ipc.open_device("mock") as late, late.open_ipc_handle(handle) as whole:
            assert same(growing, whole)
            assert whole.room == whole.size
        view.close()
    assert importer._backend.live_objects == 1  # type: ignore[attr-defined]  # the copy engine's


def test_in_another_process(growing: Growing, ze_ipc_peer: Any) -> None:
    peer = ze_ipc_peer()
    peer.call(ranges.open_device)
    with ExitStack() as handles:
        handle = handles.enter_context(growing.device.get_ipc_handle(growing.ptr, growing.at))
        ptr, _size = peer.call(ranges.open_growing, bytes(handle), ROOM)
        for _ in range(3):
            growing.grow(2, 1)
            old, handle = handle, handles.enter_context(handle.extend())
            old.close()  # whoever is still at it can follow all the same
            assert peer.call(ranges.follow, bytes(handle)) == (ptr, growing.at)
            assert peer.call(ranges.read_view, 0, growing.at) == growing.bytes(growing.at)
    growing.reservation.unmap(0, ROOM)
    assert peer.call(ranges.read_view, PAGE, 1) == b"\x02"
    peer.call(ranges.close_all)


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (100, 3000), (PAGE - 1, 2), (5, 2 * PAGE)])
def test_windows_that_end_in_the_middle(
    growing: Growing, importer: ze_ipc.Device, received: list[int], offset: int, size: int
) -> None:
    ptr = growing.ptr + offset
    with ExitStack() as handles:
        handle = handles.enter_context(growing.device.get_ipc_handle(ptr, size))
        view = handles.enter_context(importer.open_ipc_handle(handle, reserve=ROOM - offset))
        mapped = 3 * PAGE - offset
        for longer in (size + 1, (size + mapped) // 2, mapped, mapped + 17):
            if longer > mapped:
                growing.grow(1)
            handle = handles.enter_context(handle.extend(longer))
            view.extend(handle)
            assert view.size == longer
            assert importer.read(view.ptr, longer) == growing.bytes(longer, offset)
            assert bytes(memoryview(view)) == growing.bytes(longer, offset)
        assert sum(received) <= 2


def test_objects_that_go_on_or_come_again(
    growing: Growing, importer: ze_ipc.Device, received: list[int]
) -> None:
    device, reservation = growing.device, growing.reservation
    with ExitStack() as stack:
        memory = stack.enter_context(device.physical_memory(4 * PAGE))
        reservation.map(memory, at=3 * PAGE, size=2 * PAGE)
        handle = stack.enter_context(device.get_ipc_handle(growing.ptr, 5 * PAGE))
        view = stack.enter_context(importer.open_ipc_handle(handle, reserve=ROOM))
        reservation.map(memory, at=5 * PAGE, offset=2 * PAGE)
        reservation.map(memory, at=7 * PAGE, offset=PAGE, size=PAGE)
        device.write(growing.ptr, np.random.default_rng(1).bytes(8 * PAGE))
        handle = stack.enter_context(handle.extend())
        assert (handle.size, handle.objects) == (8 * PAGE, 3)
        view.extend(handle)
        assert view.objects == 3
        assert same(growing, view)
        assert received == []


def test_one_may_skip_steps_or_hear_twice(
    growing: Growing, importer: ze_ipc.Device, received: list[int]
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(growing.device.get_ipc_handle(growing.ptr, 3 * PAGE))
        view = stack.enter_context(importer.open_ipc_handle(first, reserve=ROOM))
        growing.grow(1)
        second = stack.enter_context(first.extend())
        growing.grow(1)
        third = stack.enter_context(second.extend())
        view.extend(third)
        assert same(growing, view)
        view.extend(third)
        assert received == [2]
        with pytest.raises(ze_ipc.InvalidArgument, match="older"):
            view.extend(second)
        assert same(growing, view)
        # A second view in the same process gets what the first has.
        with importer.open_ipc_handle(first, reserve=ROOM) as other:
            other.extend(third)
            assert same(growing, other)
        assert received == [2]


def test_what_is_no_continuation(growing: Growing, importer: ze_ipc.Device) -> None:
    device = growing.device
    with ExitStack() as stack:
        handle = stack.enter_context(device.get_ipc_handle(growing.ptr, 3 * PAGE))
        view = stack.enter_context(importer.open_ipc_handle(handle, reserve=ROOM))
        for size in (None, 3 * PAGE, 1):
            with pytest.raises(ze_ipc.InvalidSize):
                handle.extend(size)
        with pytest.raises(ze_ipc.AddressNotFound):
            handle.extend(4 * PAGE)
        growing.grow(1)
        same_bytes = stack.enter_context(device.get_ipc_handle(growing.ptr, growing.at))
        elsewhere = stack.enter_context(device.get_ipc_handle(growing.ptr + PAGE, 3 * PAGE))
        for other in (same_bytes, elsewhere):
            with pytest.raises(ze_ipc.InvalidArgument) as caught:
                view.extend(other)
            assert "extend()" in caught.value.hint
        longer = stack.enter_context(handle.extend())
        with pytest.raises(ze_ipc.InvalidArgument, match="extended already"):
            handle.extend()
        stale = bytes(longer)
        longer.close()
        with pytest.raises(ze_ipc.HandleRevoked):
            view.extend(stale)
        with pytest.raises(ze_ipc.InvalidHandle):
            view.extend(bytes(64))
        with pytest.raises(ze_ipc.Closed):
            longer.extend()
        with pytest.raises(ze_ipc.Closed):
            ze_ipc.RangeHandle.from_bytes(stale).extend()
        assert (view.size, view.objects) == (3 * PAGE, 2)
        assert same(growing, view)


def test_what_was_mapped_anew_is_no_continuation(growing: Growing) -> None:
    device, reservation = growing.device, growing.reservation
    with device.get_ipc_handle(growing.ptr, 3 * PAGE) as handle:
        before = device._backend.live_objects  # type: ignore[attr-defined]
        reservation.unmap(0, PAGE)
        with device.physical_memory(PAGE) as memory:
            reservation.map(memory, at=0)
        growing.grow(1)
        with pytest.raises(ze_ipc.InvalidArgument) as caught:
            handle.extend()
        assert "get_ipc_handle" in caught.value.hint
        assert device._backend.live_objects == before + 2  # type: ignore[attr-defined]


def test_no_room(growing: Growing, importer: ze_ipc.Device, received: list[int]) -> None:
    with ExitStack() as stack:
        handle = stack.enter_context(growing.device.get_ipc_handle(growing.ptr, 3 * PAGE))
        tight = stack.enter_context(importer.open_ipc_handle(handle))
        some = stack.enter_context(importer.open_ipc_handle(handle, reserve=4 * PAGE - 100))
        assert (tight.room, some.room) == (3 * PAGE, 4 * PAGE)
        growing.grow(1)
        longer = stack.enter_context(handle.extend())
        with pytest.raises(ze_ipc.OutOfDeviceMemory, match="reserve=0x4000"):
            tight.extend(longer)
        assert same(growing, tight)
        some.extend(longer)
        growing.grow(1)
        longest = stack.enter_context(longer.extend())
        for view in (tight, some):
            with pytest.raises(ze_ipc.OutOfDeviceMemory):
                view.extend(longest)
            assert same(growing, view)
        assert received == [1]


def test_arrays_of_before_and_after(growing: Growing, importer: ze_ipc.Device) -> None:
    with ExitStack() as stack:
        handle = stack.enter_context(growing.device.get_ipc_handle(growing.ptr, 3 * PAGE))
        view = importer.open_ipc_handle(handle, reserve=ROOM)
        lazy = view.array("uint8", (3 * PAGE,))
        early = np.asarray(view)
        growing.grow(2)
        view.extend(stack.enter_context(handle.extend()))
        late, again = np.asarray(view), np.asarray(lazy)
        assert (len(early), len(late), len(again)) == (3 * PAGE, 5 * PAGE, 3 * PAGE)
        late[7] = 77
        assert early[7] == again[7] == 77
        assert (late[3 * PAGE :] == 3).all()
        view.close()
        assert late[7] == early[7] == 77


def test_the_policy_goes_on(growing: Growing, importer: ze_ipc.Device) -> None:
    policy = Policy(read_only=True)
    with ExitStack() as stack:
        handle = stack.enter_context(growing.device.get_ipc_handle(growing.ptr, 3 * PAGE, policy))
        view = stack.enter_context(importer.open_ipc_handle(handle, reserve=ROOM))
        growing.grow(1)
        view.extend(stack.enter_context(handle.extend()))
        assert view.read_only
        with pytest.raises(ze_ipc.InvalidArgument):
            importer.write(view.ptr + 3 * PAGE, b"no")


def test_closed_while_it_follows(growing: Growing, importer: ze_ipc.Device) -> None:
    """Whoever is first wins; nothing is left behind either way."""
    with ExitStack() as stack:
        handle = stack.enter_context(growing.device.get_ipc_handle(growing.ptr, 3 * PAGE))
        growing.grow(1)
        longer = stack.enter_context(handle.extend())
        for _ in range(20):
            view = importer.open_ipc_handle(handle, reserve=ROOM)
            closer = threading.Thread(target=view.close)
            closer.start()
            with suppress(ze_ipc.Closed):
                view.extend(longer)
            closer.join()
            assert importer._backend.live_objects == 0  # type: ignore[attr-defined]


def test_a_failed_bind_changes_nothing(
    growing: Growing, importer: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        handle = stack.enter_context(growing.device.get_ipc_handle(growing.ptr, 3 * PAGE))
        view = stack.enter_context(importer.open_ipc_handle(handle, reserve=ROOM))
        growing.grow(1)
        longer = stack.enter_context(handle.extend())
        live = importer._backend.live_objects  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(importer._backend, "map_extents", _no_memory)
            with pytest.raises(ze_ipc.OutOfDeviceMemory):
                view.extend(longer)
        assert importer._backend.live_objects == live  # type: ignore[attr-defined]
        assert same(growing, view)
        view.extend(longer)
        assert same(growing, view)


def _no_memory(*_: object) -> None:
    raise ze_ipc.OutOfDeviceMemory("none left")
