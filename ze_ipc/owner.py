"""What every owner of a device resource has in common: one close, a named error after it, no work
in finalisers.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from ze_ipc.errors import Closed, ForkedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self


class Abandoned(deque["Owner"]):
    """Owners that were collected while open, waiting to be closed by the next call into their
    device.

    A finaliser may run inside any allocation, in any thread, with any lock held; so it only
    appends.
    """

    def close_all(self) -> None:
        """Close what was abandoned until now."""
        while self:
            try:
                owner = self.popleft()
            except IndexError:  # another thread was faster
                return
            owner.close()


Owned = dict[int, "weakref.ref[Owner]"]
"""The open owners of a device by their id(); a WeakSet without its calls into Python."""


class Owner:
    """A resource with exactly one owner. ``close()`` is idempotent and may be called from any
    thread.
    """

    _warns = True
    """Whether it is a fault to be collected open."""
    _at_close: tuple[Callable[[], object], ...] = ()
    _closed = True  # until _open() ran, so that a failed __init__ is not reported as a leak
    _owned: Owned | None = None

    def _open(self, abandoned: Abandoned | None, owned: Owned | None = None) -> None:
        """From now on it is open, and is in ``owned`` until it is closed."""
        self._abandoned = abandoned
        if owned is not None:
            self._owned = owned
            owned[id(self)] = weakref.ref(self)
        self._pid = os.getpid()
        self._close_lock = threading.Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def close(self) -> None:
        """Give the resource back; calling it again does nothing."""
        if self._closed:
            return
        if os.getpid() != self._pid:  # the parent owns it; a forked child only forgets
            self._closed = True
            return
        self._check_unused()
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        if self._owned is not None:
            self._owned.pop(id(self), None)
        try:
            self._release()
        finally:
            self._call_at_close()

    def _when_closed(self, call: Callable[[], object]) -> None:
        """Call that once this is closed, after everything else; at once where it is already."""
        self._at_close = (*self._at_close, call)
        if self._closed:
            self._call_at_close()

    def _call_at_close(self) -> None:
        calls, self._at_close = self._at_close, ()
        for call in calls:
            call()

    def _check_unused(self) -> None:
        """Raise BufferError while another library uses what close() would take away."""

    def _release(self) -> None:
        raise NotImplementedError

    def _lose(self) -> None:
        """The device is closing, and takes everything on it along: this is closed, too."""
        self._closed = True
        self._call_at_close()

    def _check(self, call: str) -> None:
        """Raise unless this object is open and belongs to this process."""
        if self._closed:
            raise Closed(
                f"{type(self).__name__} is closed",
                call=call,
                hint="keep the object open (inside its with block) as long as you use it",
            )
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"{type(self).__name__} was made before fork() and is used in the child",
                call=call,
                pid=os.getpid(),
                made_by=self._pid,
            )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} belongs to its process and cannot be pickled or copied: send "
            "bytes(device.get_ipc_handle(...)), or an open range through multiprocessing"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        if self._warns:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
        if self._abandoned is not None:
            self._abandoned.append(self)
