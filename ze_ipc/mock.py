"""The mock xe device of this process: configure it, make its ioctls fail or be late, count them."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Literal

from ze_ipc._mock import ffi, lib
from ze_ipc.errors import InvalidArgument, KernelError

Profile = Literal["bmg", "lnl"]

EVERY = 0
"""As ``nth``: every call, until clear_faults()."""


@dataclass(frozen=True, slots=True)
class MockStats:
    """What this process holds of a mock device at one moment."""

    files: int
    """Open files of the device (a duplicated descriptor is the same one)."""
    objects: int
    """Memory objects that anything still holds: a handle, a mapping in a VM."""
    handles: int
    """GEM handles of all files."""
    vms: int
    mappings: int
    """Mappings of all VMs, and those that a pending bind has replaced but not yet let go of."""
    vram_used: int
    """Bytes."""
    system_used: int
    """Bytes."""


@cache
def _numbers() -> dict[str, int]:
    """Low byte of each ioctl's number by its name, such as ``XE_VM_BIND`` and also ``VM_BIND``."""
    numbers: dict[str, int] = {}
    for nr in range(lib.XE_MOCK_MAX_IOCTLS):
        name = lib.xe_mock_ioctl_name(nr)
        if name != ffi.NULL:
            text = ffi.string(name).decode()
            numbers[text] = nr
            numbers.setdefault(text.removeprefix("XE_"), nr)
    return numbers


def _number(ioctl_name: str) -> int:
    name = ioctl_name.upper().removeprefix("DRM_IOCTL_")
    try:
        return _numbers()[name]
    except KeyError:
        raise InvalidArgument("the mock has no such ioctl", ioctl=ioctl_name) from None


def _check(rc: int, call: str, **values: Any) -> int:
    if rc >= 0:
        return rc
    raise KernelError(os.strerror(-rc), errno=-rc, call=call, **values)


class MockDevice:
    """Mock device ``index`` as this process sees it; entering and leaving a ``with`` clears faults.

    The configuration holds from the first open of the device until nobody has it open any more;
    asking for another one in between is InvalidArgument. Sizes are bytes; None is the default of
    the profile. Every method may be called from any thread, also while ioctls run.
    """

    def __init__(
        self,
        index: int = 0,
        profile: Profile = "bmg",
        vram_size: int | None = None,
        *,
        system_size: int | None = None,
        max_bind_ops: int | None = None,
        max_deferred_binds: int | None = None,
        peer: bool = True,
    ) -> None:
        self.index = index
        self.profile: Profile | None = profile
        """None: not configured through this object."""
        name = ffi.new("char[]", profile.encode())
        config = ffi.new(
            "struct xe_mock_config *",
            {
                "profile": name,
                "vram_size": vram_size or 0,
                "system_size": system_size or 0,
                "max_bind_ops": max_bind_ops or 0,
                "max_deferred_binds": max_deferred_binds or 0,
                "no_peer": not peer,
            },
        )
        rc = lib.xe_mock_configure(index, config)
        if rc < 0:
            raise InvalidArgument(
                "that mock device cannot be configured so",
                hint="close it everywhere first, or take another index",
                index=index,
                profile=profile,
                errno=-rc,
            )

    @classmethod
    def attached(cls, index: int = 0) -> MockDevice:
        """Mock device ``index`` as it is, whoever configured it: for faults, counts and stats."""
        device = cls.__new__(cls)
        device.index = index
        device.profile = None
        return device

    @property
    def node(self) -> str:
        """The path under which ``xe_mock_ops`` opens its render node."""
        return f"mock:{self.index}"

    def open_node(self, *, card: bool = False) -> int:
        """A new open file; close it by close_node(), never by os.close()."""
        return _check(lib.xe_mock_open(self.index, card, os.O_CLOEXEC), "open", node=self.node)

    def close_node(self, fd: int) -> None:
        """Close a descriptor that open_node() returned."""
        _check(lib.xe_mock_close(fd), "close", fd=fd)

    def ioctl(self, fd: int, request: int, argument: bytearray | memoryview | int) -> int:
        """One ioctl on a descriptor of this device or on a dma-buf; a failure is a KernelError.

        The buffer is changed in place, as the kernel would; an int is an address.
        """
        if isinstance(argument, int):
            pointer = ffi.cast("void *", argument)
        else:
            pointer = ffi.from_buffer(argument, require_writable=True)
        rc = lib.xe_mock_ioctl(fd, request, pointer)
        return _check(rc, _name_of(request))

    def fail(self, ioctl_name: str, nth: int = 1, error: int = errno.ENOMEM) -> None:
        """Let the ``nth`` call from now (1 is the next, or EVERY) fail before it does anything."""
        _check(lib.xe_mock_fault(self.index, _number(ioctl_name), nth, error, 0), "fail")

    def fail_number(self, request: int, nth: int, error: int) -> None:
        """fail() by the ioctl's number; one that the mock has not is InvalidArgument."""
        if lib.xe_mock_ioctl_name(request & 0xFF) == ffi.NULL:
            raise InvalidArgument("the mock has no such ioctl", ioctl=hex(request))
        _check(lib.xe_mock_fault(self.index, request & 0xFF, nth, error, 0), "fail")

    def delay(self, ioctl_name: str, nth: int = 1, seconds: float = 0.1) -> None:
        """Let the ``nth`` call from now wait before it does anything."""
        microseconds = round(seconds * 1e6)
        _check(lib.xe_mock_fault(self.index, _number(ioctl_name), nth, 0, microseconds), "delay")

    def clear_faults(self) -> None:
        """Forget what fail() and delay() planned."""
        _check(lib.xe_mock_clear_faults(self.index), "clear_faults")

    def counts(self) -> dict[str, int]:
        """Calls so far by ioctl name, such as ``XE_VM_BIND``; failed ones too, none is absent."""
        counts = {}
        for nr in set(_numbers().values()):
            calls = lib.xe_mock_count(self.index, nr)
            if calls:
                counts[_name_of(nr)] = calls
        return counts

    def reset_counts(self) -> None:
        """Start counting anew."""
        lib.xe_mock_reset_counts(self.index)

    def stats(self) -> MockStats:
        """What this process holds of the device."""
        stats = ffi.new("struct xe_mock_stats *")
        _check(lib.xe_mock_stats(self.index, stats), "stats")
        return MockStats(*(getattr(stats, field) for field in MockStats.__slots__))

    def set_peer(self, other: MockDevice, allowed: bool) -> None:
        """Whether the two devices may reach each other's memory, from the next import on."""
        _check(lib.xe_mock_set_peer(self.index, other.index, allowed), "set_peer")

    def __enter__(self) -> MockDevice:
        self.clear_faults()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear_faults()

    def __repr__(self) -> str:
        return f"MockDevice(index={self.index}, profile={self.profile!r})"


def held() -> dict[int, MockStats]:
    """What this process holds of each mock device of which it holds anything."""
    found = {}
    for index in range(lib.XE_MOCK_MAX_DEVICES):
        stats = MockDevice.attached(index).stats()
        if any(getattr(stats, field) for field in MockStats.__slots__):
            found[index] = stats
    return found


def clear_all_faults() -> None:
    """Forget the faults of every mock device of this process."""
    for index in range(lib.XE_MOCK_MAX_DEVICES):
        MockDevice.attached(index).clear_faults()


def _name_of(request: int) -> str:
    name = lib.xe_mock_ioctl_name(request & 0xFF)
    return ffi.string(name).decode() if name != ffi.NULL else hex(request)
