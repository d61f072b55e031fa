"""One SOCK_SEQPACKET message to or from a unix socket, with a deadline; used by both sides.

Sockets stay blocking and every call passes MSG_DONTWAIT instead: O_NONBLOCK belongs to the open
file description, which the other side may share and change; and their Python objects must have no
timeout, with which Python would wait in spite of the flag. Signals are handled and the call is
repeated (PEP 475). Fds that come uninvited are discarded by the kernel, as no room is offered.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress

_RECEIVE_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
_SEND_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class DeadlinePassed(Exception):
    """The other side did not move in time; each caller translates it."""


def send_message(
    sock: socket.socket,
    buffers: Sequence[bytes | memoryview],
    deadline: float,
    ancillary: Sequence[tuple[int, int, bytes]] = (),
) -> None:
    """Send one message made of all buffers; ConnectionError when nobody will read it."""
    while not _sent(sock, buffers, ancillary):
        wait_for(sock, select.POLLOUT, deadline)


def receive_message(sock: socket.socket, limit: int, deadline: float) -> bytes:
    """The next message: empty at the end, longer than ``limit`` bytes only to show that it was.

    A reset is looked past once: the peer closed without reading all that we sent, and what it had
    sent before is still there to be read.
    """
    while True:
        wait_for(sock, select.POLLIN, deadline)
        message = received(sock, limit + 1)
        if message is not None:
            return message


def receive_bytes(number: int, into: memoryview, message: int, deadline: float) -> int:
    """Backend.receive_bytes() for those who have no backend: 0 or -errno."""
    with socket.socket(fileno=os.dup(number)) as sock:
        while into:
            size = min(message, len(into))
            try:
                got = receive_message(sock, size, deadline)
            except DeadlinePassed:
                return -errno.ETIME
            except OSError as error:
                return -(error.errno or errno.EIO)
            if not got:
                return -errno.ECONNRESET
            if len(got) != size:
                return -errno.EBADMSG
            into[:size] = got
            into = into[size:]
    return 0


def receive_with_fds(
    sock: socket.socket, limit: int, room: int, deadline: float
) -> tuple[bytes, array[int], bool]:
    """As receive_message(), with the descriptors that came along, which are the caller's to close,
    and whether some were lost. There may be a few more of them than ``room``.
    """
    while True:
        wait_for(sock, select.POLLIN, deadline)
        fds: array[int] = array("i")
        for _ in range(2):
            try:
                message, ancillary, flags, _address = sock.recvmsg(
                    limit + 1, socket.CMSG_SPACE(room * fds.itemsize), _RECEIVE_FLAGS
                )
            except BlockingIOError:
                break
            except ConnectionResetError:
                continue
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(data[: len(data) // fds.itemsize * fds.itemsize])
            return message, fds, bool(flags & socket.MSG_CTRUNC)
        else:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


def _sent(
    sock: socket.socket,
    buffers: Sequence[bytes | memoryview],
    ancillary: Sequence[tuple[int, int, bytes]],
) -> bool:
    try:
        sock.sendmsg(buffers, ancillary, _SEND_FLAGS)
    except BlockingIOError:
        return False
    return True


def received(sock: socket.socket, size: int) -> bytes | None:
    """A message that is there already, cut to ``size`` bytes, or None."""
    for _ in range(2):
        with suppress(ConnectionResetError):
            try:
                return sock.recv(size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
    raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


def wait_for(sock: socket.socket, events: int, deadline: float) -> None:
    """Return when one of the events or a hang-up is there; DeadlinePassed at the deadline."""
    poll = select.poll()
    poll.register(sock, events)
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlinePassed
        if poll.poll(min(left, 3600) * 1000):
            return
