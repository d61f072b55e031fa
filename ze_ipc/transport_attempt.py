"""An open that somebody else may call off, while a thread is in the middle of it."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ze_ipc.errors import ExporterGone

if TYPE_CHECKING:
    from ze_ipc.transport import Connection


class Attempt:
    """The opens of one context (``run`` in it by contextvars); cancel() ends their waiting.

    The thread then fails with ExporterGone and gives back what it has, as with a broken connection.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._connection: Connection | None = None

    def watch(self, connection: Connection) -> None:
        """That is the connection it waits on from now on."""
        with self._lock:
            self._connection = connection
        self.check()

    def check(self) -> None:
        """Raise once it was called off."""
        if self._cancelled:
            raise ExporterGone("the open was called off", call="open_ipc_handle", hint="")

    def cancel(self) -> None:
        """Call it off; safe from any thread, at any time."""
        with self._lock:
            self._cancelled = True
            connection = self._connection
        if connection is not None:
            connection.interrupt()


current: ContextVar[Attempt | None] = ContextVar("ze_ipc_open_attempt", default=None)
"""Of the thread that opens; None: nobody can call it off."""


def check() -> None:
    """Raise if the open of this context was called off."""
    attempt = current.get()
    if attempt is not None:
        attempt.check()
