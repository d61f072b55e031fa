"""The importer's side: a connection to the broker that a handle names, and what it gives.

Nothing the exporter says is believed: every message must be exactly what the protocol allows, sizes
have limits, and every wait ends at the connection's deadline.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Literal, Protocol

from ze_ipc import transport_attempt
from ze_ipc.backend import Asked, Opened, Opening, Question
from ze_ipc.broker_messages import (
    DeadlinePassed,
    receive_bytes,
    receive_message,
    receive_with_fds,
    send_message,
)
from ze_ipc.broker_protocol import (
    MAX_ROOM,
    MESSAGE_MANIFEST,
    REPLY_MANIFEST,
    REPLY_SIZE,
    Flag,
    Malformed,
    Reply,
    Status,
    decode_reply,
    encode_done,
    encode_extend,
    encode_release,
    encode_request,
    error_of,
)
from ze_ipc.errors import (
    Closed,
    ExporterGone,
    InvalidArgument,
    InvalidHandle,
    WrongHost,
    ZeIpcError,
)
from ze_ipc.fds import close_fd
from ze_ipc.handle import HandleFields
from ze_ipc.host import host_identity
from ze_ipc.os_errors import error_of_os
from ze_ipc.socket_dir import candidate_paths, socket_name
from ze_ipc.transport_dial import (
    FIRST_DELAY,
    LONGEST_DELAY,
    SEQPACKET,
    dial_broker,
    pause,
    timed_out,
)
from ze_ipc.transport_pidfd import dial_by_pidfd

_log = logging.getLogger(__name__)

TransportName = Literal["broker", "pidfd"]

ReceiveBytes = Callable[[int, memoryview, int, float], int]
"""Backend.receive_bytes."""


class Asking(Protocol):
    """What a connection may leave to a backend; see there."""

    @property
    def reply_room(self) -> int: ...
    def start_asking(
        self, directory: str, name: str, request: bytes, objects: bool, deadline: float
    ) -> Question | int: ...
    def finish_asking(self, question: Question, opening: Opening | None) -> Asked | int: ...
    def tell(self, socket: int, directory: str, name: str, message: bytes) -> int: ...


_CALL = "open_ipc_handle"
_ATTEMPTS = 12
_NO_FLAG = Flag(0)
_SEND_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_RELEASE_SECONDS = 0.05
_NOBODY_THERE = frozenset({-errno.ENOENT, -errno.ECONNREFUSED})


class Connection:
    """One conversation with a broker: request(), manifest(), the objects, finish().

    Owns its socket and may be closed at any point; used by one thread. The broker may drop it
    before it has answered (too many strangers at its door); it is made again then, a few times.
    """

    def __init__(
        self,
        handle: HandleFields,
        deadline: float,
        transport: TransportName,
        dial: Callable[[HandleFields, float], socket.socket],
        packed: bytes | None = None,
        asking: Asking | None = None,
    ) -> None:
        """``packed``: the handle's bytes, where they are at hand. With ``asking`` it is only made
        when there is something to say.
        """
        self._packed = packed
        self.transport: TransportName = transport
        self.deadline = deadline
        """Seconds on time.monotonic()."""
        self._handle = handle
        self._dial = dial
        self._reply: Reply | None = None
        self._room = 0
        self._first = 0
        self._fds: array[int] = array("i")
        self._sock_lock = threading.Lock()
        """Around the end of the socket: interrupt() must not end another of its number."""
        self._asking = asking
        self._question: Question | None = None
        self._opening: Opening | None = None
        self._closed = False
        self.opened: Opened | None = None
        """After request(): what of the range is done already. The caller's."""
        self.greeted = False
        """Whether the object stream has begun, as receive_objects() is to be told."""
        self._number = -1
        """The socket, as long as nothing but its number is asked for."""
        self._sock: socket.socket | None = dial(handle, deadline) if asking is None else None

    def start(self, *, skip_objects: bool = False) -> None:
        """Ask already what request() will ask, where that can be done without waiting: the broker
        wakes up meanwhile.
        """
        asking = self._asking
        if asking is None:
            return
        handle = self._packed or self._handle.pack()
        flags = Flag.SKIP_OBJECTS if skip_objects else _NO_FLAG
        request, name = encode_request(flags, handle), socket_name(self._handle.broker)
        for path in candidate_paths():
            started = asking.start_asking(path, name, request, not skip_objects, self.deadline)
            if not isinstance(started, int):
                self._question = started
            elif started in _NOBODY_THERE:
                continue
            return

    def request(
        self, *, skip_objects: bool = False, room: int = 0, opening: Opening | None = None
    ) -> Reply:
        """Ask for the range; the broker's refusal is raised as what it means.

        ``room``: so many descriptors may come with the answer; see take_fds(). A connection that
        has ``asking`` finds it out by itself, and may go on as ``opening`` says: see ``opened``.
        """
        if skip_objects:
            return self._ask(Flag.SKIP_OBJECTS)
        self._opening = opening
        self._room = min(room, MAX_ROOM)
        return self._ask(_NO_FLAG)

    def request_from(self, first: int) -> Reply:
        """Ask for the range and its objects from the ``first`` on, by the stream."""
        self._first = first
        return self._ask(_NO_FLAG)

    def take_fds(self) -> array[int]:
        """After request(): the descriptors of all objects (``array('i')``, the caller's to close
        from now on), or none: the object stream brings them then.
        """
        fds, self._fds = self._fds, array("i")
        return fds

    def check(self) -> Reply:
        """Ask whether request() would be answered; the broker ends the connection after it."""
        return self._ask(Flag.CHECK)

    def manifest(self, receive: ReceiveBytes = receive_bytes) -> bytes:
        """All bytes of the manifest, after request(); ``receive`` is the backend's receive_bytes,
        which gives up the GIL once.
        """
        reply = self._reply
        if reply is None:
            raise InvalidArgument("there was no request yet", call="Connection.manifest")
        if len(reply.manifest) == reply.manifest_size:
            return reply.manifest
        manifest = bytearray(reply.manifest_size)
        manifest[:REPLY_MANIFEST] = reply.manifest
        with memoryview(manifest)[REPLY_MANIFEST:] as rest:
            rc = receive(self.fileno(), rest, MESSAGE_MANIFEST, self.deadline)
        if rc == -errno.ETIME:
            raise timed_out("the exporter stopped in the middle of the manifest")
        if rc == -errno.EBADMSG:
            raise _protocol_error("a manifest message of another size")
        if rc in (-errno.ECONNRESET, -errno.EPIPE):
            raise ExporterGone("the exporter ended in the middle of the manifest", call=_CALL)
        if rc:
            raise error_of_os(OSError(-rc, os.strerror(-rc)), "recv")
        return bytes(manifest)

    def fileno(self) -> int:
        """The socket, for the object stream; it stays ours."""
        return self._open_socket().fileno() if self._number < 0 else self._number

    def finish(self, status: int = 0, token: int = 0) -> None:
        """Tell the broker how it ended (0: we hold the range, by that token) and close.

        That it cannot be told is no error: the range needs the exporter no more.
        """
        word = encode_done(status, token)
        number, self._number = self._number, -1
        if self._asking is not None and number >= 0:
            self._closed = True
            rc = self._asking.tell(number, "", "", word)
            return _log.debug("the exporter was told of status %d: %d", status, rc)
        self._number = number
        try:
            send_message(self._open_socket(), [word], self.deadline)
        except (OSError, DeadlinePassed) as error:
            _log.debug("the exporter was not told of status %d: %r", status, error)
        finally:
            self.close()
        return None

    def tell_released(self, token: int) -> None:
        """After finish(): tell the exporter that we hold nothing by that token any more, by a new
        connection. Waits a moment at most; that it cannot be told is no error.
        """
        word = encode_release(self._handle.generation, token)
        if self._asking is not None:
            name = socket_name(self._handle.broker)
            for path in candidate_paths():
                rc = self._asking.tell(-1, path, name, word)
                if rc == 0:
                    return
                if rc not in _NOBODY_THERE:
                    break
        try:
            with self._dial(self._handle, time.monotonic() + _RELEASE_SECONDS) as sock:
                sock.send(word, _SEND_FLAGS)
        except (OSError, ZeIpcError, DeadlinePassed) as error:
            _log.debug("the exporter was not told of a release: %r", error)

    def interrupt(self) -> None:
        """End the waiting of the thread that uses it, from another thread."""
        with self._sock_lock:
            if self._sock is not None:
                with suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the conversation; idempotent."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        with self._sock_lock:
            sock, self._sock = self._sock, None
            if sock is not None:
                sock.close()
        number, self._number = self._number, -1
        if number >= 0:
            close_fd(number)
        while self._fds:
            close_fd(self._fds.pop())
        question, self._question = self._question, None
        if question is not None:
            question.close()

    @property
    def closed(self) -> bool:
        """Whether close() or finish() was called."""
        return self._closed

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<Connection to {self._handle.broker.hex()} by {self.transport}{state}>"

    def _open_socket(self) -> socket.socket:
        if self._sock is None:
            if self._number < 0:
                raise Closed("the connection is closed")
            number, self._number = self._number, -1
            self._sock = socket.socket(socket.AF_UNIX, SEQPACKET, 0, fileno=number)
        return self._sock

    def _ask(self, flags: Flag) -> Reply:
        if self._closed:
            raise Closed("the connection is closed")
        handle = self._packed or self._handle.pack()
        request = encode_extend(self._first, handle) if self._first else b""
        delay = FIRST_DELAY
        for attempt in range(_ATTEMPTS):
            if attempt:
                pause(delay, self.deadline)
                delay = min(2 * delay, LONGEST_DELAY)
                self._drop()
            message = None if attempt or request else self._answer_to_question(flags)
            if message is None:
                if self._sock is None:
                    self._sock = self._dial(self._handle, self.deadline)
                message = self._exchange(request or encode_request(flags, handle, self._room))
            if not message:
                continue
            try:
                reply = decode_reply(message, check=flags is Flag.CHECK)
            except Malformed as error:
                raise _protocol_error(str(error)) from error
            if self._fds and not len(self._fds) == reply.object_count <= self._room:
                raise _protocol_error(
                    f"{len(self._fds)} descriptors for {reply.object_count} objects"
                )
            if reply.status is Status.OK:
                self._reply = reply
                return reply
            if reply.status is not Status.BUSY:
                raise error_of(reply.status)
        if message:
            raise error_of(Status.BUSY)
        raise ExporterGone(
            f"the exporter ended the connection {_ATTEMPTS} times without an answer", call=_CALL
        )

    def _answer_to_question(self, flags: Flag) -> bytes | None:
        """What _exchange() returns, of a question that start() has put; None: do it by steps."""
        asking, question = self._asking, self._question
        if asking is None:
            return None
        objects = flags is _NO_FLAG
        if question is not None:
            answer = asking.finish_asking(question, self._opening if objects else None)
            self._question = None
            if not isinstance(answer, int):
                (self._number, self._room, message, self._fds, lost, self.greeted, self.opened) = (
                    answer
                )
                self._closed = self._number < 0
                if lost:
                    self._room = 0
                    return b""
                return message
            if answer == -errno.ETIME:
                raise timed_out("the exporter did not answer")
        if objects:
            self._room = asking.reply_room
        return None

    def _exchange(self, request: bytes) -> bytes:
        """The answer; empty when the broker ended the connection before it."""
        sock = self._open_socket()
        try:
            try:
                send_message(sock, [request], self.deadline)
            except ConnectionError:
                # It may have answered already, before the request: look.
                _log.debug("the broker closed before it was asked")
            limit = REPLY_SIZE + REPLY_MANIFEST
            if not self._room:
                return receive_message(sock, limit, self.deadline)
            message, self._fds, lost = receive_with_fds(sock, limit, self._room, self.deadline)
            if lost:
                # Other threads took what was free: once more, by the stream, which adapts.
                self._room = 0
                return b""
            return message
        except ConnectionError:
            return b""
        except DeadlinePassed:
            raise timed_out("the exporter did not answer") from None
        except OSError as error:
            raise error_of_os(error, "recv") from error


def connect(
    handle: HandleFields,
    deadline: float,
    *,
    transport: TransportName | None = None,
    packed: bytes | None = None,
    asking: Asking | None = None,
) -> Connection:
    """A connection to the handle's broker, made before ``deadline`` (time.monotonic() seconds).

    ``transport`` None: what ZE_IPC_TRANSPORT says, "broker" if it says nothing. One is never taken
    in place of the other. ``packed`` is the handle's bytes, where they are at hand. ``asking`` may
    make it together with the first request, and all errors come with that. WrongHost, ExporterGone,
    AccessDenied, TransportDenied, OpenTimeout.
    """
    if handle.host != host_identity():
        raise WrongHost("the handle is of another machine or boot", call=_CALL, host=handle.host)
    name = transport or chosen_transport()
    attempt = transport_attempt.current.get()
    if name != "broker" or attempt is not None:
        # Who calls an open off must have a socket to shut down.
        asking = None
    connection = Connection(handle, deadline, name, _DIALS[name], packed, asking)
    if attempt is not None:
        with ExitStack() as undo:
            undo.callback(connection.close)
            attempt.watch(connection)
            undo.pop_all()
    if name not in _logged:
        _log_once(name)
    return connection


def probe(handle: HandleFields, deadline: float) -> Reply:
    """What an open would be told by now, without opening; raises what it would raise."""
    with connect(handle, deadline) as connection:
        return connection.check()


def chosen_transport() -> TransportName:
    """The transport that ZE_IPC_TRANSPORT asks for."""
    name = os.environ.get("ZE_IPC_TRANSPORT") or "broker"
    if name not in _DIALS:
        raise InvalidArgument(
            f"ZE_IPC_TRANSPORT is {name!r}", call=_CALL, hint=f"set it to one of {[*_DIALS]}"
        )
    return name


_DIALS: dict[TransportName, Callable[[HandleFields, float], socket.socket]] = {
    "broker": dial_broker,
    "pidfd": dial_by_pidfd,
}

_logged: set[str] = set()


def _log_once(name: TransportName) -> None:
    _logged.add(name)
    _log.info("handles are opened by the %s transport", name)


def _protocol_error(what: str) -> InvalidHandle:
    return InvalidHandle(
        f"the exporter broke the protocol: {what}",
        call=_CALL,
        hint="use the same version of ze_ipc in both processes",
    )
