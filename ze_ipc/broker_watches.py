"""What a thread waits for, and whom to call when it has come: epoll and a table of calls."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator

Call = Callable[[], object]


class Watches:
    """Descriptors with a call each; used by one thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Call] = {}
        self._calls_once: dict[int, Call] = {}

    def fileno(self) -> int:
        """The epoll set."""
        return self._epoll.fileno()

    def add(self, number: int, call: Call) -> None:
        """Call it whenever the descriptor can be read."""
        self._epoll.register(number, select.EPOLLIN)
        self._calls[number] = call

    def add_once(self, sock: socket.socket, call: Call) -> None:
        """Call it the next time only. Afterwards the socket is disarmed, and gone when it is
        closed: that saves a system call.
        """
        number = sock.fileno()
        try:
            self._epoll.register(number, select.EPOLLIN | select.EPOLLONESHOT)
        except FileExistsError:
            self._epoll.modify(number, select.EPOLLIN | select.EPOLLONESHOT)
        self._calls_once[number] = call

    def remove(self, number: int) -> None:
        """Before the descriptor is closed: for what is still armed, or was to be called always."""
        self._calls.pop(number, None)
        self._calls_once.pop(number, None)
        self._epoll.unregister(number)

    def ready(self, timeout: float | None) -> Iterator[Call]:
        """Wait; the calls to make now. One may remove another that has not been made yet."""
        for number, _ in self._epoll.poll(timeout):
            if (call := self.take(number)) is not None:
                yield call

    def take(self, number: int) -> Call | None:
        """What to call for a descriptor that somebody else has seen ready."""
        return self._calls_once.pop(number, None) or self._calls.get(number)

    def close(self) -> None:
        """Close the set and forget the calls; of a forked child it leaves the parent's alone."""
        self._calls.clear()
        self._calls_once.clear()
        self._epoll.close()
