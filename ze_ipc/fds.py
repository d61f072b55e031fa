"""File descriptors with one owner, and their way over unix sockets."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
import struct
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType

from ze_ipc.errors import Closed, FdLimit, KernelError

MAX_FDS_A_MESSAGE = 253
"""SCM_MAX_FD: one more is EINVAL."""

_FD_SIZE = struct.calcsize("i")


class Fd:
    """Owns one file descriptor: close() closes it once, detach() hands it over.

    The number is forgotten before the system call, for after close(2) it may already be somebody
    else's, even if the call reports an error.
    """

    __slots__ = ("__weakref__", "_number")

    def __init__(self, number: int) -> None:
        self._number = -1
        if number < 0:
            raise ValueError(f"not a file descriptor: {number}")
        self._number = number

    @classmethod
    def duplicate(cls, number: int) -> Fd:
        """A new descriptor of the same open file, closed on exec."""
        try:
            return cls(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 0))
        except OSError as error:
            raise KernelError(call="fcntl(F_DUPFD_CLOEXEC)", errno=error.errno, fd=number) from None

    def fileno(self) -> int:
        """The number, which stays ours; Closed after close() or detach()."""
        if self._number < 0:
            raise Closed("the file descriptor was closed or handed over", call="Fd.fileno")
        return self._number

    @property
    def closed(self) -> bool:
        """Whether it was closed or handed over."""
        return self._number < 0

    def detach(self) -> int:
        """The number, to be closed by the caller from now on."""
        number = self.fileno()
        self._number = -1
        return number

    def close(self) -> None:
        """Close it; again is no error."""
        number, self._number = self._number, -1
        if number >= 0:
            close_fd(number)

    def __enter__(self) -> Fd:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._number >= 0:
            warnings.warn(f"collected open: {self!r}", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def __repr__(self) -> str:
        return "<Fd closed>" if self._number < 0 else f"<Fd {self._number}>"


def close_fd(number: int) -> None:
    """Close a descriptor: whatever close(2) reports, but EBADF, Linux has closed it."""
    try:
        os.close(number)
    except OSError as error:
        if error.errno == errno.EBADF:
            raise


def close_all(fds: Iterable[Fd]) -> None:
    """Close every one, also if closing one of them fails."""
    with ExitStack() as stack:
        for fd in fds:
            stack.callback(fd.close)


def send_fds(sock: socket.socket, data: bytes, fds: Sequence[Fd | int] = ()) -> None:
    """Send one message with descriptors, which stay the sender's; at most MAX_FDS_A_MESSAGE."""
    numbers = [fd if isinstance(fd, int) else fd.fileno() for fd in fds]
    rights = struct.pack(f"{len(numbers)}i", *numbers)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if numbers else []
    sent = sock.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)
    if sent != len(data):
        raise KernelError("the message was cut", call="sendmsg", errno=errno.EMSGSIZE, sent=sent)


def receive_fds(
    sock: socket.socket, size: int, max_fds: int = 0, flags: int = 0
) -> tuple[bytes, list[Fd]]:
    """One message of at most ``size`` bytes with at most ``max_fds`` descriptors, closed on exec.

    FdLimit if the kernel could not install all of them, KernelError (EMSGSIZE) if there is more of
    either than asked for; in both cases none stays open. Empty bytes are the end of the stream.
    """
    data, ancillary, message_flags, _ = sock.recvmsg(
        size,
        socket.CMSG_SPACE(max_fds * _FD_SIZE) if max_fds else 0,
        flags | socket.MSG_CMSG_CLOEXEC,
    )
    fds: list[Fd] = []
    try:
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = len(payload) // _FD_SIZE * _FD_SIZE
                fds += [Fd(number) for (number,) in struct.iter_unpack("i", payload[:whole])]
        if message_flags & socket.MSG_CTRUNC and len(fds) < max_fds:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            raise FdLimit(
                "not every received file descriptor could be installed",
                call="recvmsg",
                need=max_fds,
                soft=soft,
                hard=hard,
                got=len(fds),
            )
        if message_flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC) or len(fds) > max_fds:
            raise KernelError(
                "more came than was asked for",
                call="recvmsg",
                errno=errno.EMSGSIZE,
                size=size,
                max_fds=max_fds,
            )
    except BaseException:
        close_all(fds)
        raise
    return data, fds
