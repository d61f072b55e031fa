"""The second way to a broker: take its doorbell by pidfd_getfd, and ring with a socket of our own.

For processes that share no directory. It needs the right to ptrace the exporter (same user and
Yama 0, or CAP_SYS_PTRACE, and no seccomp filter in the way) and the exporter's pid as we see it, so
it is used only where ZE_IPC_TRANSPORT=pidfd asks for it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from ze_ipc.broker_messages import DeadlinePassed, send_message
from ze_ipc.broker_protocol import DOORBELL, doorbell_name
from ze_ipc.errors import (
    ExporterGone,
    OpenTimeout,
    TransportDenied,
    UnsupportedFeature,
    ZeIpcError,
)
from ze_ipc.fds import Fd
from ze_ipc.handle import HandleFields
from ze_ipc.host import seccomp_mode, yama_scope
from ze_ipc.os_errors import error_of_os
from ze_ipc.pidfd import pidfd_getfd, pidfd_open

_CALL = "open_ipc_handle"


def dial_by_pidfd(handle: HandleFields, deadline: float) -> socket.socket:
    """A socket whose other end the handle's broker has been sent."""
    if handle.doorbell is None:
        raise UnsupportedFeature(
            "the exporter has no doorbell", call=_CALL, hint="use ZE_IPC_TRANSPORT=broker"
        )
    doorbell = _take_doorbell(handle.pid, handle.doorbell)
    with doorbell:
        # The pid is advisory: this may be another process, and another socket, by now.
        try:
            name = doorbell.getsockname()
        except OSError as error:
            raise error_of_os(error, "getsockname") from error
        if name != doorbell_name(handle.broker):
            raise _gone("fd {doorbell} of process {pid} is not the exporter's doorbell", handle)
        try:
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise error_of_os(error, "socketpair") from error
        with far:
            try:
                near.setblocking(True)
                _ring(doorbell, far, deadline)
            except BaseException as error:
                near.close()
                if isinstance(error, ConnectionError):
                    raise _gone("process {pid} does not answer its doorbell", handle) from error
                if isinstance(error, DeadlinePassed):
                    raise OpenTimeout("the doorbell was not answered", call=_CALL) from None
                if isinstance(error, OSError):
                    raise error_of_os(error, "sendmsg") from error
                raise
        return near


def obstacle() -> str | None:
    """What keeps this process from taking the doorbells of its user's processes: "seccomp",
    "kernel" (too old), "yama N"; None: nothing that can be known beforehand.
    """
    try:
        with Fd(pidfd_open(os.getpid())) as ours, Fd(pidfd_getfd(ours.fileno(), ours.fileno())):
            scope = yama_scope()
            return f"yama {scope}" if scope else None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise error_of_os(error, "pidfd_open") from error
        return "seccomp" if seccomp_mode() else "kernel"


def _ring(doorbell: socket.socket, far: socket.socket, deadline: float) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", far.fileno()))
    send_message(doorbell, [DOORBELL], deadline, [rights])


def _take_doorbell(pid: int, number: int) -> socket.socket:
    try:
        pidfd = Fd(pidfd_open(pid))
    except OSError as error:
        raise _error_of(error, "pidfd_open", pid, number) from error
    with pidfd:
        try:
            taken = Fd(pidfd_getfd(pidfd.fileno(), number))
        except OSError as error:
            raise _error_of(error, "pidfd_getfd", pid, number) from error
    with taken:
        try:
            doorbell = socket.socket(fileno=taken.fileno())
        except OSError as error:
            raise ExporterGone(
                f"fd {number} of process {pid} is not a doorbell", call=_CALL
            ) from error
        taken.detach()
    doorbell.setblocking(True)
    return doorbell


def _gone(cause: str, handle: HandleFields) -> ExporterGone:
    return ExporterGone(cause.format(pid=handle.pid, doorbell=handle.doorbell), call=_CALL)


def _error_of(error: OSError, call: str, pid: int, number: int) -> ZeIpcError:
    if error.errno == errno.ESRCH:
        return ExporterGone(f"there is no process {pid}", call=_CALL)
    if error.errno == errno.EBADF:
        return ExporterGone(f"process {pid} has no doorbell {number} any more", call=_CALL)
    if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        return _denied(error, call, pid)
    return error_of_os(error, call)


def _denied(error: OSError, call: str, pid: int) -> ZeIpcError:
    yama, seccomp = yama_scope(), seccomp_mode()
    if error.errno == errno.ENOSYS and not seccomp:
        return UnsupportedFeature(
            f"this kernel has no {call}", call=call, hint="use ZE_IPC_TRANSPORT=broker"
        )
    if seccomp:
        fix = "docker run --cap-add SYS_PTRACE, or ZE_IPC_TRANSPORT=broker"
    elif yama == 1:
        fix = f"in process {pid}: ze_ipc.security.allow_ptracer({os.getpid()})"
    elif yama:
        fix = "give this process CAP_SYS_PTRACE, or ZE_IPC_TRANSPORT=broker"
    else:
        fix = "run both processes as the same user, or ZE_IPC_TRANSPORT=broker"
    return TransportDenied(
        f"{call} on process {pid} is forbidden",
        call=call,
        errno=error.errno,
        hint=fix,
        syscall=call,
        yama="none" if yama is None else yama,
        seccomp=seccomp,
    )
