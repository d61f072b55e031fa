"""Who holds a range of ours: recorded when a peer says so, forgotten when its process ends.

A pidfd tells the end of a process at once and costs one fd, so only a bounded number of them is
held; processes beyond it are recognised by pid and start time, when somebody asks or by and by.
"""

from __future__ import annotations

import itertools
import select
import socket
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field

from ze_ipc.fds import Fd
from ze_ipc.host import start_time
from ze_ipc.pidfd import pidfd_open
from ze_ipc.policy import Peer

_SO_PEERPIDFD = 77
"""asm-generic/socket.h, Linux 6.5: a pidfd of the process that connected, no race with its pid."""

_MAX_PROCESSES = 4096
"""Recorded at once; the oldest is forgotten for one more, as strangers' ends may not be known."""


@dataclass(frozen=True, slots=True)
class Importer:
    """A process that opened a handle and has not ended since."""

    pid: int
    """In our pid namespace; 0 when it has none there."""
    uid: int
    size: int
    """Bytes of the window it opened."""
    since: float
    """time.time() of its first open."""
    opens: int
    """How often it opened the handle; what it closed again is not known."""


@dataclass(eq=False, slots=True)
class Process:
    """One importing process; guarded by its table's lock."""

    peer: Peer
    pidfd: Fd | None
    """Readable when the process has ended; None: not watched."""
    opened: dict[int, Importer] = field(default_factory=dict)
    """By generation."""


class ImporterTable:
    """Importing processes and their generations; safe to use from several threads.

    fileno() becomes readable when a watched process has ended: then call take_ended().
    """

    def __init__(self, max_watched: int) -> None:
        self._lock = threading.Lock()
        self._processes: dict[Hashable, Process] = {}
        self._strangers = itertools.count()
        self._epoll = select.epoll()
        self._max_watched = max_watched

    def fileno(self) -> int:
        """The number of the fd to wait on."""
        return self._epoll.fileno()

    def add(self, generation: int, peer: Peer, size: int, sock: socket.socket) -> bool:
        """Record an open by who connected ``sock``; whether its end will show on fileno()."""
        # A peer without a pid here is a process of its own every time: nothing else names it.
        key: Hashable = (peer.pid, start_time(peer.pid)) if peer.pid else next(self._strangers)
        with self._lock:
            if self._epoll.closed:
                return True
            process = self._processes.get(key)
            if process is None:
                self._make_room()
                process = self._processes[key] = Process(peer, self._watch(sock, peer))
            old = process.opened.get(generation)
            since, opens = (old.since, old.opens + 1) if old else (time.time(), 1)
            process.opened[generation] = Importer(peer.pid, peer.uid, size, since, opens)
            return process.pidfd is not None

    def of(self, generation: int) -> list[Importer]:
        """The importers of a generation, oldest first, as far as they are known."""
        with self._lock:
            found = [process.opened.get(generation) for process in self._processes.values()]
        return sorted((entry for entry in found if entry is not None), key=lambda e: e.since)

    @property
    def has_unwatched(self) -> bool:
        """Whether some processes must be looked at from time to time."""
        with self._lock:
            return any(entry.pidfd is None and entry.peer.pid for entry in self._processes.values())

    def take_ended(self) -> list[tuple[Peer, list[int]]]:
        """Take out the processes that have ended: each with the generations that it had opened."""
        with self._lock:
            if self._epoll.closed:
                return []
            readable = {fd for fd, _ in self._epoll.poll(0)}
            ended = [
                (key, process)
                for key, process in self._processes.items()
                if _has_ended(key, process, readable)
            ]
            for key, process in ended:
                self._unwatch(process)
                del self._processes[key]
        return [(process.peer, list(process.opened)) for _, process in ended]

    def forget(self, generation: int) -> None:
        """Drop a generation, and the processes that opened nothing else."""
        with self._lock:
            for key, process in list(self._processes.items()):
                process.opened.pop(generation, None)
                if not process.opened:
                    self._unwatch(process)
                    del self._processes[key]

    def watch_nobody(self) -> None:
        """Give all pidfds back; their processes stay recorded."""
        with self._lock:
            for process in self._processes.values():
                self._unwatch(process)

    def close(self) -> None:
        """Forget everything and give the fds back; idempotent."""
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """close() for a forked child: the lock may be held, the epoll set is the parent's."""
        for process in self._processes.values():
            if process.pidfd is not None:
                process.pidfd.close()
        self._processes.clear()
        self._epoll.close()

    def _make_room(self) -> None:
        while len(self._processes) >= _MAX_PROCESSES:
            self._unwatch(self._processes.pop(next(iter(self._processes))))

    def _watch(self, sock: socket.socket, peer: Peer) -> Fd | None:
        watched = sum(process.pidfd is not None for process in self._processes.values())
        if watched >= self._max_watched:
            return None
        pidfd = peer_pidfd(sock, peer)
        if pidfd is not None:
            try:
                self._epoll.register(pidfd.fileno(), select.EPOLLIN)
            except BaseException:
                pidfd.close()
                raise
        return pidfd

    def _unwatch(self, process: Process) -> None:
        pidfd, process.pidfd = process.pidfd, None
        if pidfd is not None:
            # Closing it would do, if no forked child had a duplicate.
            self._epoll.unregister(pidfd.fileno())
            pidfd.close()


def _has_ended(key: Hashable, process: Process, readable: set[int]) -> bool:
    """False also where it cannot be known: no pidfd and no pid in our namespace."""
    if process.pidfd is not None:
        return process.pidfd.fileno() in readable
    pid = process.peer.pid
    return pid > 0 and ((now := start_time(pid)) is None or (pid, now) != key)


def peer_pidfd(sock: socket.socket, peer: Peer) -> Fd | None:
    """A pidfd of the process at the other end, or None where the kernel or the limits have none."""
    try:
        return Fd(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
    except OSError:
        pass
    try:
        return Fd(pidfd_open(peer.pid)) if peer.pid else None
    except OSError:
        return None
