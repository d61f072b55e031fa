"""What is answered without Python is refused, ended and forgotten exactly as by Python."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import threading
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import ze_ipc
from helpers.broker_fakes import fd_count
from helpers.pages import PAGE, pages_of
from helpers.waiting import eventually
from ze_ipc.broker import Broker
from ze_ipc.broker_limits import Limits
from ze_ipc.device import Device
from ze_ipc.errors import AccessDenied, ExporterGone, HandleRevoked, ZeIpcError
from ze_ipc.export import Export
from ze_ipc.handle import HandleFields
from ze_ipc.peer_process import Peer
from ze_ipc.policy import Policy
from ze_ipc.transport import Connection, connect

MANY = 600
"""Objects: more than fit into an answer, and into what is on its way unacknowledged."""


@pytest.fixture
def importer(xe_mock: Device) -> Iterator[Device]:
    with ze_ipc.open_device("mock") as device:
        yield device


def export_of(device: Device, count: int) -> tuple[Export, array[int]]:
    """An export for a broker of our own, which gives its objects back when it is retired."""
    backend = device._backend
    objects = backend.create_objects(PAGE, "device", count)  # type: ignore[attr-defined]
    return Export(
        backend, b"m" * 100, objects, PAGE, count * PAGE, Policy(), lambda call: call()
    ), objects


def answered(broker: Broker | None) -> int:
    assert broker is not None
    assert broker._desk is not None
    return broker._desk.answered


def ask(handle: bytes, *, room: int = 0, skip_objects: bool = False) -> Connection:
    """A connection that was answered."""
    connection = connect(HandleFields.unpack(handle), time.monotonic() + 10)
    try:
        connection.request(room=room, skip_objects=skip_objects)
    except BaseException:
        connection.close()
        raise
    return connection


def next_message(connection: Connection) -> bytes:
    """What the broker says next; empty at the end."""
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        sock.settimeout(10)
        return sock.recv(100)


@pytest.mark.parametrize("count", [1, 64, 65, MANY, 3000])
def test_plain_opens_are_answered_at_the_desk(
    xe_mock: Device, importer: Device, count: int
) -> None:
    with pages_of(xe_mock, count) as reservation:
        before = fd_count()
        with xe_mock.get_ipc_handle(reservation.ptr, reservation.size) as handle:
            for turn in (1, 2, 3):
                with (
                    importer.open_ipc_handle(handle, 60) as view,
                    importer.open_ipc_handle(handle, 60) as again,
                ):
                    assert (view.objects, view.transport) == (count, "broker")
                    assert (again.objects, again.transport) == (count, "cached")
                    assert eventually(lambda: [i.opens for i in handle.importers()] == [2])
                assert answered(xe_mock._broker) == 2 * turn
                assert eventually(lambda: handle.importers() == [])
        # The broker's own descriptors stay, and the device's one at most.
        assert eventually(lambda: fd_count() <= before + 12)


def test_whatever_a_policy_asks_is_for_python(xe_mock: Device) -> None:
    policies = (
        Policy(uids=frozenset({os.geteuid()})),
        Policy(pids=frozenset({os.getpid()})),
        Policy(max_opens=9),
        Policy(not_after=time.monotonic() + 60),
    )
    with Broker(open_desk=xe_mock._backend.open_desk) as broker:
        for policy in policies:
            export, objects = export_of(xe_mock, 1)
            ask(broker.serve(export, objects, policy), room=1).close()
        assert answered(broker) == 0
        export, objects = export_of(xe_mock, 1)
        ask(broker.serve(export, objects), room=1).close()
        assert answered(broker) == 1


def test_refusals_are_pythons(xe_mock: Device) -> None:
    """Another secret, another broker's handle, a check: none of them at the desk."""
    with Broker(open_desk=xe_mock._backend.open_desk) as broker:
        export, objects = export_of(xe_mock, 1)
        fields = HandleFields.unpack(broker.serve(export, objects))
        for bit in (0, 64, 127):
            secret = int.from_bytes(fields.secret, "little") ^ 1 << bit
            wrong = replace(fields, secret=secret.to_bytes(16, "little"))
            with pytest.raises(AccessDenied):
                ask(wrong.pack(), room=1)
        with pytest.raises(HandleRevoked):
            ask(replace(fields, generation=fields.generation + 1).pack(), room=1)
        with connect(fields, time.monotonic() + 10) as connection:
            assert connection.check().object_count == 1
        assert answered(broker) == 0


@pytest.mark.parametrize("request_bytes", [b"", b"Z", bytes(72), b"ZQ01" + bytes(68), bytes(200)])
def test_requests_that_are_none(xe_mock: Device, request_bytes: bytes) -> None:
    limits = Limits(handshake_seconds=0.2)
    with Broker(open_desk=xe_mock._backend.open_desk, limits=limits) as broker:
        export, objects = export_of(xe_mock, 1)
        handle = HandleFields.unpack(broker.serve(export, objects))
        with connect(handle, time.monotonic() + 10) as connection:
            if request_bytes:
                os.write(connection.fileno(), request_bytes)
            answer = next_message(connection)
        # Silence is ended without a word; what is said is answered.
        assert bool(answer) == bool(request_bytes)
        ask(handle.pack(), room=1).close()
        assert answered(broker) == 1


def test_a_request_that_comes_late(xe_mock: Device) -> None:
    """Later than the desk waits: then Python waits for it."""
    with Broker(open_desk=xe_mock._backend.open_desk) as broker:
        export, objects = export_of(xe_mock, 1)
        handle = HandleFields.unpack(broker.serve(export, objects))
        with connect(handle, time.monotonic() + 10) as connection:
            assert eventually(lambda: bool(broker._listener._pending))
            assert connection.request(room=1).object_count == 1


@pytest.mark.parametrize("count", [1, MANY])
def test_nobody_opens_after_the_handle_was_put(
    xe_mock: Device, importer: Device, count: int
) -> None:
    """Openers race with close(): an open that begins when it has returned never succeeds."""
    refused = 0
    with pages_of(xe_mock, count) as reservation, ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            put = threading.Event()
            handle = xe_mock.get_ipc_handle(reservation.ptr, reservation.size)
            raw = bytes(handle)

            def open_on(raw: bytes = raw, put: threading.Event = put) -> list[tuple[bool, bool]]:
                """(it began when the handle was put, it succeeded), until one fails."""
                seen = [(False, True)]
                while seen[-1][1]:
                    late = put.is_set()
                    try:
                        importer.open_ipc_handle(raw, 60).close()
                    except HandleRevoked:
                        seen.append((late, False))
                    else:
                        seen.append((late, True))
                return seen

            futures = [pool.submit(open_on) for _ in range(2)]
            eventually(lambda raw=raw: bool(xe_mock._importers(raw)), 0.2)  # type: ignore[misc]
            handle.close()
            put.set()
            for future in futures:
                seen = future.result(60)
                assert (True, True) not in seen
                refused += 1
        assert refused == 40
    assert eventually(lambda: importer._backend.live_objects == 0)  # type: ignore[attr-defined]


def test_a_stream_goes_on_when_the_handle_is_put(xe_mock: Device) -> None:
    """The objects are given back when it has ended."""
    with Broker(open_desk=xe_mock._backend.open_desk) as broker:
        export, objects = export_of(xe_mock, MANY)
        handle = broker.serve(export, objects)
        generation, live = HandleFields.unpack(handle).generation, xe_mock._backend.live_objects  # type: ignore[attr-defined]
        with ask(handle) as connection:
            assert broker.revoke(generation)
            with pytest.raises(HandleRevoked):
                ask(handle)
            assert xe_mock._backend.live_objects == live  # type: ignore[attr-defined]
            connection.manifest()
            sizes = array("Q", [PAGE] * MANY)
            # The same file gets the same handles.
            mine = xe_mock._backend.receive_objects(
                connection.fileno(), sizes, time.monotonic() + 20
            )
            connection.finish()
        xe_mock._backend.release_objects(mine)
        assert eventually(lambda: xe_mock._backend.live_objects == live - MANY)  # type: ignore[attr-defined]
        assert answered(broker) == 1


@pytest.mark.parametrize("count", [1, MANY])
def test_interrupt_ends_what_was_begun(xe_mock: Device, count: int) -> None:
    with Broker(open_desk=xe_mock._backend.open_desk) as broker:
        export, objects = export_of(xe_mock, count)
        handle = broker.serve(export, objects)
        with ask(handle, room=1) as connection:
            broker.revoke(HandleFields.unpack(handle).generation, interrupt=True)
            assert next_message(connection) == b""
        assert eventually(lambda: xe_mock._backend.live_objects == 0)  # type: ignore[attr-defined]


def test_close_waits_for_nobody(xe_mock: Device) -> None:
    """Peers in every state: silent, answered, in the middle of a stream."""
    with Broker(open_desk=xe_mock._backend.open_desk) as broker:
        small, few = export_of(xe_mock, 1)
        large, many = export_of(xe_mock, MANY)
        handles = broker.serve(small, few), broker.serve(large, many)
        connections = [
            connect(HandleFields.unpack(handles[0]), time.monotonic() + 10),
            ask(handles[0], room=1),
            ask(handles[0], skip_objects=True),
            *(ask(handles[1]) for _ in range(3)),
        ]
        begun = time.monotonic()
    assert time.monotonic() - begun < 4
    for connection in connections:
        connection.close()
    assert xe_mock._backend.live_objects == 0  # type: ignore[attr-defined]
    with pytest.raises(ExporterGone):
        ask(handles[0])


def test_too_many_that_say_nothing(xe_mock: Device) -> None:
    """Beyond its bounds the desk leaves them to Python, which serves them too."""
    limits = Limits(heard=8, threads=8, threads_a_peer=8)
    with Broker(open_desk=xe_mock._backend.open_desk, limits=limits) as broker:
        small, few = export_of(xe_mock, 1)
        large, many = export_of(xe_mock, MANY)
        handles = broker.serve(small, few), broker.serve(large, many)
        connections = [ask(handles[1]) for _ in range(4)]
        assert answered(broker) == 2
        connections += [ask(handles[0], room=1) for _ in range(4)]
        assert answered(broker) == 4
        for connection in connections:
            connection.close()
        assert eventually(lambda: not broker._running())
        ask(handles[0], room=1).close()
        assert answered(broker) == 5


def test_a_peer_that_says_nothing_after_the_answer(xe_mock: Device) -> None:
    limits = Limits(last_word_seconds=0.2)
    with Broker(open_desk=xe_mock._backend.open_desk, limits=limits) as broker:
        export, objects = export_of(xe_mock, 1)
        handle = broker.serve(export, objects)
        with ask(handle, room=1) as connection:
            assert next_message(connection) == b""
        assert broker.importers(HandleFields.unpack(handle).generation) == []


def open_and_hold(state: dict[str, object], handle: bytes) -> int:
    state["device"] = device = ze_ipc.open_device("mock")
    state["view"] = view = device.open_ipc_handle(handle)
    return view.objects


def test_importers_in_another_process(xe_mock: Device) -> None:
    """They are known, and their end is."""
    with (
        pages_of(xe_mock, 3) as reservation,
        xe_mock.get_ipc_handle(reservation.ptr, reservation.size) as handle,
        Peer() as peer,
    ):
        assert peer.call(open_and_hold, bytes(handle)) == 3
        assert answered(xe_mock._broker) == 1
        assert eventually(lambda: [i.pid for i in handle.importers()] == [peer.pid])
        peer.kill()
        assert eventually(lambda: handle.importers() == [])


class PollFd(ctypes.Structure):
    """struct pollfd."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


@pytest.mark.parametrize("count", [1, MANY])
def test_a_busy_interpreter_keeps_nobody_waiting(xe_mock: Device, count: int) -> None:
    """The exporter serves a whole open while one of its threads keeps the GIL."""
    poll = ctypes.PyDLL(None).poll  # ctypes.CDLL would give it up
    with (
        pages_of(xe_mock, count) as reservation,
        xe_mock.get_ipc_handle(reservation.ptr, reservation.size) as handle,
        Peer() as peer,
    ):
        peer.start(open_and_hold, bytes(handle))
        answer = PollFd(peer._pipe.fileno(), select.POLLIN)
        assert poll(ctypes.byref(answer), ctypes.c_ulong(1), ctypes.c_int(20_000)) == 1
        assert peer.result() == count


def test_errors_leave_nothing(xe_mock: Device, importer: Device) -> None:
    """An open that fails after the answer is no importer."""
    with (
        pages_of(xe_mock, 2) as reservation,
        xe_mock.get_ipc_handle(reservation.ptr, reservation.size) as handle,
    ):
        with pytest.raises(ZeIpcError):
            importer.open_ipc_handle(handle, 0.0)
        ask(bytes(handle), room=2).close()
        with importer.open_ipc_handle(handle):
            assert eventually(lambda: [entry.opens for entry in handle.importers()] == [1])
