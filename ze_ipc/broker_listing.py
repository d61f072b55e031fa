"""What a broker tells of itself to people of its own user: its exports, who holds them, its
device's mappings, and the description of one handle. No secret is ever part of it.

Spoken over the broker's own socket, everything little-endian:

    question  "ZL01", u16 what, u16 0, 64 bytes: the handle (DESCRIBE), else zeros
    answer    "ZT01", u32 Status, u64 size; then ``size`` bytes of JSON in messages of <= 64 KiB

Who asks for EXPORTS or MAPPINGS must be of the broker's own user, by SO_PEERCRED; who asks to
DESCRIBE a handle must be somebody who may open it, and its secret is checked. Neither counts as an
open. All of it is written on a thread of its own, for a long table must not keep importers waiting.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import IntEnum
from socket import SHUT_RDWR, socket
from typing import Any

from ze_ipc.broker_importers import ImporterTable
from ze_ipc.broker_listener import refuse
from ze_ipc.broker_messages import DeadlinePassed, send_message
from ze_ipc.broker_pool import WorkerPool
from ze_ipc.broker_protocol import HANDLE_SIZE, MESSAGE_MANIFEST, Malformed, Status
from ze_ipc.broker_registry import Registration, Registry
from ze_ipc.errors import InvalidHandle, ZeIpcError
from ze_ipc.handle import HandleFields
from ze_ipc.policy import Peer, Policy, Verdict

_log = logging.getLogger(__name__)

_QUESTION = struct.Struct(f"<4sHH{HANDLE_SIZE}s")
_ANSWER = struct.Struct("<4sIQ")
ANSWER_SIZE = _ANSWER.size
ANSWER_LIMIT = 384 << 20
"""Bytes: a longer answer is refused before any of it is received."""

_SECONDS = 10.0
_THREADS = 2
_QUEUED = 8
_NO_HANDLE = bytes(HANDLE_SIZE)
_SECRETIVE = re.compile(r"[0-9a-fA-F]{64,}")
"""What may be a handle in a command line; whoever has one may open it."""


class What(IntEnum):
    """What is asked."""

    EXPORTS = 1
    """The process, its device, its exports and who has opened them."""
    MAPPINGS = 2
    """The same, and all mappings of the device."""
    DESCRIBE = 3
    """The manifest of one handle, and where its window lies in the exporter."""


Describe = Callable[[bool], dict[str, Any]]
"""What a device says of itself, with its mappings or without; called on a thread of ours."""


def encode_question(what: What, handle: bytes = _NO_HANDLE) -> bytes:
    """One question message."""
    return _QUESTION.pack(b"ZL01", what, 0, handle)


def is_question(message: bytes) -> bool:
    """Whether a message is one of ours, so that an open is told from it by one comparison."""
    return message[:4] == b"ZL01"


def decode_question(message: bytes) -> tuple[What, bytes]:
    """What is asked and the handle, or Malformed."""
    if len(message) != _QUESTION.size:
        raise Malformed(f"a question of {len(message)} bytes")
    magic, what, zero, handle = _QUESTION.unpack(message)
    if magic != b"ZL01" or zero or what not in tuple(What):
        raise Malformed(f"question {what}")
    if what != What.DESCRIBE and handle != _NO_HANDLE:
        raise Malformed("a handle where none belongs")
    return What(what), handle


def encode_answer(status: Status, size: int = 0) -> bytes:
    """The first message of an answer; ``size`` bytes of JSON follow."""
    return _ANSWER.pack(b"ZT01", status, size)


def decode_answer(message: bytes) -> tuple[Status, int]:
    """(status, bytes that follow) of an answer's first message, or Malformed."""
    if len(message) != ANSWER_SIZE:
        raise Malformed(f"an answer of {len(message)} bytes")
    magic, status, size = _ANSWER.unpack(message)
    if magic != b"ZT01" or status not in tuple(Status):
        raise Malformed("not an answer")
    if size > ANSWER_LIMIT or (status != Status.OK and size):
        raise Malformed(f"an answer that promises {size} bytes")
    return Status(status), size


@dataclass(eq=False, slots=True)
class _Question:
    sock: socket
    what: What
    registration: Registration | None


class Listing:
    """Answers the questions of one broker; its connections and threads end with stop()."""

    def __init__(
        self,
        registry: Registry,
        importers: Callable[[], ImporterTable],
        broker: bytes,
        describe: Describe | None,
    ) -> None:
        """``describe`` must not keep alive what closes the broker when it is collected."""
        self._registry = registry
        self._importers = importers
        self._broker = broker
        self._describe = describe
        self._lock = threading.Lock()
        self._open: set[_Question] = set()
        self._pool = WorkerPool(
            self._run, name="ze_ipc-list", max_threads=_THREADS, max_per_key=1, max_queued=_QUEUED
        )

    def take(self, sock: socket, peer: Peer, message: bytes) -> None:
        """Answer a question some time; on the listener's thread, so it waits for nothing."""
        try:
            what, raw = decode_question(message)
            begun = self._begin(what, raw, peer)
        except (Malformed, InvalidHandle) as error:
            _log.info("%s asked no proper question: %s", peer, error)
            begun = Status.BAD_REQUEST
        if isinstance(begun, Status):
            return refuse(sock, begun, encode_answer(begun))
        question = _Question(sock, what, begun)
        with self._lock:
            self._open.add(question)
        if not self._pool.submit(peer.pid or None, question):
            refuse(sock, Status.BUSY, encode_answer(Status.BUSY))
            self._end(question)
        return None

    def stop(self) -> None:
        """End every conversation and begin none; join() waits for the threads."""
        for question in self._pool.stop():
            self._end(question)
        with self._lock:
            running = list(self._open)
        for question in running:
            try:
                question.sock.shutdown(SHUT_RDWR)
            except OSError:
                _log.debug("a listing's connection had ended")

    def join(self, deadline: float) -> bool:
        """After stop(): whether the threads ended in time."""
        return self._pool.join(deadline)

    def abandon(self) -> None:
        """In a forked child: close what the parent answers on, taking no lock."""
        for question in list(self._open):
            question.sock.close()

    def _begin(self, what: What, raw: bytes, peer: Peer) -> Registration | Status | None:
        if what is not What.DESCRIBE:
            admitted = Policy().judge(peer, opens=0, now=0.0) is Verdict.ADMITTED
            return None if admitted else Status.REFUSED_PEER
        handle = HandleFields.unpack(raw)
        if handle.broker != self._broker:
            return Status.UNKNOWN
        return self._registry.begin(handle.generation, handle.secret, peer, check=True)

    # On a thread of the pool.

    def _run(self, question: _Question) -> None:
        deadline = time.monotonic() + _SECONDS
        try:
            text = json.dumps(self._answer(question), separators=(",", ":")).encode()
            send_message(question.sock, [encode_answer(Status.OK, len(text))], deadline)
            view = memoryview(text)
            for start in range(0, len(view), MESSAGE_MANIFEST):
                send_message(question.sock, [view[start : start + MESSAGE_MANIFEST]], deadline)
        except (OSError, DeadlinePassed, ZeIpcError) as error:
            _log.debug("a question was not answered to its end: %r", error)
        finally:
            self._end(question)

    def _end(self, question: _Question) -> None:
        question.sock.close()
        with self._lock:
            self._open.discard(question)
        if question.registration is not None:
            self._registry.end(question.registration)

    def _answer(self, question: _Question) -> dict[str, Any]:
        answer: dict[str, Any] = {"pid": os.getpid(), "command": _command()}
        if (registration := question.registration) is not None:
            manifest = base64.b64encode(registration.served.manifest_bytes).decode()
            return answer | {"export": self._export(registration), "manifest": manifest}
        if self._describe is not None:
            answer |= self._describe(question.what is What.MAPPINGS)
        return answer | {"exports": [self._export(row) for row in self._registry.registrations()]}

    def _export(self, registration: Registration) -> dict[str, Any]:
        served = registration.served
        importers = self._importers().of(registration.generation)
        return {
            "generation": registration.generation,
            "ptr": served.ptr,
            "size": served.size,
            "objects": served.object_count,
            "since": registration.since,
            "opens": registration.opens,
            "importers": [asdict(importer) for importer in importers],
        }


def _command() -> list[str]:
    return [_SECRETIVE.sub("<handle>", word[:256]) for word in sys.orig_argv[:32]]
