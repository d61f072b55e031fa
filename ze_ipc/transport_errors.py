"""What a failed system call of an importer means."""

from __future__ import annotations

import errno
import resource

from ze_ipc.errors import AccessDenied, FdLimit, KernelError, ZeIpcError


def error_of_os(error: OSError, call: str) -> ZeIpcError:
    """The error to raise in its place (not raised)."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return FdLimit("no file descriptor is free", call=call, need=1, soft=soft, hard=hard)
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessDenied(call=call, errno=error.errno)
    return KernelError(call=call, errno=error.errno)
