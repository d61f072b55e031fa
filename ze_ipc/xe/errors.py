"""The one translator of the kernel's errnos into this package's errors."""

from __future__ import annotations

import errno
import resource
from typing import Any

from ze_ipc.errors import (
    DeviceLost,
    FdLimit,
    KernelError,
    OpenTimeout,
    OutOfDeviceMemory,
    OutOfHostMemory,
    PeerAccessError,
    ZeIpcError,
)

_LOST = frozenset({errno.ECANCELED, errno.EIO, errno.ENODEV})
_FDS = frozenset({errno.EMFILE, errno.ENFILE})
_MEMORY = frozenset({errno.ENOMEM, errno.ENOSPC, errno.ENOBUFS})

_HINTS = {
    errno.EACCES: "give this user the render node (group render), or run as its owner",
    errno.EPERM: "an object made private to one VM cannot be shared: make it without a VM",
    errno.EBUSY: "wait for the work that uses it, then try again",
    errno.ENOTTY: "this kernel's xe driver is older than 6.12, or the node is not an xe device",
}


def kernel_error(
    rc: int,
    call: str,
    *,
    on_device: bool = False,
    object_index: int | None = None,
    address: int | None = None,
    hint: str | None = None,
    **values: Any,
) -> ZeIpcError:
    """The error of a negative errno (not raised).

    ``call`` is the ioctl's or system call's name; ``on_device`` says that memory it lacked was
    device memory.
    """
    number = abs(rc)
    where: dict[str, Any] = {
        "call": call,
        "object_index": object_index,
        "address": address,
        "hint": hint,
    }
    if number in _FDS:
        return fd_limit(call, object_index=object_index, errno=number, **values)
    if number == errno.ETIME:
        return OpenTimeout(errno=errno.ETIMEDOUT, **where, **values)
    if number in _LOST:
        return DeviceLost(errno.errorcode[number], errno=number, **where, **values)
    if number in _MEMORY:
        cls = OutOfDeviceMemory if on_device else OutOfHostMemory
        return cls(errno.errorcode[number], errno=number, **where, **values)
    if number == errno.EOPNOTSUPP and object_index is not None:
        return PeerAccessError(
            "the memory is on another device and this one cannot reach it",
            errno=number,
            **where,
            **values,
        )
    if hint is None:
        where["hint"] = _HINTS.get(number)
    return KernelError(errno=number, **where, **values)


def fd_limit(call: str, *, need: int = 1, **values: Any) -> FdLimit:
    """The process has no descriptor left (not raised)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FdLimit(
        "no file descriptor is left", need=need, soft=soft, hard=hard, call=call, **values
    )


def exporter_error(number: int, index: int, call: str) -> ZeIpcError:
    """What an exporter says of an object that it cannot send (not raised); ``number`` is a
    stranger's word and only reported.
    """
    name = errno.errorcode.get(number, str(number))
    if number in _FDS:
        return FdLimit(
            f"the exporter ran out of file descriptors ({name})",
            need=1,
            call=call,
            object_index=index,
            errno=number,
            hint="raise RLIMIT_NOFILE (ulimit -n) of the exporting process",
        )
    return KernelError(
        f"the exporter cannot share this object: its {call} failed with {name}",
        errno=number,
        call=call,
        object_index=index,
        hint="see the exporter's log",
    )
