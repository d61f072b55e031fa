"""Ranges go through multiprocessing by themselves, and nothing else pickles them."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import ze_ipc
from helpers import mp_child
from helpers.waiting import eventually
from ze_ipc import sent_handles
from ze_ipc.interop import multiprocessing as interop

PAGE = 4096
SIZE = 3 * PAGE
DATA = bytes(range(256)) * 48
spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def device(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


@pytest.fixture
def reservation(device: ze_ipc.Device) -> Iterator[ze_ipc.Reservation]:
    with device.reserve(SIZE) as reservation:
        for index in range(3):
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=index * PAGE)
        device.write(reservation.ptr, DATA)
        yield reservation


@pytest.fixture
def view(device: ze_ipc.Device, reservation: ze_ipc.Reservation) -> Iterator[ze_ipc.ImportedRange]:
    with (
        device.get_ipc_handle(reservation.ptr + 100, SIZE - 200) as handle,
        device.open_ipc_handle(handle) as view,
    ):
        yield view


def through(thing: Any) -> Any:
    """Send it to ourselves."""
    here, there = multiprocessing.Pipe()
    with here, there:
        here.send(thing)
        return there.recv()


def test_arguments_of_a_process(device: ze_ipc.Device, reservation: ze_ipc.Reservation) -> None:
    said = spawn.Queue()
    process = spawn.Process(
        target=mp_child.write_and_say, args=(reservation, PAGE - 2, b"child", said), daemon=True
    )
    process.start()
    assert said.get(timeout=60) == "done"
    process.join(60)
    assert process.exitcode == 0
    process.close()
    said.close()
    said.join_thread()
    assert device.read(reservation.ptr + PAGE - 2, 5) == b"child"


def test_queues_there_and_back(device: ze_ipc.Device, view: ze_ipc.ImportedRange) -> None:
    questions, answers = spawn.Queue(), spawn.Queue()
    process = spawn.Process(target=mp_child.echo, args=(questions, answers), daemon=True)
    process.start()
    for _ in range(3):
        questions.put(view)
        with answers.get(timeout=60) as back:
            assert back.device.read(back.ptr, back.size) == DATA[100:-100]
            back.device.write(back.ptr, b"back")
        questions.put("received")
        assert device.read(view.ptr, 4) == b"back"
        device.write(view.ptr, DATA[100:104])
    questions.put(None)
    process.join(60)
    process.close()
    for queue in (questions, answers):
        queue.close()
        queue.join_thread()
    assert eventually(lambda: len(device._sent.handles) == 0)


def test_pools_and_executors(view: ze_ipc.ImportedRange, reservation: ze_ipc.Reservation) -> None:
    with spawn.Pool(1) as pool:
        assert pool.map(mp_child.read, [view, reservation]) == [
            ("ImportedRange", DATA[100:-100]),
            ("ImportedRange", DATA),
        ]
        # What a worker returns is nobody's there any more.
        with pool.apply(mp_child.make, (PAGE, 7)) as made:
            assert made.device.read(made.ptr, made.size) == b"\7" * PAGE
        assert pool.apply(mp_child.sizes, ([view, view, reservation],)) == [
            *(SIZE - 200, SIZE - 200, SIZE)
        ]
        pool.close()
        pool.join()
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        assert executor.submit(mp_child.read, view).result(60)[1] == DATA[100:-100]
        executor.submit(mp_child.write, view, 5, b"future").result(60)
        with executor.submit(mp_child.make, PAGE, 9).result(60) as made:
            assert bytes(memoryview(made)) == b"\t" * PAGE
    assert view.device.read(view.ptr + 5, 6) == b"future"


def test_managers(view: ze_ipc.ImportedRange) -> None:
    with spawn.Manager() as manager:
        shared = manager.dict()
        shared["view"] = view
        with shared["view"] as back:
            assert bytes(memoryview(back)) == DATA[100:-100]
        del shared["view"]


def test_the_message_holds_the_memory(device: ze_ipc.Device) -> None:
    reservation = device.reserve(PAGE)
    with device.physical_memory(PAGE) as memory:
        reservation.map(memory, at=0)
    device.write(reservation.ptr, b"sent")
    here, there = multiprocessing.Pipe()
    with here, there:
        here.send(reservation)
        reservation.close()
        assert len(device._sent.handles) == 1
        with there.recv() as view:
            assert bytes(memoryview(view)[:4]) == b"sent"
            assert eventually(lambda: len(device._sent.handles) == 0)


def test_what_nobody_receives_is_given_up(
    device: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_handles, "LINGER", 0.0)
    before = device._backend.live_objects  # type: ignore[attr-defined]
    here, there = multiprocessing.Pipe()
    with here, there:
        with device.reserve(PAGE) as reservation, device.physical_memory(PAGE) as memory:
            reservation.map(memory, at=0)
            here.send(reservation)
        assert device._backend.live_objects == before + 1  # type: ignore[attr-defined]
        device.reserve(PAGE).close()
        assert device._backend.live_objects == before  # type: ignore[attr-defined]
        with pytest.raises(ze_ipc.HandleRevoked):
            there.recv()


def test_received_too_late(reservation: ze_ipc.Reservation) -> None:
    here, there = multiprocessing.Pipe()
    with here, there:
        with (
            ze_ipc.open_device("mock") as other,
            reservation.device.get_ipc_handle(reservation.ptr, SIZE) as handle,
            other.open_ipc_handle(handle) as view,
        ):
            here.send(view)
        begun = time.monotonic()
        with pytest.raises(ze_ipc.ExporterGone):
            there.recv()
        assert time.monotonic() - begun < 10


def test_on_which_device(view: ze_ipc.ImportedRange, xe_mocks: Any) -> None:
    with through(view) as first, through(view) as second:
        # One of its own for all, which goes with the last of them.
        assert first.device is second.device
        assert first.device is not view.device
        private = first.device
    assert private.closed
    with interop.receive_on(view.device), through(view) as mine:
        assert mine.device is view.device
    with ze_ipc.open_device("mock") as other:
        with interop.receive_on(view.device), interop.receive_on(other), through(view) as last:
            assert last.device is other
        with interop.receive_on(view.device):
            with interop.receive_on(other), through(view):
                pass
            with through(view) as mine:
                assert mine.device is view.device
    # One that lies elsewhere or is closed does not count.
    with interop.receive_on(xe_mocks(2)[1]), interop.receive_on(other), through(view) as own:
        assert own.device not in (other, view.device)
    with through(view) as own:
        own.device.close()
        assert own.closed


def test_plain_pickle_is_for_handles(view: ze_ipc.ImportedRange, device: ze_ipc.Device) -> None:
    with device.get_ipc_handle(view.ptr, PAGE) as handle, device.physical_memory(PAGE) as memory:
        assert pickle.loads(pickle.dumps(handle)) == handle
        assert through(handle) == handle
        assert not through({"handle": handle})["handle"].owns_export
        for thing in (view, memory):
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                with pytest.raises(TypeError, match="get_ipc_handle"):
                    pickle.dumps(thing, protocol)
            with pytest.raises(TypeError):
                copy.copy(thing)
        for thing in (device, memory):
            with pytest.raises(TypeError):
                through(thing)


def test_what_cannot_be_sent(device: ze_ipc.Device, view: ze_ipc.ImportedRange) -> None:
    with device.reserve(2 * PAGE) as reservation, device.physical_memory(PAGE) as memory:
        reservation.map(memory, at=0)
        with pytest.raises(ze_ipc.AddressNotFound) as caught:
            through(reservation)
        assert caught.value.address == reservation.ptr + PAGE
    for closed in (reservation, view):
        closed.close()
        with pytest.raises(ze_ipc.Closed):
            through(closed)


def test_fork(view: ze_ipc.ImportedRange) -> None:
    here, there = multiprocessing.Pipe()
    with here, there, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork() beside threads
        here.send(view)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for use in (
                    lambda: memoryview(view),
                    lambda: through(view),
                    view.array().__dlpack__,
                ):
                    with pytest.raises(ze_ipc.ForkedProcess) as caught:
                        use()
                    assert "spawn" in caught.value.hint
                with there.recv() as mine:
                    mine.device.write(mine.ptr, b"forked")
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert view.device.read(view.ptr, 6) == b"forked"
