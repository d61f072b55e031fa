"""Threads whose start ends, also where there is no memory for them."""

from __future__ import annotations

import threading
from collections.abc import Callable

START_SECONDS = 3.0
"""Before a thread that has not begun is given up."""


class _Begun(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        if super().wait(START_SECONDS if timeout is None else timeout):
            return True
        if timeout is None:
            raise RuntimeError("can't start new thread: it ended before it began")
        return False


class DaemonThread(threading.Thread):
    """A daemon that runs ``target``; start() raises RuntimeError where there can be no thread.

    CPython's own start() waits for ever for a thread that had no memory for its first frame.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._started = _Begun()
        self._lock = threading.Lock()
        self._runs = self._given_up = False

    def start(self) -> None:
        try:
            super().start()
        except RuntimeError:
            with self._lock:
                if self._runs:  # it was only slow
                    return
                self._given_up = True
            getattr(threading, "_limbo", {}).pop(self, None)
            raise

    def run(self) -> None:
        with self._lock:
            if self._given_up:
                return
            self._runs = True
        super().run()
