"""A Level Zero device, where there is a loader with a driver: hardware, or the mock under it."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ze_ipc
from helpers import libraries, opener, ranges
from ze_ipc import errors, leaks
from ze_ipc.peer_process import Peer

pytest.register_assert_rewrite("device.test_ranges", "device.test_sharing")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test driver under the name of a loader."""
    return libraries.range_driver(tmp_path_factory.mktemp("range-driver") / "libze_loader.so.1")


@pytest.fixture(scope="session")
def driver() -> Iterator[None]:
    """The one place that skips: no loader, no driver or no device. What a driver starts once in a
    process (threads, descriptors) is started here.
    """
    try:
        device = ze_ipc.open_device("level_zero")
    except errors.DeviceNotVisible as error:
        if "level_zero" in os.environ.get("ZE_IPC_TEST_REQUIRE", ""):
            raise
        pytest.skip(f"no Level Zero device: {error}")
    size = max(device.page_size, 65536)
    with device, device.reserve(size) as reservation, device.physical_memory(size) as memory:
        reservation.map(memory, at=0)
        device.write(reservation.ptr, b"warm")
        device.fill(reservation.ptr, 1, 1000)
        device.copy(reservation.ptr + 4096, reservation.ptr, 3000)
        with device.get_ipc_handle(reservation.ptr, size) as handle, Peer() as peer:
            peer.call(ranges.open_device, 0, "level_zero")
            peer.call(ranges.open_view, bytes(handle))
            peer.call(ranges.close_all)
    with opener.pool(2):
        yield


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the place of the stricter one: a driver keeps pools of memory, and what it has once
    started.
    """
    if "driver" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("driver")
    before = leaks.take()
    yield
    leaks.collect()
    deadline = time.monotonic() + leaks.SETTLE_SECONDS
    while left := _ours(before, leaks.take()):
        if time.monotonic() > deadline:
            pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)
        time.sleep(0.02)


def _ours(before: leaks.Snapshot, after: leaks.Snapshot) -> list[str]:
    kept = dataclasses.replace(before, mappings=after.mappings, mock_files=after.mock_files)
    # Its threads may go seconds later; those of Python are ours.
    ours = {f"thread {thread.native_id}" for thread in threading.enumerate()}
    new = [line for line in kept.new_in(after) if "/ze-ipc-mock-" not in line]
    return [line for line in new if not line.startswith("thread ") or line in ours]


@pytest.fixture
def device(driver: None) -> Iterator[ze_ipc.Device]:
    with ze_ipc.open_device("level_zero") as opened:
        yield opened


@pytest.fixture
def xe_mock(device: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch) -> ze_ipc.Device:
    """What the contract's tests ask for; their peers open the same."""
    monkeypatch.setenv("ZE_IPC_TEST_BACKEND", "level_zero")
    return device


@pytest.fixture
def peer(driver: None) -> Iterator[Peer]:
    with Peer() as other:
        other.call(ranges.open_device, 0, "level_zero")
        yield other
        other.call(ranges.close_all)


@pytest.fixture
def make_range(
    device: ze_ipc.Device,
) -> Iterator[Callable[..., tuple[ze_ipc.Reservation, bytes]]]:
    """Makes a range of new objects, written with bytes of its own."""
    made: list[ze_ipc.Reservation] = []

    def make(
        sizes: list[int], placement: str = "device", offset: int = 0
    ) -> tuple[ze_ipc.Reservation, bytes]:
        reservation = device.reserve(sum(sizes))
        made.append(reservation)
        at = 0
        for size in sizes:
            with device.physical_memory(size + offset, placement) as memory:  # type: ignore[arg-type]
                reservation.map(memory, at=at, offset=offset, size=size)
            at += size
        data = ranges.pattern(sum(sizes), len(made))
        device.write(reservation.ptr, data)
        return reservation, data

    yield make
    for reservation in made:
        reservation.close()
