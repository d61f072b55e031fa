"""What a failed system call means to whoever opens or serves a handle."""

from __future__ import annotations

import errno
import os
import resource

from ze_ipc.errors import AccessDenied, FdLimit, KernelError, OutOfHostMemory, ZeIpcError


def error_of_os(
    error: OSError, call: str, cause: str = "", *, hint: str | None = None
) -> ZeIpcError:
    """The error to raise in its place (not raised); ``hint`` is for what has no own class."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return FdLimit("no file descriptor is free", call=call, need=1, soft=soft, hard=hard)
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessDenied(cause, call=call, errno=error.errno)
    if error.errno in (errno.ENOMEM, errno.ENOBUFS):
        words = cause or os.strerror(error.errno)
        return OutOfHostMemory(words, call=call, errno=error.errno)
    return KernelError(cause, call=call, errno=error.errno, hint=hint)
