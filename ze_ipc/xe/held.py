"""C calls that keep the GIL: those that are over, or say -EINTR, before a thread that computes
could have been made to give it back.
"""

from __future__ import annotations

import time
from typing import Any

from ze_ipc import _held
from ze_ipc._xe import ffi, lib

PATIENCE = 500_000
"""Nanoseconds for which a call may wait. To get the GIL back takes ten times as long."""
FEW = 64
"""Objects, extents or mappings that are always few enough."""
FEW_BYTES = 64 << 10
"""Bytes that are copied in less time."""


def function(name: str) -> int:
    """The address of a C function of two pointers that returns 0 or -errno."""
    return int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))


def call(address: int, first: Any, second: Any) -> int:
    """Call it; what it returns."""
    return _held.call(
        address, int(ffi.cast("uintptr_t", first)), int(ffi.cast("uintptr_t", second))
    )


def patience() -> int:
    """Until when a call that begins now may wait, nanoseconds as C counts them."""
    return time.monotonic_ns() + PATIENCE
