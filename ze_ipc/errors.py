"""Every way this package says no: one class a cause, each with its Level Zero code, its values and
the one thing that fixes it.

Errors that a ``ze_result_t`` names carry that code; the others carry the code that a Level Zero
caller would be told. All of them survive pickling, so that they cross ``multiprocessing`` whole.
"""

from __future__ import annotations

import errno as _errno
import os
from enum import IntEnum
from typing import Any, ClassVar

from ze_ipc.result import Result as Result

_HEX_VALUES = frozenset({"address", "end", "ptr", "start", "va", "dst", "src"})


def _show(name: str, value: object) -> str:
    if isinstance(value, bytes):
        return f"{name}={value.hex()}"
    if isinstance(value, int) and not isinstance(value, IntEnum) and name in _HEX_VALUES:
        return f"{name}={value:#x}"
    return f"{name}={value}"


class ZeIpcError(Exception):
    """The root; ``values`` holds what the failing call was given and what it found.

    The constructor is the same for all: the cause in words, then keywords. Unknown keywords become
    ``values`` and are printed in the message (addresses in hex).
    """

    default_result: ClassVar[Result] = Result.UNKNOWN
    default_hint: ClassVar[str] = ""

    result: Result
    """What a Level Zero caller is told."""
    cause: str
    call: str
    """The API call, ioctl or driver function that failed; may be empty."""
    hint: str
    """The one thing that fixes it; may be empty."""
    address: int | None
    """GPU VA the error is about."""
    object_index: int | None
    """Index of the failing object in the order of the window (an import's order), or None."""
    values: dict[str, object]

    def __init__(
        self,
        cause: str = "",
        *,
        call: str = "",
        hint: str | None = None,
        address: int | None = None,
        object_index: int | None = None,
        result: int | None = None,
        **values: object,
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.call = call
        self.hint = self.default_hint if hint is None else hint
        self.address = address
        self.object_index = object_index
        self.result = self.default_result if result is None else Result(result)
        self.values = values

    def _shown_values(self) -> dict[str, object]:
        shown = {"address": self.address, "object_index": self.object_index, **self.values}
        return {name: value for name, value in shown.items() if value is not None}

    def __str__(self) -> str:
        text = self.cause or type(self).__name__
        if self.call:
            text = f"{self.call}: {text}"
        if shown := self._shown_values():
            text += f" [{', '.join(_show(name, value) for name, value in shown.items())}]"
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            "call": self.call,
            "hint": self.hint,
            "address": self.address,
            "object_index": self.object_index,
            "result": int(self.result),
            **self.values,
        }
        return _rebuild, (type(self), self.cause, fields)


def _rebuild(cls: type[ZeIpcError], cause: str, fields: dict[str, Any]) -> ZeIpcError:
    return cls(cause, **fields)


class AddressNotFound(ZeIpcError):
    """Part of the range is not mapped; ``address`` is the first such byte, ``end`` the end of that
    hole.
    """

    default_result = Result.ADDRESS_NOT_FOUND
    default_hint = "map physical memory there, or ask for a range that ends before the hole"

    @property
    def end(self) -> int | None:
        """End of the hole, or None where it is not known."""
        end = self.values.get("end")
        return end if isinstance(end, int) else None


class InvalidSize(ZeIpcError):
    """A size of 0, or one that is not what the object or the page size allows."""

    default_result = Result.INVALID_SIZE
    default_hint = "pass a size in bytes that is greater than 0"


class UnsupportedSize(ZeIpcError):
    """The range, or the number of its objects, cannot be carried."""

    default_result = Result.UNSUPPORTED_SIZE
    default_hint = "share the range in several handles"


class UnsupportedAlignment(ZeIpcError):
    """An address, offset or size is not a multiple of the page size where it must be one."""

    default_result = Result.UNSUPPORTED_ALIGNMENT
    default_hint = "use multiples of the device's page size"


class InvalidNullPointer(ZeIpcError):
    """The address is 0."""

    default_result = Result.INVALID_NULL_POINTER
    default_hint = "pass an address inside a mapped reservation"


class InvalidArgument(ZeIpcError):
    """The arguments contradict each other or the state; for an export: the window touches a USM
    allocation.
    """

    default_result = Result.INVALID_ARGUMENT


class UnsupportedFeature(ZeIpcError):
    """The device or its driver cannot do this at all."""

    default_result = Result.UNSUPPORTED_FEATURE


class OutOfDeviceMemory(ZeIpcError):
    """No device memory, or no GPU virtual address range of that size."""

    default_result = Result.OUT_OF_DEVICE_MEMORY
    default_hint = "free device memory or ask for less"


class OutOfHostMemory(ZeIpcError):
    """No host memory, or no host address space."""

    default_result = Result.OUT_OF_HOST_MEMORY
    default_hint = "free host memory or ask for less"


class DeviceLost(ZeIpcError):
    """The GPU was reset, wedged or unplugged; everything on it is gone."""

    default_result = Result.DEVICE_LOST
    default_hint = "close the device and open it again; see the kernel log for the reason"


class HandleObjectInUse(ZeIpcError):
    """The object cannot go while something still needs it."""

    default_result = Result.HANDLE_OBJECT_IN_USE
    default_hint = "unmap or close what uses it first"


class DriverError(ZeIpcError):
    """A driver's ze_result_t that has no class of its own; ``result`` is its code,
    ``values['code']`` the raw number.
    """


class Closed(ZeIpcError):
    """The owner was used after close()."""

    default_result = Result.INVALID_NULL_HANDLE
    default_hint = "use it inside its with block, or before close()"


class InvalidHandle(ZeIpcError, ValueError):
    """These bytes are not a handle of ours, or were damaged; found before any system call."""

    default_result = Result.INVALID_ARGUMENT
    default_hint = "pass the 64 bytes of bytes(handle), unchanged"


class HandleRevoked(ZeIpcError):
    """The exporter is alive and has put this handle (or it was of an earlier generation)."""

    default_result = Result.INVALID_ARGUMENT
    default_hint = "keep the exporter's handle open until every importer has opened it"


class ExporterGone(ZeIpcError):
    """Nobody listens any more where the handle says, or the exporter ended in the middle of the
    open.
    """

    default_result = Result.NOT_AVAILABLE
    default_hint = "keep the exporting process alive until open_ipc_handle() returns"


class WrongHost(ZeIpcError):
    """The handle was made on another machine, or before this one was booted."""

    default_result = Result.NOT_AVAILABLE
    default_hint = "handles work on one host between two boots; export again there"


class FdLimit(ZeIpcError):
    """More file descriptors are needed at once than the process may have; nothing was touched."""

    default_result = Result.OUT_OF_HOST_MEMORY
    default_hint = "raise RLIMIT_NOFILE (ulimit -n)"

    need: int
    """File descriptors that must be free."""
    soft: int
    hard: int

    def __init__(
        self, cause: str = "", *, need: int = 0, soft: int = 0, hard: int = 0, **fields: Any
    ) -> None:
        super().__init__(cause, need=need, soft=soft, hard=hard, **fields)
        self.need, self.soft, self.hard = need, soft, hard


class ForkedProcess(ZeIpcError):
    """The object was made before fork() and is used in the child, where its device and threads do
    not work.
    """

    default_result = Result.UNINITIALIZED
    default_hint = "start processes by spawn or forkserver, or open the device after the fork"


class DeviceNotVisible(ZeIpcError):
    """The handle's memory is on a device that this process cannot see; values say which are visible
    and the mask.
    """

    default_result = Result.NOT_AVAILABLE
    default_hint = "widen ZE_AFFINITY_MASK or give the container that render node"


class PeerAccessError(ZeIpcError):
    """This device cannot map memory of that other one; values: errno, src, dst (uuids)."""

    default_result = Result.UNSUPPORTED_FEATURE
    default_hint = "open the handle on the exporting device, or copy through host memory"


class _OsError(ZeIpcError, OSError):
    """Shared by the errors that are also OSErrors: ``errno``, ``strerror`` and the kernel's own
    words in the message.
    """

    default_errno: ClassVar[int] = 0

    def __init__(self, cause: str = "", *, errno: int | None = None, **fields: Any) -> None:
        number = self.default_errno if errno is None else abs(errno)
        ZeIpcError.__init__(self, cause or os.strerror(number), **fields)
        OSError.__init__(self, number, os.strerror(number))

    __str__ = ZeIpcError.__str__

    def _shown_values(self) -> dict[str, object]:
        name = _errno.errorcode.get(self.errno or 0, str(self.errno))
        return {**super()._shown_values(), "errno": name}

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (cls, cause, fields) = ZeIpcError.__reduce__(self)
        return rebuild, (cls, cause, {**fields, "errno": self.errno})


_MEMORY_HINT = "free host memory, or raise this process's or its cgroup's limit of it"
_FULL_HINT = "make room on that file system, or put the directory on another one"

HINT_OF_ERRNO: dict[int, str] = {
    _errno.EINTR: "call it again: a signal came in between",
    _errno.EAGAIN: "call it again later, when other work of this process or user has ended",
    _errno.ENOMEM: _MEMORY_HINT,
    _errno.ENOBUFS: _MEMORY_HINT,
    _errno.ENOSPC: _FULL_HINT,
    _errno.EDQUOT: _FULL_HINT,
    _errno.EROFS: "use a directory that can be written",
    _errno.ENOENT: "check that the directory is still there, and keep others from removing it",
    _errno.ELOOP: "use a path without circles of symbolic links",
    _errno.EIO: "see the kernel log: a device or a file system fails",
    _errno.ENOSYS: "use a newer kernel, or permit this call in the seccomp filter",
    _errno.ENOPROTOOPT: "use a newer kernel",
    _errno.ETOOMANYREFS: "raise RLIMIT_NOFILE (ulimit -n): too many descriptors are on their way",
    _errno.EPIPE: "keep the other process alive until the call returns",
    _errno.ECONNRESET: "keep the other process alive until the call returns",
    _errno.EBADMSG: "use the same version of ze_ipc in both processes",
    _errno.EPROTO: "use the same version of ze_ipc in both processes",
}
"""What fixes a failed system call that has no class of its own."""
_UNKNOWN_ERRNO = "look this errno up in the call's manual page, and report it if that is no help"


class KernelError(_OsError):
    """A system call failed in a way that has no class of its own; ``errno`` says how, ``call`` is
    the ioctl's or syscall's name.
    """

    def __init__(
        self, cause: str = "", *, errno: int | None = None, hint: str | None = None, **fields: Any
    ) -> None:
        hint = hint or HINT_OF_ERRNO.get(abs(errno or 0), _UNKNOWN_ERRNO)
        super().__init__(cause, errno=errno, hint=hint, **fields)


class AccessDenied(_OsError, PermissionError):
    """The exporter's broker refused this peer, or the system forbids the way to it."""

    default_result = Result.INSUFFICIENT_PERMISSIONS
    default_errno = _errno.EACCES
    default_hint = (
        "run both processes as the same user, or permit the peer in the exporter's policy"
    )


class TransportDenied(AccessDenied):
    """The kernel forbids the transport itself (pidfd_getfd under Yama or seccomp); values name the
    syscall and the reason.
    """

    default_errno = _errno.EPERM
    default_hint = "use the default broker transport, or permit ptrace between the two processes"


class OpenTimeout(_OsError, TimeoutError):
    """The deadline passed; everything taken so far was given back."""

    default_result = Result.NOT_READY
    default_errno = _errno.ETIMEDOUT
    default_hint = "pass a longer timeout, or look why the exporter does not answer"


CLASS_OF_RESULT: dict[Result, type[ZeIpcError]] = {
    Result.DEVICE_LOST: DeviceLost,
    Result.DEVICE_REQUIRES_RESET: DeviceLost,
    Result.OUT_OF_HOST_MEMORY: OutOfHostMemory,
    Result.OUT_OF_DEVICE_MEMORY: OutOfDeviceMemory,
    Result.INSUFFICIENT_PERMISSIONS: AccessDenied,
    Result.UNSUPPORTED_FEATURE: UnsupportedFeature,
    Result.UNSUPPORTED_VERSION: UnsupportedFeature,
    Result.INVALID_ARGUMENT: InvalidArgument,
    Result.INVALID_NULL_POINTER: InvalidNullPointer,
    Result.INVALID_SIZE: InvalidSize,
    Result.UNSUPPORTED_SIZE: UnsupportedSize,
    Result.UNSUPPORTED_ALIGNMENT: UnsupportedAlignment,
    Result.HANDLE_OBJECT_IN_USE: HandleObjectInUse,
    Result.ADDRESS_NOT_FOUND: AddressNotFound,
}
"""The class of each ze_result_t that has one; the rest are DriverError."""


def error_of_result(code: int, cause: str = "", **fields: Any) -> ZeIpcError:
    """The error of a driver's ze_result_t (not raised); ``fields`` are those of ZeIpcError."""
    result = Result(code)
    cls = CLASS_OF_RESULT.get(result, DriverError)
    if cls is DriverError:
        fields["code"] = code
    name = f"ZE_RESULT {result.name} ({code:#x})"
    return cls(f"{cause}: {name}" if cause else name, result=result, **fields)
