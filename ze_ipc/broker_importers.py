"""Who holds a range of ours: recorded when a peer says so, forgotten when it says that it holds it
no more or when its process ends.

A pidfd tells the end of a process at once and costs one fd, so only a bounded number of them is
held; processes beyond it are recognised by pid and start time, when somebody asks or by and by.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field

from ze_ipc.fds import Fd
from ze_ipc.host import start_time
from ze_ipc.importer import Importer, ImporterEvent
from ze_ipc.pidfd import pidfd_open
from ze_ipc.policy import Peer

_SO_PEERPIDFD = 77
"""asm-generic/socket.h, Linux 6.5: a pidfd of the process that connected, no race with its pid."""

_MAX_PROCESSES = 4096
"""Recorded at once; the oldest is forgotten for one more, as strangers' ends may not be known."""

_MAX_TOKENS = 1024
"""Of one process for one generation; the oldest is forgotten for one more."""

_EARLY = 1024
"""Releases remembered that came before the open they end: the two travel by connections of their
own.
"""


@dataclass(eq=False, slots=True)
class Process:
    """One importing process; guarded by its table's lock."""

    peer: Peer
    pidfd: Fd | None
    """Readable when the process has ended; None: not watched."""
    opened: dict[int, Importer] = field(default_factory=dict)
    """By generation."""
    tokens: dict[int, dict[int, None]] = field(default_factory=dict)
    """By generation: what it holds, in the order of arrival."""


class ImporterTable:
    """Importing processes and their generations; safe to use from several threads.

    fileno() becomes readable when a watched process has ended: then call take_ended().
    """

    def __init__(self, max_watched: int) -> None:
        self._lock = threading.Lock()
        self._processes: dict[Hashable, Process] = {}
        self._strangers = itertools.count()
        self._by_token: dict[tuple[int, int], Hashable] = {}
        self._early: dict[tuple[int, int], None] = {}
        self._epoll = select.epoll()
        self._max_watched = max_watched

    def fileno(self) -> int:
        """The number of the fd to wait on."""
        return self._epoll.fileno()

    def add(
        self, generation: int, peer: Peer, size: int, sock: socket.socket, token: int = 0
    ) -> tuple[ImporterEvent | None, bool]:
        """Record an open by who connected ``sock``: what became of that (None: it was released
        already), and whether the end of the process will show on fileno().
        """
        # A peer without a pid here is a process of its own every time: nothing else names it.
        key: Hashable = (peer.pid, start_time(peer.pid)) if peer.pid else next(self._strangers)
        with self._lock:
            if self._epoll.closed:
                return None, True
            if (generation, token) in self._early:
                del self._early[generation, token]
                return None, True
            process = self._processes.get(key)
            if process is None:
                self._make_room()
                process = self._processes[key] = Process(peer, self._watch(sock, peer))
            old = process.opened.get(generation)
            since, opens = (old.since, old.opens + 1) if old else (time.time(), 1)
            importer = Importer(peer.pid, peer.uid, size, since, opens)
            process.opened[generation] = importer
            tokens = process.tokens.setdefault(generation, {})
            tokens[token] = None
            if len(tokens) > _MAX_TOKENS:
                self._drop_token(process, generation, next(iter(tokens)))
            if token:
                self._by_token[generation, token] = key
            return ImporterEvent("opened", importer), process.pidfd is not None

    def release(self, generation: int, token: int) -> ImporterEvent | None:
        """Forget what is held by a token; the event if its process holds no more of the generation.

        The token is a random number of the importer: nobody else can say it.
        """
        with self._lock:
            key = self._by_token.get((generation, token))
            if key is None:
                self._early[generation, token] = None
                if len(self._early) > _EARLY:
                    del self._early[next(iter(self._early))]
                return None
            process = self._processes[key]
            self._drop_token(process, generation, token)
            if process.tokens[generation]:
                return None
            importer = process.opened[generation]
            self._drop_generation(key, process, generation)
            return ImporterEvent("released", importer)

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

    def take_ended(self) -> list[tuple[int, ImporterEvent]]:
        """Take out the processes that have ended: (generation, event) of all that they held."""
        with self._lock:
            if self._epoll.closed:
                return []
            readable = {fd for fd, _ in self._epoll.poll(0)}
            ended = [
                (key, process)
                for key, process in self._processes.items()
                if _has_ended(key, process, readable)
            ]
            held = [entry for _, process in ended for entry in process.opened.items()]
            for key, process in ended:
                self._drop_process(key, process)
        return [(generation, ImporterEvent("died", importer)) for generation, importer in held]

    def forget(self, generation: int) -> None:
        """Drop a generation, and the processes that opened nothing else."""
        with self._lock:
            for key, process in list(self._processes.items()):
                if generation in process.opened:
                    self._drop_generation(key, process, generation)

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
        self._by_token.clear()
        self._early.clear()
        self._epoll.close()

    def _drop_token(self, process: Process, generation: int, token: int) -> None:
        del process.tokens[generation][token]
        self._by_token.pop((generation, token), None)

    def _drop_generation(self, key: Hashable, process: Process, generation: int) -> None:
        for token in [*process.tokens[generation]]:
            self._drop_token(process, generation, token)
        del process.tokens[generation], process.opened[generation]
        if not process.opened:
            self._unwatch(process)
            del self._processes[key]

    def _drop_process(self, key: Hashable, process: Process) -> None:
        for generation in [*process.opened]:
            self._drop_generation(key, process, generation)

    def _make_room(self) -> None:
        while len(self._processes) >= _MAX_PROCESSES:
            self._drop_process(*next(iter(self._processes.items())))

    def _watch(self, sock: socket.socket, peer: Peer) -> Fd | None:
        watched = sum(process.pidfd is not None for process in self._processes.values())
        if watched >= self._max_watched:
            return None
        pidfd = peer_pidfd(sock, peer)
        if pidfd is not None:
            try:
                self._epoll.register(pidfd.fileno(), select.EPOLLIN)
            except OSError:
                pidfd.close()
                return None
        return pidfd

    def _unwatch(self, process: Process) -> None:
        pidfd, process.pidfd = process.pidfd, None
        if pidfd is not None:
            with pidfd, contextlib.suppress(OSError):
                # Closing it would do, if no forked child had a duplicate.
                self._epoll.unregister(pidfd.fileno())


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
