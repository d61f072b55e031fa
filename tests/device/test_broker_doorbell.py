"""What may come over the doorbell: one connected socket of whoever rings, and nothing else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from helpers.broker_fakes import FakeExport, expected, fd_count, open_range
from helpers.waiting import eventually
from ze_ipc import transport_pidfd
from ze_ipc.broker import Broker
from ze_ipc.broker_limits import Limits
from ze_ipc.broker_protocol import DOORBELL, doorbell_name
from ze_ipc.errors import OpenTimeout
from ze_ipc.fds import send_fds
from ze_ipc.transport import connect


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(limits=Limits(handshake_seconds=0.5)) as broker:
        yield broker


def near(broker: Broker) -> socket.socket:
    """A duplicate of the end that importers take."""
    sock = socket.socket(fileno=os.dup(broker.address.doorbell))
    assert sock.getsockname() == doorbell_name(broker.address.broker)
    return sock


def test_wrong_rings_are_dropped(broker: Broker) -> None:
    export = FakeExport(2)
    handle = broker.handle_fields(*broker.register(export))
    fds = fd_count()
    with ExitStack() as stack:
        door = stack.enter_context(near(broker))

        def keep(sock: socket.socket) -> socket.socket:
            return stack.enter_context(sock)

        unix = socket.AF_UNIX
        one, other = map(keep, socket.socketpair(unix, socket.SOCK_SEQPACKET))
        stream, _ = map(keep, socket.socketpair(unix, socket.SOCK_STREAM))
        inet = keep(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        lonely = keep(socket.socket(unix, socket.SOCK_SEQPACKET))
        listening = keep(socket.socket(unix, socket.SOCK_SEQPACKET))
        listening.bind(b"")
        listening.listen(1)
        read, write = os.pipe()
        stack.callback(os.close, read)
        stack.callback(os.close, write)
        path = os.open("/proc/self", os.O_PATH)
        stack.callback(os.close, path)
        for message, rights in [
            (DOORBELL, []),
            (DOORBELL, [one.fileno(), other.fileno()]),
            (DOORBELL, [one.fileno()] * 200),
            (DOORBELL + b"x", [one.fileno()]),
            (b"ZB02", [one.fileno()]),
            (b"x" * 1000, []),
            (DOORBELL, [stream.fileno()]),
            (DOORBELL, [inet.fileno()]),
            (DOORBELL, [read]),
            (DOORBELL, [lonely.fileno()]),
            (DOORBELL, [listening.fileno()]),
            (DOORBELL, [door.fileno()]),
            (DOORBELL, [path]),
        ]:
            send_fds(door, message, rights)
        assert open_range(handle, transport="pidfd") == expected(export)
    assert eventually(lambda: fd_count() <= fds + 1)
    assert not broker._listener._pending


@pytest.mark.parametrize("word", [b"", b"nonsense"])
def test_both_ends_of_one_pair(word: bytes) -> None:
    """The broker is its own peer then, and ends that."""
    with Broker(limits=Limits(handshake_seconds=0.2)) as broker:
        fds = fd_count()
        with near(broker) as door:
            one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with one, other:
                send_fds(door, DOORBELL, [one.fileno()])
                send_fds(door, DOORBELL, [other.fileno()])
                if word:
                    other.send(word)
                else:
                    assert eventually(lambda: len(broker._listener._pending) == 2)
        assert eventually(lambda: fd_count() == fds)
        assert not broker._listener._pending


def test_doorbell_that_nobody_answers(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that stays full ends at the deadline."""
    handle = broker.handle_fields(*broker.register(FakeExport()))
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        other.bind(b"\0ze_ipc-test-doorbell")
        name = other.getsockname()
        monkeypatch.setattr(transport_pidfd, "doorbell_name", lambda broker_id: name)
        monkeypatch.setattr(
            transport_pidfd,
            "_take_doorbell",
            lambda *_: socket.socket(fileno=os.dup(other.fileno())),
        )
        try:
            while True:
                other.send(bytes(1000), socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        begun = time.monotonic()
        with pytest.raises(OpenTimeout):
            connect(handle, begun + 0.2, transport="pidfd")
        assert time.monotonic() - begun < 2
