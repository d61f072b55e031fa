"""The broker: the thread of an exporter that gives its ranges to those who may have them."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import secrets
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from socket import socket

from ze_ipc import broker_desk
from ze_ipc.broker_importers import ImporterTable
from ze_ipc.broker_limits import Limits
from ze_ipc.broker_listener import Listener, refuse
from ze_ipc.broker_listing import Describe, Listing, is_question
from ze_ipc.broker_pool import WorkerPool
from ze_ipc.broker_protocol import (
    RELEASE,
    Flag,
    Malformed,
    Status,
    decode_release,
    decode_request,
    doorbell_name,
)
from ze_ipc.broker_registry import SECRET_SIZE, Registration, Registry, Served
from ze_ipc.broker_service import Service, guarded, token_in
from ze_ipc.desk import Desk, DeskEvent
from ze_ipc.errors import Closed, ForkedProcess, InvalidHandle, KernelError, ZeIpcError
from ze_ipc.handle import HandleFields
from ze_ipc.host import host_identity
from ze_ipc.importer import Importer, ImporterEvent
from ze_ipc.os_errors import error_of_os
from ze_ipc.policy import PLAIN, Peer, Policy, admits_own_uid
from ze_ipc.socket_dir import SocketDir, exporter_dir, socket_name

_log = logging.getLogger(__name__)

BROKER_ID_SIZE = 8
"""Bytes."""

_BACKLOG = 4096
_CALLBACKS = 1 << 16
_CLOSE_SECONDS = 5.0
_EXIT_SECONDS = 1.0
_CHECK = int(Flag.CHECK)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is reached; a handle carries all of it but the directory."""

    host: bytes
    """8 bytes, host_identity()."""
    pid: int
    broker: bytes
    """8 random bytes: the name of the socket."""
    doorbell: int
    """fd number in this process, for the pidfd transport."""
    directory: Path


class Broker:
    """Serves exports over one unix socket until close(); safe to use from several threads.

    It knows nothing of devices. No lock is held while it sends or calls out. At rest it costs one
    thread and eight fds, whatever it serves, and one fd for each of some importing processes.
    """

    def __init__(
        self,
        *,
        directory: Path | None = None,
        limits: Limits | None = None,
        describe: Describe | None = None,
        open_desk: broker_desk.DeskMaker | None = None,
    ) -> None:
        """Listen at once: in ``directory``, or where socket_dir says. ``describe`` tells listings
        of the device; it must not keep the device alive. ``open_desk`` is the backend's, whose desk
        then answers what serve() gives it.
        """
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        self._services: set[Service] = set()
        self._heard: set[Service] = set()
        """Of these, the ones that the listener waits for; its thread's, and nobody's after it."""
        self._registry = Registry()
        limits = limits or Limits.of_process()
        self._pool = WorkerPool(
            self._serve,
            name="ze_ipc-serve",
            max_threads=limits.threads,
            max_per_key=limits.threads_a_peer,
            max_queued=limits.queued,
        )
        self._callbacks: WorkerPool[Callable[[], None]] = WorkerPool(
            lambda call: call(),
            name="ze_ipc-callbacks",
            max_threads=1,
            max_per_key=1,
            max_queued=_CALLBACKS,
        )
        broker_id = secrets.token_bytes(BROKER_ID_SIZE)
        self._listing = Listing(self._registry, lambda: self._importers, broker_id, describe)
        host = host_identity()
        with ExitStack() as taken, _translated():
            self._dir = SocketDir(directory, create=True) if directory else exporter_dir()
            taken.callback(self._dir.close)
            self._importers = ImporterTable(limits.watched)
            taken.callback(self._importers.close)
            self._dir.remove_stale()
            listening = self._dir.listen(broker_id, mode=0o600, backlog=_BACKLOG)
            taken.callback(self._dir.unlink, socket_name(broker_id))
            self._listener = Listener(
                listening,
                may_connect=lambda peer: self._registry.admits_uid(peer.uid),
                answer=self._answer,
                watched_fd=self._importers.fileno(),
                tick=self._look_after_importers,
                spare_fds=self._watch_nobody,
                limits=limits,
                open_desk=open_desk,
                heard=self._heard_at_desk,
            )
            # The first peer may be answered as soon as it has started.
            self.address = BrokerAddress(host, self._pid, broker_id, -1, self._dir.path)
            doorbell = self._listener.start(doorbell_name(broker_id))
            self.address = replace(self.address, doorbell=doorbell)
            self._pack = self.handle_fields(0, bytes(SECRET_SIZE)).packer()
            taken.pop_all()
        _live.add(self)

    def serve(
        self, served: Served, objects: array[int] | None = None, policy: Policy = PLAIN
    ) -> bytes:
        """Serve an export from now on; the 64 bytes of its handle. ``objects`` are those that
        ``served`` sends: with them the desk may answer.
        """
        generation, secret = self.register(served, policy)
        handle = self._pack(secret, generation)
        desk = self._listener.desk
        is_plain = policy is PLAIN or policy == PLAIN
        if is_plain and desk is not None and objects is not None and admits_own_uid():
            broker_desk.offer(desk, generation, handle, served, objects)
        return handle

    def register(self, served: Served, policy: Policy = PLAIN) -> tuple[int, bytes]:
        """Serve an export from now on; its (generation, secret)."""
        if self._closed or self._pid != os.getpid():
            self._check()
        if policy.uids is not None and policy.admits_others:
            self._dir.set_mode(socket_name(self.address.broker), 0o666)
        registration = self._registry.add(served, policy)
        if registration is None:
            raise Closed("the broker is closed")
        return registration.generation, registration.secret

    def handle_fields(self, generation: int, secret: bytes) -> HandleFields:
        """The handle of a registration."""
        where = self.address
        return HandleFields(where.host, where.pid, where.broker, secret, generation, where.doorbell)

    def revoke(self, generation: int, *, interrupt: bool = False) -> bool:
        """Serve that generation no more; False when it was not served.

        Opens that have begun may finish, unless ``interrupt``. ``served.retired()`` is called
        before this returns, or by the thread that ends the last of them.
        """
        self._check_process()
        at_desk = 0
        if self._desk is not None:
            # First, for it must not look at the objects once they are given back.
            at_desk = self._desk.withdraw(generation, interrupt=interrupt)
        revoked = self._registry.revoke(generation, at_desk)
        if interrupt:
            for service in self._running(generation):
                service.interrupt()
        self._importers.forget(generation)
        return revoked

    def revoke_later(self, generation: int) -> None:
        """revoke() on the broker's thread: waits for nothing, so a finaliser may call it."""
        if self._pid == os.getpid():
            self._listener.call_soon(partial(self._revoke, generation))

    def _revoke(self, generation: int) -> None:
        self.revoke(generation)

    def importers(self, generation: int) -> list[Importer]:
        """The living processes that have opened a generation, oldest first."""
        self._check_process()
        self._look_after_importers()
        return self._importers.of(generation)

    def call_back(self, call: Callable[[], None]) -> None:
        """Run a user's code some time, one call after another, on a thread for nothing else."""
        if not self._callbacks.submit(None, call) and not self._closed:
            _log.warning("a callback was dropped: %d wait already", _CALLBACKS)

    def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """End all connections, join the threads, remove the socket file, retire every export.

        Idempotent. A thread that does not end within ``timeout`` seconds is left and logged. In a
        forked child it does nothing: there is nothing left there.
        """
        if self._pid != os.getpid():
            return
        deadline = time.monotonic() + timeout
        with self._lock:
            if self._closed:
                return
            self._closed = True
        _live.discard(self)
        try:
            self._dir.unlink(socket_name(self.address.broker))
        except KernelError as error:
            _log.warning("%s (the next broker there removes it)", error)
        desk = self._desk
        left_desk = desk is None or desk.close(deadline)
        listened = self._listener.stop(deadline)
        self._listing.stop()
        self._callbacks.stop()
        for service in self._pool.stop():
            self._end(service)
        for service in self._running():
            service.interrupt()
        ended = self._listing.join(deadline) and self._pool.join(deadline) and listened
        ended = self._callbacks.join(deadline) and ended
        if listened:
            # Nobody hears their last words any more.
            for service in self._heard:
                self._end(service)
        self._registry.close()
        if desk is not None and left_desk and listened and not self._listener.on_its_thread:
            desk.free()
        self._importers.close()
        self._dir.close()
        if not ended or not left_desk:
            _log.warning("threads of %r did not end within %.1f s", self, timeout)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<Broker {self.address.broker.hex()} in {self.address.directory}{state}>"

    @property
    def _desk(self) -> Desk | None:
        return self._listener.desk

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ForkedProcess("this broker serves from the parent process", pid=self._pid)

    def _check(self) -> None:
        self._check_process()
        if self._closed:
            raise Closed("the broker is closed")

    def _abandon(self) -> None:
        """In a forked child: close what the parent answers on, taking no lock."""
        self._listener.abandon()
        for service in list(self._services):
            service.close()
        self._listing.abandon()
        self._importers.abandon()
        self._dir.close()

    # On the listener's thread.

    def _answer(self, sock: socket, peer: Peer, message: bytes) -> None:
        if is_question(message):
            return self._listing.take(sock, peer, message)
        if message[: len(RELEASE)] == RELEASE:
            sock.close()
            return self._release(peer, message)
        try:
            request = decode_request(message)
            handle = HandleFields.unpack(request.handle)
        except (Malformed, InvalidHandle) as error:
            _log.info("%s made no proper request: %s", peer, error)
            return refuse(sock, Status.BAD_REQUEST)
        if handle.broker != self.address.broker:
            return refuse(sock, Status.UNKNOWN)
        check = bool(int(request.flags) & _CHECK)
        begun = self._registry.begin(handle.generation, handle.secret, peer, check=check)
        if isinstance(begun, Status):
            _log.info("refused generation %d to %s: %s", handle.generation, peer, begun.name)
            return refuse(sock, begun)
        try:
            service = Service(sock, peer, begun, request.flags, request.room, request.first)
        except Exception:
            _log.exception("generation %d fails to be served", handle.generation)
            refuse(sock, Status.FAILED)
            return self._registry.end(begun, refund=not check)
        if check:
            service.reply()
            service.close()
            return self._registry.end(begun)
        return self._serve_soon(service)

    def _release(self, peer: Peer, message: bytes) -> None:
        try:
            generation, token = decode_release(message)
        except Malformed as error:
            return _log.info("%s made no proper release: %s", peer, error)
        if self._registry.get(generation) and (event := self._importers.release(generation, token)):
            self._tell(generation, event)
        return None

    def _serve_soon(self, service: Service) -> None:
        with self._lock:
            closing = self._closed
            if not closing:
                self._services.add(service)
        if closing:
            refuse(service.sock, Status.CLOSING)
            self._registry.end(service.registration)
        elif self._pool.full:
            refuse(service.sock, Status.BUSY)
            self._end(service, refund=True)
        elif not (replied := service.reply_with_objects()) and not service.has_fds():
            refuse(service.sock, Status.NO_FDS)
            self._end(service, refund=True)
        elif (
            replied
            and service.only_hears
            and self._listener.expect(service.sock, partial(self._hear, service))
        ):
            self._heard.add(service)
        elif not (replied or service.reply()) or not self._pool.submit(
            service.peer.pid or None, service
        ):
            self._end(service, refund=True)

    def _hear(self, service: Service, come: bool) -> bool:
        """A peer that was answered at once says something, or has said nothing for too long."""
        holds = service.hear(come)
        if holds is None and come:
            return False
        self._heard.discard(service)
        self._finish(service, holds)
        return True

    def _heard_at_desk(self, sock: socket, event: DeskEvent) -> None:
        generation, peer = event.generation, Peer(*event.peer)

        def hear() -> bool:
            if event.error:
                raise OSError(event.error, os.strerror(event.error))
            token = token_in(event.message)
            if token is not None and registration is not None:
                self._record(registration, peer, sock, token)
            return token is not None

        try:
            registration = self._registry.count_open_at_desk(generation)
            guarded(hear, peer, generation)
        finally:
            if event.ended:
                self._registry.end_at_desk(generation)

    def _watch_nobody(self) -> None:
        """Give the pidfds back while fds are short; their processes are looked at by and by."""
        self._importers.watch_nobody()
        self._listener.want_tick()

    # On any thread.

    def _serve(self, service: Service) -> None:
        holds = False
        try:
            holds = service.run()
        finally:
            self._finish(service, holds)

    def _finish(self, service: Service, holds: bool | None) -> None:
        try:
            if holds:
                self._record(service.registration, service.peer, service.sock, service.token)
        finally:
            self._end(service)

    def _end(self, service: Service, *, refund: bool = False) -> None:
        service.close()
        with self._lock:
            self._services.discard(service)
        self._registry.end(service.registration, refund=refund)

    def _record(self, registration: Registration, peer: Peer, sock: socket, token: int) -> None:
        event, watched = self._importers.add(
            registration.generation, peer, registration.served.size, sock, token
        )
        if registration.revoked:
            self._importers.forget(registration.generation)
        if not watched:
            self._listener.call_soon(self._listener.want_tick)
        if event is not None:
            _call_out(registration.served, event)

    def _look_after_importers(self) -> bool:
        """Forget the processes that have ended; whether some must be looked at again."""
        for generation, event in self._importers.take_ended():
            self._tell(generation, event)
        return self._importers.has_unwatched

    def _tell(self, generation: int, event: ImporterEvent) -> None:
        registration = self._registry.get(generation)
        if registration is not None:
            _call_out(registration.served, event)

    def _running(self, generation: int | None = None) -> list[Service]:
        with self._lock:
            return [
                service
                for service in self._services
                if generation in (None, service.registration.generation)
            ]


@contextmanager
def _translated() -> Iterator[None]:
    """What the system refuses to a starting broker, as an error of ours."""
    try:
        yield
    except ZeIpcError:
        raise
    except OSError as error:
        raise error_of_os(error, "Broker") from error
    except RuntimeError as error:
        # What threading says of a pthread_create() that failed.
        raise KernelError(str(error), errno=errno.EAGAIN, call="pthread_create") from error


def _call_out(served: Served, event: ImporterEvent) -> None:
    try:
        served.on_importer(event)
    except Exception:
        _log.exception("an export failed to take %s", event)


_live: weakref.WeakSet[Broker] = weakref.WeakSet()


def _close_all() -> None:
    for broker in list(_live):
        broker.close(_EXIT_SECONDS)


def _abandon_all() -> None:
    for broker in list(_live):
        broker._abandon()
    _live.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
