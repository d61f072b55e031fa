"""Connected sockets that importers hand to a broker whose socket file they cannot reach."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator, Sequence

from ze_ipc.broker_protocol import DOORBELL
from ze_ipc.fds import Fd
from ze_ipc.policy import Peer, peer_of

_log = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("3i")
_AT_ONCE = 16
_Ancillary = Sequence[tuple[int, int, bytes]]


def rings(far: socket.socket) -> Iterator[socket.socket]:
    """What has come over the doorbell and is the sender's own: each socket is the caller's.

    Some are taken at once; for more, the doorbell stays readable.
    """
    space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(16)
    for _ in range(_AT_ONCE):
        try:
            message, ancillary, flags, _address = far.recvmsg(
                len(DOORBELL) + 1, space, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError as error:
            _log.warning("a ring cannot be taken now: %s", error)
            return
        sock = _rung(message, ancillary, bool(flags & socket.MSG_CTRUNC))
        if sock is not None:
            yield sock


def _rung(message: bytes, ancillary: _Ancillary, cut: bool) -> socket.socket | None:
    """The socket of one ring, if all is as it must be."""
    fds: list[Fd] = []
    sender: Peer | None = None
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds += [Fd(fd) for (fd,) in struct.iter_unpack("i", data[: len(data) // 4 * 4])]
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            sender = Peer(*_CREDENTIALS.unpack(data))
    try:
        if message != DOORBELL or len(fds) != 1 or cut:
            _log.info("a ring that is none from %s", sender)
            return None
        sock = _connected_socket(fds[0])
    finally:
        for fd in fds:
            fd.close()
    if sock is None:
        _log.info("a ring without a socket of its own from %s", sender)
        return None
    try:
        owned = sender is not None and sender.uid == peer_of(sock).uid
    except OSError:
        owned = False
    if owned:
        return sock
    _log.info("a ring with a socket of somebody else from %s", sender)
    sock.close()
    return None


def _connected_socket(fd: Fd) -> socket.socket | None:
    """The socket behind a received fd, if it is one of ours to talk over; it owns the fd then."""
    try:
        sock = socket.socket(fileno=fd.fileno())
    except OSError:
        return None
    fd.detach()
    if sock.family == socket.AF_UNIX and sock.type == socket.SOCK_SEQPACKET:
        return sock
    sock.close()
    return None
