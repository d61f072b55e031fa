"""The pidfd system calls, raw: some builds of Python lack the one it knows, all lack the other."""

from __future__ import annotations

import ctypes
import os

_SYS_PIDFD_OPEN = 434
_SYS_PIDFD_GETFD = 438
"""Both are the same on every architecture but alpha."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def pidfd_open(pid: int) -> int:
    """An fd of the process, readable when it has ended, closed on exec; OSError."""
    return _call(_SYS_PIDFD_OPEN, pid, 0)


def pidfd_getfd(pidfd: int, number: int) -> int:
    """A duplicate of fd ``number`` of the process behind ``pidfd``, closed on exec; OSError."""
    return _call(_SYS_PIDFD_GETFD, pidfd, number, 0)


def _call(number: int, *arguments: int) -> int:
    result = _libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)
