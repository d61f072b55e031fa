"""How an importer reaches a broker by the socket file that a handle names, and whom it believes."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import ExitStack

from ze_ipc import transport_attempt
from ze_ipc.errors import AccessDenied, ExporterGone, InvalidArgument, OpenTimeout, ZeIpcError
from ze_ipc.fds import close_fd
from ze_ipc.handle import HandleFields
from ze_ipc.os_errors import error_of_os
from ze_ipc.policy import peer_of
from ze_ipc.socket_dir import address_in, candidate_paths, open_trusted, socket_name

_CALL = "open_ipc_handle"
SEQPACKET = int(socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
FIRST_DELAY = 0.002
LONGEST_DELAY = 0.25
"""Seconds between two looks at what has no event, at first and at most."""


def dial_broker(handle: HandleFields, deadline: float) -> socket.socket:
    """A socket connected to the broker, by the file in the directory where it listens."""
    name = socket_name(handle.broker)
    searched: list[str] = []
    missing: list[str] = []
    denied: ZeIpcError | None = None
    for path in candidate_paths():
        try:
            directory, shared = open_trusted(path)
        except FileNotFoundError:
            missing.append(path)
            continue
        except AccessDenied as error:
            denied = denied or error
            continue
        try:
            sock = _connect_to(address_in(directory, name), deadline)
        finally:
            close_fd(directory)
        if sock is not None:
            # Where others may make files too, the name of a dead broker is theirs to take.
            return _trusted(sock, path) if shared else sock
        searched.append(path)
    if denied is not None and not searched:
        raise denied
    if not searched:
        raise ExporterGone(
            f"there is no broker directory {' or '.join(missing)}",
            call=_CALL,
            hint="give both processes the same ZE_IPC_DIR; in containers, mount it in both",
        )
    raise ExporterGone(
        f"nobody listens as {name} in {' or '.join(searched)}",
        call=_CALL,
        hint="keep the exporting process alive until the handle is open, and give both processes"
        " the same ZE_IPC_DIR",
        pid=handle.pid,
    )


def _connect_to(address: str, deadline: float) -> socket.socket | None:
    """A connection to a socket file; None when nobody listens there."""
    try:
        # Without O_NONBLOCK an interrupted connect() cannot be told from a finished one.
        sock = socket.socket(socket.AF_UNIX, SEQPACKET)
    except OSError as error:
        raise error_of_os(error, "socket") from error
    connected = False
    try:
        delay = FIRST_DELAY
        while (code := sock.connect_ex(address)) == errno.EAGAIN:
            # The backlog is full, for which no event exists.
            pause(delay, deadline)
            delay = min(2 * delay, LONGEST_DELAY)
        if code in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
            return None
        if code:
            raise error_of_os(OSError(code, os.strerror(code)), "connect")
        connected = True
        return sock
    finally:
        if not connected:
            sock.close()


def _trusted(sock: socket.socket, directory: str) -> socket.socket:
    """The connection, if it is to somebody whom we believe; closed otherwise."""
    with ExitStack() as undo:
        undo.callback(sock.close)
        uid = peer_of(sock).uid
        if uid in {os.geteuid(), 0, *exporter_uids()}:
            undo.pop_all()
            return sock
    raise AccessDenied(
        f"the broker is of uid {uid}, in a directory that others may write",
        call=_CALL,
        hint=f"set ZE_IPC_EXPORTER_UIDS={uid} to open what that user exports",
        directory=directory,
    )


def exporter_uids() -> set[int]:
    """The users beside root and ourselves whose brokers are believed: ZE_IPC_EXPORTER_UIDS."""
    text = os.environ.get("ZE_IPC_EXPORTER_UIDS", "")
    try:
        return {int(uid) for uid in text.replace(",", " ").split()}
    except ValueError:
        raise InvalidArgument(
            f"ZE_IPC_EXPORTER_UIDS is {text!r}", call=_CALL, hint="set it to uids, as in 1000,1001"
        ) from None


def pause(delay: float, deadline: float) -> None:
    """Wait for so many seconds, but not beyond the deadline, nor when the open is called off."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise timed_out("the exporter did not take the connection")
    transport_attempt.check()
    time.sleep(min(delay, left))
    transport_attempt.check()


def timed_out(cause: str) -> OpenTimeout:
    """The deadline of an open has passed."""
    return OpenTimeout(f"{cause} in time", call=_CALL)
