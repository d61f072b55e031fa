"""Counting what Python does: a measure of work that no other process can disturb."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


WAITING = ("ze_ipc._xe.", "posix.", "None.socket.", "None.poll.", "None.epoll.")
"""How the names of C functions begin that may wait, and so give up the GIL."""


def calls_of(
    function: Callable[..., T], *arguments: Any, only: Sequence[str] = ()
) -> tuple[int, T]:
    """How many functions, Python's and C's, one call runs in this thread; and what it returned.
    ``only``: count only C functions whose module and name begin so.
    """
    count = 0

    def see(_frame: object, event: str, argument: object) -> None:
        nonlocal count
        if not only:
            count += event in ("call", "c_call")
        elif event == "c_call":
            name = f"{getattr(argument, '__module__', None)}.{argument.__qualname__}"  # type: ignore[attr-defined]
            count += name.startswith(tuple(only))

    sys.setprofile(see)
    try:
        value = function(*arguments)
    finally:
        sys.setprofile(None)
    return count, value
