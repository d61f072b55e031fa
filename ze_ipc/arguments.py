"""Checks of what users pass in; one function a kind of argument, each raising a contract error that
says what to pass.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, SupportsIndex

from ze_ipc.backend import READ_ONLY
from ze_ipc.errors import (
    InvalidArgument,
    InvalidHandle,
    InvalidSize,
    UnsupportedAlignment,
    UnsupportedSize,
)
from ze_ipc.handle import HANDLE_SIZE
from ze_ipc.range_handle import RangeHandle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ze_ipc.backend import Access

ADDRESS_LIMIT = 1 << 64


def integer(call: str, name: str, value: SupportsIndex) -> int:
    """An integer between 0 and 2**64 - 1; anything that is no integer is a TypeError."""
    number = operator.index(value)
    if not 0 <= number < ADDRESS_LIMIT:
        error = InvalidSize if name == "size" else InvalidArgument
        raise error(
            f"{name} is outside 0 to 2**64 - 1",
            call=call,
            hint=f"pass {name} as bytes",
            **{name: number},
        )
    return number


def positive(call: str, name: str, value: SupportsIndex) -> int:
    """An integer greater than 0."""
    number = integer(call, name, value)
    if number == 0:
        raise InvalidSize(f"{name} is 0", call=call, hint=f"pass a {name} of at least one byte")
    return number


def aligned(call: str, name: str, value: SupportsIndex, page_size: int) -> int:
    """An integer that is a multiple of the page size."""
    number = integer(call, name, value)
    if number % page_size:
        down = number - number % page_size
        raise UnsupportedAlignment(
            f"{name} is not a multiple of the page size",
            call=call,
            hint=f"use {down:#x} or {down + page_size:#x}",
            page_size=page_size,
            **{name: number},
        )
    return number


def pages(call: str, name: str, value: SupportsIndex, page_size: int) -> int:
    """A size of whole pages, at least one."""
    number = positive(call, name, value)
    if number % page_size:
        up = -(-number // page_size) * page_size
        raise UnsupportedSize(
            f"{name} is not a multiple of the page size",
            call=call,
            hint=f"round it up to {up:#x} bytes",
            page_size=page_size,
            **{name: number},
        )
    return number


def inside(call: str, at: SupportsIndex, size: SupportsIndex, limit: int, page_size: int) -> None:
    """``[at, at + size)`` in whole pages within a reservation of ``limit`` bytes."""
    start = aligned(call, "at", at, page_size)
    length = pages(call, "size", size, page_size)
    if start + length > limit:
        raise InvalidArgument(
            "the range reaches beyond the reservation",
            call=call,
            hint=f"keep at + size within {limit:#x} bytes",
            at=start,
            size=length,
        )


def part(
    call: str,
    at: SupportsIndex,
    offset: SupportsIndex,
    size: SupportsIndex | None,
    object_size: int,
    limit: int,
    page_size: int,
) -> int:
    """Size of the part of an object that is to be mapped at ``at``; None is the rest from
    ``offset`` on.
    """
    start = aligned(call, "offset", offset, page_size)
    length = max(object_size - start, 0) if size is None else operator.index(size)
    if start + max(length, 1) > object_size:
        raise InvalidArgument(
            "offset and size reach beyond the object",
            call=call,
            hint=f"keep offset + size within {object_size:#x} bytes",
            offset=start,
            size=length,
        )
    inside(call, at, length, limit, page_size)
    return length


def access(call: str, value: Access) -> int:
    """The access bits of "rw" or "ro"."""
    choice(call, "access", value, ("rw", "ro"))
    return READ_ONLY if value == "ro" else 0


def choice(call: str, name: str, value: object, allowed: Sequence[str]) -> None:
    """One of a few words."""
    if value not in allowed:
        words = " or ".join(repr(word) for word in allowed)
        raise InvalidArgument(f"{name} is {value!r}", call=call, hint=f"pass {words}")


def seconds(call: str, value: float) -> float:
    """A finite time of at least 0 seconds."""
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise InvalidArgument(
            f"the timeout is {value!r}", call=call, hint="pass a number of seconds"
        )
    return number


def handle(call: str, data: bytes | bytearray | memoryview | RangeHandle) -> bytes:
    """The 64 bytes of a handle; a wrong length is InvalidHandle, a wrong type a TypeError."""
    if not isinstance(data, bytes | bytearray | memoryview | RangeHandle):
        raise TypeError(f"{call}: a handle is bytes or a RangeHandle, not {type(data).__name__}")
    raw = bytes(data)
    if len(raw) != HANDLE_SIZE:
        raise InvalidHandle(
            f"a handle has {HANDLE_SIZE} bytes, this has {len(raw)}",
            call=call,
            hint="pass bytes(handle) unchanged",
        )
    return raw
