"""asyncio: opens that do not block the loop and can be cancelled, and importers as a stream."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ze_ipc
from helpers import ranges
from helpers.waiting import eventually
from ze_ipc.interop import aio
from ze_ipc.peer_process import Peer

PAGE = 4096
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
    """In a loop of its own, with a deadline."""

    async def bounded() -> T:
        return await asyncio.wait_for(work, seconds)

    return asyncio.run(bounded())


@pytest.fixture
def peer(ze_ipc_peer: Any) -> Iterator[Peer]:
    peer = ze_ipc_peer()
    peer.call(ranges.open_device)
    yield peer
    peer.call(ranges.close_all)


def _is_stopped(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


@contextmanager
def stopped(peer: Peer) -> Iterator[None]:
    """It takes connections, as the kernel does that, and says nothing."""
    os.kill(peer.pid, signal.SIGSTOP)
    try:
        # A thread that runs stops a little later.
        assert eventually(lambda: _is_stopped(peer.pid), 30)
        yield
    finally:
        os.kill(peer.pid, signal.SIGCONT)


@pytest.mark.parametrize("objects", [3, 300])
def test_opens_at_once(xe_mock: ze_ipc.Device, peer: Peer, objects: int) -> None:
    handle = peer.call(ranges.export_range, objects, PAGE, b"abc")

    async def work() -> None:
        views = await asyncio.gather(*(aio.open_ipc_handle(xe_mock, handle) for _ in range(4)))
        for view in views:
            with view:
                assert (view.size, xe_mock.read(view.ptr + PAGE, 1)) == (objects * PAGE, b"b")
        assert await aio.can_open(xe_mock, handle)

    run(work())


def test_errors_are_the_same(xe_mock: ze_ipc.Device, peer: Peer) -> None:
    handle = peer.call(ranges.export_range, 1, PAGE, b"a")
    peer.call(ranges.put_handle)

    async def work() -> None:
        with pytest.raises(ze_ipc.HandleRevoked):
            await aio.open_ipc_handle(xe_mock, handle)
        with pytest.raises(ze_ipc.InvalidHandle):
            await aio.open_ipc_handle(xe_mock, b"short")
        assert not await aio.can_open(xe_mock, handle)

    run(work())


def test_the_loop_goes_on_and_the_deadline_holds(xe_mock: ze_ipc.Device, peer: Peer) -> None:
    handle = peer.call(ranges.export_range, 2, PAGE, b"a")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    async def work() -> None:
        counting = asyncio.create_task(count())
        begun = time.monotonic()
        with pytest.raises(ze_ipc.OpenTimeout):
            await aio.open_ipc_handle(xe_mock, handle, timeout=0.3)
        assert 0.3 <= time.monotonic() - begun < 20
        counting.cancel()

    with stopped(peer):
        run(work())
    assert turns > 2


def test_a_cancelled_open_ends_at_once(xe_mock: ze_ipc.Device, peer: Peer) -> None:
    handle = peer.call(ranges.export_range, 2, PAGE, b"a")

    async def work() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(aio.open_ipc_handle(xe_mock, handle, timeout=300), 0.2)
        opening = asyncio.create_task(aio.open_ipc_handle(xe_mock, handle, timeout=300))
        while not any(sock for sock in _sockets()):
            await asyncio.sleep(0.005)
        for _ in range(3):  # also when it is told again and again
            opening.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await opening

    with stopped(peer):
        begun = time.monotonic()
        run(work())
        assert time.monotonic() - begun < 60
    # Nothing of it stands in the way of the next.
    with xe_mock.open_ipc_handle(handle) as view:
        assert xe_mock.read(view.ptr, 1) == b"a"


def _sockets() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            link = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue
        if link.startswith("socket:"):
            found.append(link)
    return found


def test_cancelled_at_any_moment(xe_mock: ze_ipc.Device, peer: Peer) -> None:
    """It was opened and closed again, or never was; nothing is left."""
    handle = peer.call(ranges.export_range, 50, PAGE, b"a")
    live = xe_mock._backend.live_objects  # type: ignore[attr-defined]

    async def work() -> None:
        for step in range(40):
            opening = asyncio.create_task(aio.open_ipc_handle(xe_mock, handle))
            await asyncio.sleep(0.0005 * step)
            if not opening.cancel():
                opening.result().close()
                continue
            with suppress(asyncio.CancelledError):
                (await opening).close()

    run(work())
    assert xe_mock._backend.live_objects == live  # type: ignore[attr-defined]


def test_more_at_once_than_the_executor_has_threads(xe_mock: ze_ipc.Device, peer: Peer) -> None:
    handle = peer.call(ranges.export_range, 2, PAGE, b"a")

    async def work() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        tasks = [asyncio.create_task(aio.open_ipc_handle(xe_mock, handle, 300)) for _ in range(5)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in found] == [asyncio.CancelledError] * 5, found

    with stopped(peer):
        run(work())


def test_following(xe_mock: ze_ipc.Device) -> None:
    async def work() -> None:
        with (
            ze_ipc.open_device("mock") as other,
            xe_mock.reserve(2 * PAGE) as reservation,
            xe_mock.physical_memory(2 * PAGE) as memory,
        ):
            reservation.map(memory, at=0, size=PAGE)
            with xe_mock.get_ipc_handle(reservation.ptr, PAGE) as handle:
                view = await aio.open_ipc_handle(other, handle, reserve=2 * PAGE)
                reservation.map(memory, at=PAGE, offset=PAGE)
                with handle.extend() as longer:
                    assert await aio.extend(view, longer) is view
                assert view.size == 2 * PAGE
                view.close()

    run(work())


def test_importers_come_and_go(xe_mock: ze_ipc.Device, ze_ipc_peer: Any) -> None:
    async def work() -> None:
        with xe_mock.reserve(PAGE) as reservation, xe_mock.physical_memory(PAGE) as memory:
            reservation.map(memory, at=0)
            handle = xe_mock.get_ipc_handle(reservation.ptr, PAGE)
            events, ended = aio.ImporterEvents(handle), aio.ImporterEvents(handle)
            await ended.aclose()
            assert [event async for event in ended] == []
            stays, dies = ze_ipc_peer(), ze_ipc_peer()
            for peer in (stays, dies):
                await asyncio.to_thread(peer.call, ranges.open_device)
                await asyncio.to_thread(peer.call, ranges.open_view, bytes(handle))
                event = await anext(events)
                assert (event.kind, event.importer.pid) == ("opened", peer.pid)
            await asyncio.to_thread(dies.kill)
            event = await anext(events)
            assert (event.kind, event.importer.pid) == ("died", dies.pid)
            handle.close()
            assert [event async for event in events] == []
            assert [event async for event in events] == []
            await asyncio.to_thread(stays.call, ranges.close_all)

    run(work())
