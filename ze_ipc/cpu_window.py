"""One CPU mapping behind all the views of the same bytes, and what holds it while it is viewed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ze_ipc._buffer import BufferBase
from ze_ipc.errors import ZeIpcError

if TYPE_CHECKING:
    from ze_ipc.backend import CpuMapping

Layout = tuple[int, int, bool, str, int, tuple[int, ...], tuple[int, ...]]
"""(address, bytes, read-only, format, item size, shape, strides in bytes)."""


class CpuWindow:
    """Made when the first view needs it, unmapped when nobody views it and it is not kept.

    The lock is one that the same thread may take twice: a view can be collected, and so released,
    inside any allocation.
    """

    def __init__(
        self,
        make: Callable[[], tuple[CpuMapping, bool]],
        offset: int,
        size: int,
        *,
        keep: bool,
    ) -> None:
        """``make`` gives a mapping and whether it is read-only; the window begins ``offset`` bytes
        into it. ``keep``: stay mapped between views, until drop().
        """
        self._make = make
        self._offset = offset
        self._keep = keep
        self.size = size
        """Bytes."""
        self._lock = threading.RLock()
        self._views = 0
        self._mapping: CpuMapping | None = None
        self._read_only = False

    def acquire(self) -> tuple[int, bool]:
        """(address, read-only) for one more view; BufferError that says why there is none."""
        with self._lock:
            self._views += 1
            try:
                if self._mapping is None:
                    self._mapping, self._read_only = self._make()
                return self._mapping.address + self._offset, self._read_only
            except (ZeIpcError, OSError) as error:
                self.release()
                raise BufferError(f"no CPU view of this range: {error}") from error
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """One view less."""
        with self._lock:
            self._views -= 1
            self._unmap_if_unused()

    def drop(self) -> None:
        """Its owner is closed: unmap it after the last view."""
        with self._lock:
            self._keep = False
            self._unmap_if_unused()

    def _unmap_if_unused(self) -> None:
        if not self._views and not self._keep and self._mapping is not None:
            mapping, self._mapping = self._mapping, None
            mapping.close()


class CpuLease(BufferBase):
    """The buffer of a window, or of elements in it: every memoryview of it is a view of the window.

    It keeps ``owner`` alive.
    """

    def __init__(
        self,
        owner: object,
        window: CpuWindow,
        layout: tuple[int, str, int, tuple[int, ...], tuple[int, ...]] | None = None,
    ) -> None:
        """``layout``: (offset of the first element, format, item size, shape, strides)."""
        self._owner = owner
        self._window = window
        self._layout = layout

    def _acquire_buffer(self) -> tuple[int, int, bool] | Layout:
        address, read_only = self._window.acquire()
        if self._layout is None:
            return address, self._window.size, read_only
        offset, *rest = self._layout
        return (address + offset, self._window.size - offset, read_only, *rest)  # type: ignore[return-value]

    def _release_buffer(self) -> None:
        self._window.release()
