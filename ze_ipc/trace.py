"""A record of what a program does with ranges, for bug reports that can be run again.

``ZE_IPC_TRACE=FILE`` (or ``ze-ipc trace -- COMMAND``) turns it on at the first open_device() of a
process; off, it costs nothing, for nothing is wrapped. One JSON object a line: public calls with
their results, and before each of them the ioctls that it made (written by ioctl/xe_trace.c).

Addresses are written as places in reservations, handles as digests that open nothing, memory as its
number of bytes: no contents, no secrets, no paths.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ze_ipc.device import Device, OpenCheck
from ze_ipc.errors import ZeIpcError
from ze_ipc.imported_range import ImportedRange
from ze_ipc.physical_memory import PhysicalMemory
from ze_ipc.policy import Policy
from ze_ipc.range_handle import RangeHandle
from ze_ipc.reservation import Reservation
from ze_ipc.usm import UsmAllocation
from ze_ipc.xe import device as xe_device

VERSION = 1

TRACED: dict[type, tuple[str, ...]] = {
    Device: (
        *("reserve", "physical_memory", "allocate", "get_ipc_handle", "open_ipc_handle"),
        *("can_open", "address_range", "read", "write", "copy", "fill", "close"),
    ),
    Reservation: ("map", "unmap", "close"),
    PhysicalMemory: ("close",),
    UsmAllocation: ("close",),
    RangeHandle: ("extend", "revoke", "close"),
    ImportedRange: ("extend", "close"),
}
"""What is recorded; the table is the documentation."""

KINDS = {
    Device: "device",
    Reservation: "reservation",
    PhysicalMemory: "memory",
    UsmAllocation: "usm",
    RangeHandle: "handle",
    ImportedRange: "view",
}
ADDRESSES = frozenset({"ptr", "dst", "src"})
"""Parameters that are GPU addresses."""


class _Recorder:
    """The record of this process; every line is one write."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._spans: weakref.WeakSet[Any] = weakref.WeakSet()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._inside = threading.local()

    def write(self, line: dict[str, Any]) -> None:
        who = {"pid": os.getpid(), "tid": threading.get_native_id()}
        os.write(self.fd, json.dumps(who | line, separators=(",", ":")).encode() + b"\n")

    def name(self, owner: Any) -> str:
        """What an owner is called in this record."""
        with self._lock:
            known = getattr(owner, "_trace_name", None)
            if known is None:
                kind = KINDS[type(owner)]
                known = owner._trace_name = f"{kind}{os.getpid()}.{next(self._numbers)}"
                if kind in ("reservation", "usm", "view"):
                    self._spans.add(owner)
        return str(known)

    def call(self, name: str, method: Callable[..., Any], owner: Any, *args: Any, **kw: Any) -> Any:
        """Make a call and record it, unless it is made inside another one."""
        if getattr(self._inside, "call", False):
            return method(owner, *args, **kw)
        bound = inspect.signature(method).bind(owner, *args, **kw).arguments
        device = owner if isinstance(owner, Device) else owner._device
        given = {key: self.value(key, bound[key], device) for key in list(bound)[1:]}
        line = {"call": f"{type(owner).__name__}.{name}", "on": self.name(owner), "given": given}
        self._inside.call = True
        try:
            result = method(owner, *args, **kw)
        except BaseException as error:
            self.write(line | {"raised": raised(error)})
            raise
        finally:
            self._inside.call = False
        self.write(line | {"result": self.value("result", result, device)})
        return result

    def value(self, name: str, value: Any, device: Any) -> Any:
        """A value without addresses, contents and secrets."""
        if isinstance(value, RangeHandle) and name != "result":
            return {"handle": digest(bytes(value))}
        if type(value) in KINDS:
            found = {"new" if name == "result" else "ref": self.name(value)}
            if hasattr(value, "size"):
                found["size"] = value.size
            if isinstance(value, RangeHandle):
                found["handle"] = digest(bytes(value))
            return found
        if isinstance(value, (bytes, bytearray, memoryview)):
            raw = bytes(value)
            if name == "data" and len(raw) == 64 and raw[:4] == b"ZIPC":
                return {"handle": digest(raw)}
            return {"bytes": len(raw)}
        if isinstance(value, OpenCheck):
            return {"ok": value.ok, "error": None if value.error is None else raised(value.error)}
        if isinstance(value, Policy):
            return {"policy": value.read_only}
        if isinstance(value, tuple):
            return {"range": [self._place(value[0], device), value[1]]}
        if name in ADDRESSES and isinstance(value, int):
            return self._place(value, device)
        return (
            value if isinstance(value, (int, float, str, bool, type(None))) else repr(type(value))
        )

    def _place(self, address: int, device: Any) -> Any:
        found = place(address, device, list(self._spans))
        if found is None:
            return {"address": address}
        return {"in": self.name(found), "at": address - found.ptr}


def place(address: int, device: Any, spans: Iterable[Any]) -> Any:
    """Which reservation, allocation or view of a device an address lies in, its end included if
    nothing begins there; or None.
    """
    ours = [span for span in spans if span._device is device and not span.closed]
    for beyond in (0, 1):
        for span in ours:
            if span.ptr <= address < span.ptr + span.size + beyond:
                return span
    return None


def digest(handle: bytes) -> str:
    """The same for the same handle, and nothing that opens it."""
    return hashlib.blake2b(handle, digest_size=8, person=b"ze_ipc trace").hexdigest()


def raised(error: BaseException) -> dict[str, Any]:
    """What of an error must be the same when the call is made again."""
    found: dict[str, Any] = {"error": type(error).__name__}
    if isinstance(error, ZeIpcError):
        found |= {"result": error.result.name, "object_index": error.object_index}
        found["errno"] = getattr(error, "errno", None)
    return found


_recorder: _Recorder | None = None
_start_lock = threading.Lock()


def start(path: str) -> None:
    """Record from now on, appending to ``path``; once a process."""
    global _recorder
    with _start_lock:
        if _recorder is not None:
            return
        recorder = _Recorder(path)
        xe_device.trace_fd = recorder.fd
        for cls, names in TRACED.items():
            for name in names:
                setattr(cls, name, _wrapped(name, getattr(cls, name)))
        _recorder = recorder
        system = os.uname()
        recorder.write({"trace": VERSION, "kernel": system.release, "time": round(time.time())})


def opened(device: Device) -> Device:
    """Record that a device was opened."""
    if _recorder is not None:
        facts = {
            "name": device.name,
            "uuid": device.uuid.hex(),
            "backend": device.backend,
            "mock": device.is_mock,
            "page_size": device.page_size,
        }
        _recorder.write({"opened": _recorder.name(device), "device": facts})
    return device


def _wrapped(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kw: Any) -> Any:
        assert _recorder is not None
        if name == "close" and self.closed:
            return method(self)
        return _recorder.call(name, method, self, *args, **kw)

    return call
