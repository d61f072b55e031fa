"""One validated peer and its open: reply, manifest, objects, last word.

The reply goes out on the listener's thread, where it saves the peer a change of threads and never
waits; the rest has a thread of its own.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from socket import MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_RDWR, socket

from ze_ipc.broker_messages import DeadlinePassed, receive_message, received
from ze_ipc.broker_protocol import (
    DONE_SIZE,
    MESSAGE_MANIFEST,
    REPLY_MANIFEST,
    Flag,
    Malformed,
    decode_done,
    encode_head,
    encode_manifest,
)
from ze_ipc.broker_registry import Registration
from ze_ipc.errors import ZeIpcError
from ze_ipc.fds import Fd
from ze_ipc.policy import Peer

_log = logging.getLogger(__name__)

_PEER_LEFT = frozenset({errno.EPIPE, errno.ECONNRESET})

_CHECK, _SKIP_OBJECTS = int(Flag.CHECK), int(Flag.SKIP_OBJECTS)

_FDS_NEEDED = 2
"""At once, by a sender that is as sparing as it can be."""

SECONDS = 10.0
"""For all messages of an open."""
SECONDS_AN_OBJECT = 0.001
"""And for each of its objects."""


def token_in(last_word: bytes) -> int | None:
    """The importer's number for the objects, or None where it does not hold them; EOFError,
    Malformed.
    """
    if not last_word:
        raise EOFError
    status, token = decode_done(last_word)
    return token if status == 0 else None


def guarded(serve: Callable[[], bool | None], peer: Peer, generation: int) -> bool | None:
    """What ``serve`` returns; False, and a line in the log, where it raises."""
    try:
        return serve()
    except (DeadlinePassed, TimeoutError):
        _log.warning("%s did not take generation %d in time", peer, generation)
    except Malformed as error:
        _log.warning("%s broke the protocol: %s", peer, error)
    except (ZeIpcError, OSError, EOFError) as error:
        if isinstance(error, EOFError) or getattr(error, "errno", None) in _PEER_LEFT:
            _log.debug("%s went away in the middle of an open", peer)
        else:
            # The peer sees the connection end; in a stream it cannot be told more.
            _log.warning("generation %d failed for %s: %s", generation, peer, error)
    return False


class Service:
    """Serves one open over one connection, which it owns; every wait ends at its deadline."""

    def __init__(
        self,
        sock: socket,
        peer: Peer,
        registration: Registration,
        flags: Flag,
        room: int = 0,
        first: int = 0,
    ) -> None:
        self.sock = sock
        self.peer = peer
        self.registration = registration
        self._room = room
        served = registration.served
        self._object_count = served.object_count
        manifest = self._manifest = served.manifest_bytes
        self.token = 0
        """The importer's number for the objects, once it has said that it holds them."""
        self._sent_from = first
        """Objects before it are not sent."""
        self._streams = self._object_count > first and not int(flags) & _SKIP_OBJECTS
        """Whether the objects are still to be sent."""
        self._first: tuple[bytes | memoryview, ...]
        """The message that answers."""
        if int(flags) & _CHECK:
            self._first = (encode_head(len(manifest), self._object_count),)
        else:
            self._first = next(encode_manifest(manifest, self._object_count))

    def has_fds(self) -> bool:
        """Whether fds are free to send objects by: better said now than found out in the stream."""
        if not self._streams:
            return True
        with ExitStack() as probes:
            try:
                for _ in range(_FDS_NEEDED):
                    probes.enter_context(Fd(os.dup(self.sock.fileno())))
            except OSError:
                return False
        return True

    def reply_with_objects(self) -> bool:
        """Send the first message and all objects without waiting; False: nothing was sent."""
        if self._object_count > self._room or not self._streams:
            return False
        head, body = self._first
        try:
            sent = self.registration.served.send_reply(self.sock.fileno(), bytes(head), body)
        except (ZeIpcError, OSError) as error:
            _log.debug("no objects with the answer to %s: %s", self.peer, error)
            return False
        self._streams = not sent
        return sent

    def reply(self) -> bool:
        """Send the first message without waiting; False when the peer has gone."""
        try:
            # A new connection has room for it.
            self.sock.sendmsg(self._first, (), MSG_DONTWAIT | MSG_NOSIGNAL)
        except OSError as error:
            _log.debug("%s did not wait for its answer: %s", self.peer, error)
            return False
        return True

    @property
    def only_hears(self) -> bool:
        """After the answer: whether nothing is left but the peer's last word."""
        return not self._streams and len(self._manifest) <= REPLY_MANIFEST

    def hear(self, come: bool) -> bool | None:
        """The last word without waiting: whether the peer holds the range; None: not come yet,
        which without ``come`` is too late.
        """
        return self._guarded(lambda: self._last_word(come))

    def run(self) -> bool:
        """After the answer: the rest; whether the peer said at the end that it holds the range."""
        return bool(self._guarded(self._serve))

    def _guarded(self, serve: Callable[[], bool | None]) -> bool | None:
        return guarded(serve, self.peer, self.registration.generation)

    def interrupt(self) -> None:
        """End the connection from another thread, whatever waits on it."""
        try:
            self.sock.shutdown(SHUT_RDWR)
        except OSError:
            _log.debug("the connection of %s had ended", self.peer)

    def close(self) -> None:
        """Close the connection; idempotent."""
        self.sock.close()

    def _last_word(self, come: bool) -> bool | None:
        if not come:
            raise DeadlinePassed
        message = received(self.sock, DONE_SIZE + 1)
        return None if message is None else self._holds(message)

    def _holds(self, message: bytes) -> bool:
        token = token_in(message)
        self.token = token or 0
        return token is not None

    def _serve(self) -> bool:
        deadline = time.monotonic() + SECONDS + SECONDS_AN_OBJECT * self._object_count
        rest = memoryview(self._manifest)[REPLY_MANIFEST:]
        if rest:
            socket_fd, served = self.sock.fileno(), self.registration.served
            if rc := served.send_bytes(socket_fd, rest, MESSAGE_MANIFEST, deadline):
                raise DeadlinePassed if rc == -errno.ETIME else OSError(-rc, os.strerror(-rc))
        if self._streams:
            self.registration.served.send_objects(self.sock.fileno(), deadline, self._sent_from)
        return self._holds(receive_message(self.sock, DONE_SIZE, deadline))
