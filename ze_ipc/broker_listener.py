"""The one thread that talks to peers nobody knows yet: accepts, reads one request, never waits.
It also hears the last words of those that were answered at once.

A peer that says nothing costs a place among the pending ones for two seconds. When these run out,
the process that has most of them loses its oldest, so a crowd can only push out itself. When fds
run out, accepting pauses instead of spinning, and after a while the peers are told.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ze_ipc.broker_desk import DeskMaker, calls_of, rules_of
from ze_ipc.broker_doorbell import rings
from ze_ipc.broker_limits import Limits
from ze_ipc.broker_protocol import REQUEST_SIZE, Status, encode_refusal
from ze_ipc.broker_watches import Watches
from ze_ipc.desk import Desk, DeskEvent
from ze_ipc.fds import Fd
from ze_ipc.policy import Peer, peer_of
from ze_ipc.threads import DaemonThread

_log = logging.getLogger(__name__)

_ONE = (1).to_bytes(8, sys.byteorder)
"""What is written to and read from an eventfd."""
_OUT_OF_FDS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REFUSALS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Pending:
    peer: Peer
    deadline: float


_Expected = tuple[float, Callable[[bool], bool]]
"""Until when, and whom to tell."""


def refuse(sock: socket.socket, status: Status, refusal: bytes | None = None) -> None:
    """Say no without waiting, and close; ``refusal`` is the message, if not that of an open."""
    with sock:
        try:
            sock.send(refusal or encode_refusal(status), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            # What is left unread would reach the peer as a reset, before our answer.
            sock.recv(REQUEST_SIZE + 1, socket.MSG_DONTWAIT)
        except OSError:
            pass


class Listener:
    """Owns the listening socket and the doorbell; hands on (socket, peer, request) of each peer.

    ``answer`` takes the socket over and must not wait. Everything is called on this one thread.
    """

    def __init__(
        self,
        listening: socket.socket,
        *,
        may_connect: Callable[[Peer], bool],
        answer: Callable[[socket.socket, Peer, bytes], None],
        watched_fd: int,
        tick: Callable[[], bool],
        spare_fds: Callable[[], None],
        limits: Limits,
        open_desk: DeskMaker | None = None,
        heard: Callable[[socket.socket, DeskEvent], None] | None = None,
    ) -> None:
        """``tick`` is called when ``watched_fd`` is readable, and at intervals while it returns
        True; ``spare_fds`` when fds run out; ``heard`` when a peer that the desk has answered
        says its last word.
        """
        self.desk: Desk | None = None
        """Answers in place of ``answer`` what it can, from start() on."""
        self._open_desk = open_desk
        self._heard = heard
        self._may_connect = may_connect
        self._answer = answer
        self._watched_fd = watched_fd
        self._tick = tick
        self._spare_fds = spare_fds
        self._limits = limits
        self._listening = listening
        self._pending: dict[socket.socket, _Pending] = {}
        self._expected: dict[socket.socket, _Expected] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._next_tick: float | None = None
        self._starved_since: float | None = None
        self._starved_at = 0.0
        self._resume_at: float | None = None
        self._near: socket.socket | None = None
        self._far: socket.socket | None = None
        self._reserve: Fd | None = None
        self._wake: Fd | None = None
        self._wake_lock = threading.RLock()
        self._watches: Watches | None = None
        self._thread = DaemonThread(self._run, "ze_ipc-broker")

    def start(self, doorbell_name: bytes) -> int:
        """Take the remaining fds and start the thread; the number of the fd that an importer may
        take by pidfd_getfd. On failure nothing is left.
        """
        try:
            self._watches = Watches()
            self._wake = Fd(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            self._take_reserve()
            self._near, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # An importer that took this fd by number can see by its name that it is the right one.
            self._near.bind(doorbell_name)
            self._far.setblocking(True)
            self._far.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._listening.setblocking(False)
            self._watched.add(self._listening.fileno(), self._accept)
            self._watched.add(self._far.fileno(), self._answer_doorbell)
            self._watched.add(self._wake.fileno(), self._run_calls)
            self._watched.add(self._watched_fd, self._tick)
            doorbell = self._near.fileno()
            if self._open_desk is not None:
                self.desk = self._open_desk(self._watched.fileno(), rules_of(self._limits))
            self._thread.start()
        except BaseException:
            self.abandon()
            if self.desk is not None:
                self.desk.free()
            raise
        return doorbell

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` on the thread, never if that has ended; finalisers and signal handlers may
        use it, for its only lock is held for one write and may be entered again.
        """
        self._calls.append(call)
        with self._wake_lock:
            if self._wake is not None and not self._wake.closed:
                os.write(self._wake.fileno(), _ONE)  # unlike eventfd_write(), again on EINTR

    def expect(self, sock: socket.socket, hear: Callable[[bool], bool]) -> bool:
        """Call ``hear(True)`` when the socket can be read, again if it returns False, and
        ``hear(False)`` when that takes too long. False: too many are expected already. On the
        thread only; the socket stays the caller's, who may close it in ``hear``.
        """
        if len(self._expected) >= self._limits.heard:
            return False
        deadline = time.monotonic() + self._limits.last_word_seconds
        return self._expect_again(sock, (deadline, hear))

    def _expect_again(self, sock: socket.socket, entry: _Expected) -> bool:
        try:
            self._watched.add_once(sock, partial(self._hear, sock))
        except OSError as error:
            _log.warning("a connection cannot be waited for: %s", error)
            return False
        self._expected[sock] = entry
        return True

    def _hear(self, sock: socket.socket) -> None:
        entry = self._expected.pop(sock, None)
        if entry is None or entry[1](True) or self._expect_again(sock, entry):
            return
        entry[1](False)

    def _hear_no_more(self, sock: socket.socket) -> None:
        _, hear = self._expected.pop(sock)
        self._watched.remove(sock.fileno())
        hear(False)

    def want_tick(self) -> None:
        """Have the tick called again some time; on the thread only."""
        if self._next_tick is None:
            self._next_tick = time.monotonic() + self._limits.tick_seconds

    def stop(self, deadline: float) -> bool:
        """End the thread, which closes everything; whether it ended in time."""
        self._stopping = True
        self.call_soon(lambda: None)
        if self.on_its_thread:
            return True
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    @property
    def on_its_thread(self) -> bool:
        """Whether the caller runs on the thread, which still has something to do then."""
        return self._thread is threading.current_thread()

    def abandon(self) -> None:
        """Close every fd and tell the selector nothing: after fork() its set is the parent's."""
        if self.desk is not None:
            self.desk.abandon()
        for sock in (self._listening, self._near, self._far, *self._pending):
            if sock is not None:
                sock.close()
        self._pending.clear()
        self._expected.clear()
        if self._watches is not None:
            self._watches.close()
        for fd in (self._wake, self._reserve):
            if fd is not None:
                fd.close()

    @property
    def _watched(self) -> Watches:
        assert self._watches is not None
        return self._watches

    def _run(self) -> None:
        assert self._watches is not None
        try:
            while not self._stopping:
                for call in self._ready():
                    self._guarded(call)
                self._keep_time()
        finally:
            with self._wake_lock:
                self.abandon()

    def _ready(self) -> Iterator[Callable[[], object]]:
        if self.desk is None:
            return self._watched.ready(self._timeout())
        return calls_of(self.desk.wait(self._listening.fileno(), self._timeout()), self)

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            _log.exception("the broker goes on after")

    def _timeout(self) -> float | None:
        known = [moment for moment in (self._resume_at, self._next_tick) if moment is not None]
        if self._pending:
            known.append(next(iter(self._pending.values())).deadline)
        if self._expected:
            known.append(next(iter(self._expected.values()))[0])
        return max(0.0, min(known) - time.monotonic()) if known else None

    def _keep_time(self) -> None:
        now = time.monotonic()
        while self._pending:
            sock, pending = next(iter(self._pending.items()))
            if pending.deadline > now:
                break
            _log.debug("peer %s made no request in time", pending.peer)
            self._drop(sock)
        while self._expected:
            sock, (deadline, _) = next(iter(self._expected.items()))
            if deadline > now:
                break
            self._guarded(partial(self._hear_no_more, sock))
        if self._resume_at is not None and self._resume_at <= now:
            self._resume_at = None
            self._guarded(self._resume_accepting)
        if self._next_tick is not None and self._next_tick <= now:
            self._next_tick = None
            self._guarded(self._tick_again)

    def _tick_again(self) -> None:
        if self._tick():
            self.want_tick()

    def _run_calls(self) -> None:
        assert self._wake is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake.fileno(), len(_ONE))
        while self._calls:
            self._guarded(self._calls.popleft())

    # Accepting.

    def _accept(self) -> None:
        """One at a time: the others show at once in the next round, with all else that has come."""
        try:
            sock, _address = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno in _OUT_OF_FDS:
                self._starve()
            else:
                _log.warning("a connection cannot be accepted: %s", error)
            return
        self._starved_since = None
        self._take(sock)

    def ready(self, number: int) -> Callable[[], object] | None:
        """From the desk: a descriptor that can be read."""
        return self._watched.take(number)

    def take(self, sock: socket.socket) -> None:
        """From the desk: a connection that has said nothing."""
        self._take(sock)

    def take_asking(self, sock: socket.socket, peer: Peer, message: bytes) -> None:
        """From the desk: a connection with its request."""
        if self._may_be_known(sock, peer):
            self._answer(sock, peer, message)

    def heard(self, sock: socket.socket, event: DeskEvent) -> None:
        """From the desk: an answered connection with its last word."""
        with sock:
            if self._heard is not None:
                self._heard(sock, event)

    def _take(self, sock: socket.socket) -> None:
        """Take a connection over: its request may be here already."""
        try:
            peer = peer_of(sock)
        except OSError:
            sock.close()
            return
        if self._may_be_known(sock, peer) and not self._read(sock, peer):
            self._wait_for_request(sock, peer)

    def _may_be_known(self, sock: socket.socket, peer: Peer) -> bool:
        """Whether to talk with a peer at all; else it was told so."""
        if sock.gettimeout() is not None:
            # socket.setdefaulttimeout() was called; MSG_DONTWAIT would wait.
            sock.setblocking(True)
        if self._may_connect(peer):
            return True
        _log.info("refused %s: another user", peer)
        refuse(sock, Status.REFUSED_PEER)
        return False

    def _read(self, sock: socket.socket, peer: Peer) -> bool:
        """Read the request and hand all on; False when there is none yet."""
        try:
            message = sock.recv(REQUEST_SIZE + 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            message = b""
        if message:
            self._answer(sock, peer, message)
        else:
            sock.close()
        return True

    def _wait_for_request(self, sock: socket.socket, peer: Peer) -> None:
        if len(self._pending) >= self._limits.pending:
            self._evict()
        deadline = time.monotonic() + self._limits.handshake_seconds
        try:
            self._watched.add_once(sock, partial(self._continue, sock))
        except OSError as error:
            _log.warning("%s cannot be waited for: %s", peer, error)
            sock.close()
            return
        self._pending[sock] = _Pending(peer, deadline)

    def _continue(self, sock: socket.socket) -> None:
        pending = self._pending.pop(sock, None)
        if pending is None:
            # Dropped by an earlier event of the same round.
            return
        if not self._read(sock, pending.peer):
            self._wait_for_request(sock, pending.peer)

    def _evict(self) -> None:
        """Drop the oldest connection of the process that holds most of them."""
        pid, _ = Counter(entry.peer.pid for entry in self._pending.values()).most_common(1)[0]
        sock = next(sock for sock, entry in self._pending.items() if entry.peer.pid == pid)
        _log.debug("dropped a silent peer %s to make room", self._pending[sock].peer)
        self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        del self._pending[sock]
        self._watched.remove(sock.fileno())
        sock.close()

    # Out of fds.

    def _starve(self) -> None:
        """Accept no more for a moment; give up what can be missed, at last the peers that wait."""
        now = time.monotonic()
        # What the desk accepts in between is not seen here: an old shortage is over.
        old = now - self._starved_at > 4 * self._limits.pause_seconds
        self._starved_at = now
        if self._starved_since is None or old:
            self._starved_since = now
            _log.warning("out of file descriptors: the broker waits for some to be closed")
        self._spare_fds()
        patient = now - self._starved_since < self._limits.patience_seconds
        if not patient and not self._refuse_waiting():
            return
        if self._pending:
            self._evict()
        self._watched.remove(self._listening.fileno())
        self._resume_at = now + self._limits.pause_seconds

    def _resume_accepting(self) -> None:
        try:
            self._watched.add(self._listening.fileno(), self._accept)
        except OSError as error:
            _log.warning("connections cannot be waited for: %s", error)
            self._resume_at = time.monotonic() + self._limits.pause_seconds
        self._take_reserve()

    def _refuse_waiting(self) -> bool:
        """Tell the peers in the backlog, one after another, through the reserved fd.

        Returns whether fds are still short.
        """
        for _ in range(_REFUSALS_AT_ONCE):
            if self._reserve is None or self._reserve.closed:
                return True
            self._reserve.close()
            try:
                sock, _address = self._listening.accept()
            except OSError:
                break
            if self._take_reserve():
                # There is room for both by now: nobody is refused for what was.
                self._starved_since = None
                self._take(sock)
                return False
            refuse(sock, Status.NO_FDS if self._admissible(sock) else Status.REFUSED_PEER)
            self._take_reserve()
        self._take_reserve()
        return True

    def _admissible(self, sock: socket.socket) -> bool:
        try:
            return self._may_connect(peer_of(sock))
        except OSError:
            return False

    def _take_reserve(self) -> bool:
        """Hold an fd back for ``_refuse_waiting``; False when there is none to be had."""
        if self._reserve is None or self._reserve.closed:
            try:
                self._reserve = Fd(os.eventfd(0, os.EFD_CLOEXEC))
            except OSError as error:
                if self._watches is None or error.errno not in _OUT_OF_FDS:
                    raise
                self._reserve = None
        return self._reserve is not None

    # The doorbell.

    def _answer_doorbell(self) -> None:
        assert self._far is not None
        for sock in rings(self._far):
            self._take(sock)
