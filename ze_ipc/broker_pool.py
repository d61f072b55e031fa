"""A bounded pool of threads in which one peer cannot take all of them.

``concurrent.futures`` joins its threads when the interpreter ends, whatever they wait for; these
are daemons, so that a peer that never answers cannot keep a process alive. They start when there
is work and end when there was none for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ze_ipc.threads import DaemonThread

_log = logging.getLogger(__name__)

Job = TypeVar("Job")


class WorkerPool(Generic[Job]):
    """Runs jobs on at most ``max_threads`` threads, ``max_per_key`` of one key at a time.

    A quarter of the threads is kept for keys that have none: a few peers that hold all they may
    leave room for the next one. The key None stands for peers that cannot be told apart; it has no
    limit but that.
    """

    def __init__(
        self,
        run: Callable[[Job], None],
        *,
        name: str,
        max_threads: int,
        max_per_key: int,
        max_queued: int,
        idle_seconds: float = 5.0,
    ) -> None:
        self._run = run
        self._name = name
        self._max_threads = max_threads
        self._max_per_key = max_per_key
        self._max_queued = max_queued
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[tuple[Hashable, Job]] = deque()
        self._running: Counter[Hashable] = Counter()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._busy = 0
        self._stopped = False

    @property
    def full(self) -> bool:
        """Whether submit() would refuse for want of a place in the queue."""
        return len(self._queue) >= self._max_queued

    def submit(self, key: Hashable, job: Job) -> bool:
        """Have ``job`` run some time; False: the queue is full, the pool stopped, or no thread is
        to be had.
        """
        thread = None
        with self._changed:
            if self._stopped or len(self._queue) >= self._max_queued:
                return False
            self._queue.append((key, job))
            # Idle threads may all have passed over what else is queued: wake one in any case.
            self._changed.notify()
            if self._idle < len(self._queue) and len(self._threads) < self._max_threads:
                thread = DaemonThread(self._work, self._name)
                self._threads.add(thread)
        return thread is None or self._start(thread, key, job)

    def stop(self) -> list[Job]:
        """Take no more jobs and begin none; those that were still queued."""
        with self._changed:
            self._stopped = True
            dropped = [job for _, job in self._queue]
            self._queue.clear()
            self._changed.notify_all()
        return dropped

    def join(self, deadline: float) -> bool:
        """After stop(): wait for the jobs that run; whether all threads but this ended in time."""
        with self._changed:
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _start(self, thread: threading.Thread, key: Hashable, job: Job) -> bool:
        try:
            thread.start()
        except RuntimeError as error:
            _log.warning("cannot start a thread: %s", error)
            with self._changed:
                self._threads.discard(thread)
                if not self._threads and (key, job) in self._queue:
                    self._queue.remove((key, job))
                    return False
        return True

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            key, job = taken
            try:
                self._run(job)
            except Exception:
                _log.exception("a job of %s failed", self._name)
            del job, taken
            with self._changed:
                self._busy -= 1
                self._running[key] -= 1
                if not self._running[key]:
                    del self._running[key]
                # Jobs that had to wait may have been passed over by every idle thread.
                self._changed.notify()

    def _may_run(self, key: Hashable) -> bool:
        running = self._running.get(key, 0)
        if running and self._busy >= self._max_threads - self._max_threads // 4:
            return False
        return key is None or running < self._max_per_key

    def _take(self) -> tuple[Hashable, Job] | None:
        """The next job that may run, or None when this thread shall end."""
        deadline = time.monotonic() + self._idle_seconds
        with self._changed:
            while not self._stopped:
                for index, (key, job) in enumerate(self._queue):
                    if self._may_run(key):
                        del self._queue[index]
                        self._running[key] += 1
                        self._busy += 1
                        return key, job
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._idle += 1
                self._changed.wait(left)
                self._idle -= 1
            self._threads.discard(threading.current_thread())
        return None
