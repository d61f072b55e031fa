"""The messages between broker and importer, as bytes; pure: no socket, no clock.

Everything is little-endian and one SOCK_SEQPACKET message each:

    request   "ZQ01", u16 flags, u16 room, the 64 bytes of the handle
    extend    "ZE01", u32 first, the 64 bytes of the handle: as a request, by who holds the first
              ``first`` objects already, which are not sent
    reply     "ZR01", u32 status, u64 manifest size, u64 objects, <= 32 KiB of manifest; with the
              fds of all objects in SCM_RIGHTS or of none
    manifest  the rest in messages of <= 64 KiB, each without a header
    objects   spoken by C (object_stream.c), absent with SKIP_OBJECTS or when there are none, and
              where they came with the reply
    done      "ZD01", u32 status: 0 when the importer has opened the range, u64 token
    release   "ZF01", u32 zero, u64 generation, u64 token: over a connection of its own, unanswered

``token`` is the importer's own number for the objects it got: every open that shares them says it
when it is done, and the release says that the last of these was closed.

``room`` is how many fds may come with the reply; an export of more objects, and a broker that has
no fds to spare at that moment, sends none with it, and the stream after it. A refusal and the
answer to CHECK are a reply alone. Both sides are strangers to each other here:
a decoder refuses every message that is not exactly as above, by Malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

from ze_ipc.errors import (
    AccessDenied,
    ExporterGone,
    FdLimit,
    HandleRevoked,
    UnsupportedFeature,
    ZeIpcError,
)

HANDLE_SIZE = 64
"""Bytes of a handle; they travel as they are."""
REPLY_MANIFEST = 32 << 10
"""Bytes of manifest in the reply itself, at most."""
MESSAGE_MANIFEST = 64 << 10
"""Bytes of manifest in each later message, at most."""
MANIFEST_LIMIT = 256 << 20
"""Bytes: a longer manifest is refused before any of it is received."""
OBJECT_LIMIT = 1 << 24
"""Objects: more are refused before any is received."""

MAX_ROOM = 253
"""Fds in one message, at most; Linux's own limit."""

REQUEST_MAGIC = b"ZQ01"

_EXTEND_MAGIC = b"ZE01"

_EXTEND = struct.Struct(f"<4sI{HANDLE_SIZE}s")
_REQUEST = struct.Struct(f"<4sHH{HANDLE_SIZE}s")
_REPLY = struct.Struct("<4sIQQ")
_DONE = struct.Struct("<4sIQ")
_RELEASE = struct.Struct("<4sIQQ")

REQUEST_SIZE = _REQUEST.size
REPLY_SIZE = _REPLY.size
"""Bytes of a reply without manifest."""
DONE_SIZE = _DONE.size

RELEASE = b"ZF01"
"""What a release begins with, where a request could be."""

DOORBELL = b"ZB01"
"""What is rung on a doorbell, beside one connected socket in SCM_RIGHTS."""


def doorbell_name(broker_id: bytes) -> bytes:
    """The abstract address that the near end of a broker's doorbell is bound to."""
    return b"\0ze_ipc-doorbell-" + broker_id.hex().encode()


class Malformed(ValueError):
    """Bytes from the other side that are not the message they should be."""


class Flag(IntFlag):
    """What an importer asks for; bits without a name are refused."""

    SKIP_OBJECTS = 1
    """The importer holds the objects of this generation already."""
    CHECK = 2
    """Only whether it could be opened: no manifest, no objects, not counted as an open."""


_FLAGS = {int(flags): flags for flags in map(Flag, range(1 + sum(Flag)))}


class Status(IntEnum):
    """How a broker answers, and why not."""

    OK = 0
    REVOKED = 1
    UNKNOWN = 2
    WRONG_SECRET = 3
    REFUSED_PEER = 4
    EXPIRED = 5
    BAD_REQUEST = 6
    BUSY = 7
    NO_FDS = 8
    CLOSING = 9
    FAILED = 10


_STATUS = {int(status): status for status in Status}


@dataclass(frozen=True, slots=True)
class Request:
    """What an importer asks of a broker."""

    flags: Flag
    handle: bytes
    """64 bytes, not looked at here."""
    room: int = 0
    """How many fds may come with the reply."""
    first: int = 0
    """So many objects, the first ones, are not to be sent."""


class Reply(NamedTuple):
    """A broker's answer."""

    status: Status
    manifest_size: int
    """Bytes."""
    object_count: int
    manifest: bytes
    """The first bytes of it; the others follow in messages of their own."""


def encode_request(flags: Flag, handle: bytes, room: int = 0) -> bytes:
    """One request message; ``room`` is 0 where flags keep the objects away."""
    return _REQUEST.pack(REQUEST_MAGIC, flags, room, handle)


def encode_extend(first: int, handle: bytes) -> bytes:
    """One extend message."""
    return _EXTEND.pack(_EXTEND_MAGIC, first, handle)


def decode_request(message: bytes) -> Request:
    """The request in a message (extend is one, too), or Malformed."""
    if len(message) != REQUEST_SIZE:
        raise Malformed(f"a request of {len(message)} bytes")
    if message[: len(_EXTEND_MAGIC)] == _EXTEND_MAGIC:
        _, first, handle = _EXTEND.unpack(message)
        return Request(Flag(0), handle, first=first)
    magic, flags, room, handle = _REQUEST.unpack(message)
    if magic != REQUEST_MAGIC:
        raise Malformed("not a request")
    known = _FLAGS.get(flags)
    if known is None:
        raise Malformed(f"flags {flags:#x}")
    if room > MAX_ROOM or (flags and room):
        raise Malformed(f"flags {flags:#x} with room for {room} fds")
    return Request(known, handle, room)


def encode_refusal(status: Status) -> bytes:
    """A reply that says no more than its status."""
    return _REPLY.pack(b"ZR01", status, 0, 0)


def encode_head(manifest_size: int, object_count: int) -> bytes:
    """What the manifest's first bytes follow; alone it is the reply to CHECK."""
    return _REPLY.pack(b"ZR01", Status.OK, manifest_size, object_count)


def encode_manifest(manifest: bytes, object_count: int) -> Iterator[tuple[bytes | memoryview, ...]]:
    """The reply and the messages after it, each as buffers to be gathered; nothing is copied."""
    view = memoryview(manifest)
    yield encode_head(len(view), object_count), view[:REPLY_MANIFEST]
    for start in range(REPLY_MANIFEST, len(view), MESSAGE_MANIFEST):
        yield (view[start : start + MESSAGE_MANIFEST],)


def decode_reply(message: bytes, *, check: bool) -> Reply:
    """The reply in a message to a request with or without CHECK, or Malformed."""
    if len(message) < REPLY_SIZE:
        raise Malformed(f"a reply of {len(message)} bytes")
    magic, code, manifest_size, object_count = _REPLY.unpack_from(message)
    if magic != b"ZR01":
        raise Malformed("not a reply")
    status = _STATUS.get(code)
    if status is None:
        raise Malformed(f"status {code}")
    if manifest_size > MANIFEST_LIMIT or object_count > OBJECT_LIMIT:
        raise Malformed(f"{manifest_size} bytes of manifest, {object_count} objects")
    expected = 0 if check or status is not Status.OK else min(manifest_size, REPLY_MANIFEST)
    if len(message) != REPLY_SIZE + expected:
        raise Malformed(f"{len(message) - REPLY_SIZE} bytes of manifest where {expected} belong")
    if status is not Status.OK and (manifest_size or object_count):
        raise Malformed("a refusal that promises something")
    return Reply(status, manifest_size, object_count, message[REPLY_SIZE:])


def manifest_message_size(received: int, manifest_size: int) -> int:
    """Bytes of the next manifest message after ``received`` bytes of it."""
    return min(manifest_size - received, MESSAGE_MANIFEST)


def encode_done(status: int, token: int = 0) -> bytes:
    """The importer's last word; 0 says that it has the range."""
    return _DONE.pack(b"ZD01", status, token)


def decode_done(message: bytes) -> tuple[int, int]:
    """(status, token) in an importer's last word, or Malformed."""
    if len(message) != DONE_SIZE:
        raise Malformed(f"a last word of {len(message)} bytes")
    magic, status, token = _DONE.unpack(message)
    if magic != b"ZD01":
        raise Malformed("not a last word")
    return status, token


def encode_release(generation: int, token: int) -> bytes:
    """An importer holds the objects of that token no more."""
    return _RELEASE.pack(RELEASE, 0, generation, token)


def decode_release(message: bytes) -> tuple[int, int]:
    """(generation, token) of a message that begins with RELEASE, or Malformed."""
    if len(message) != _RELEASE.size:
        raise Malformed(f"a release of {len(message)} bytes")
    magic, zero, generation, token = _RELEASE.unpack(message)
    if magic != RELEASE or zero:
        raise Malformed("not a release")
    return generation, token


_NEW_HANDLE = "ask the exporter for a new handle"

_ERRORS: dict[Status, tuple[type[ZeIpcError], str, str | None]] = {
    Status.REVOKED: (HandleRevoked, "the exporter has put this handle", None),
    Status.UNKNOWN: (HandleRevoked, "the exporter never made this handle", _NEW_HANDLE),
    Status.WRONG_SECRET: (AccessDenied, "the handle's secret is wrong", _NEW_HANDLE),
    Status.REFUSED_PEER: (AccessDenied, "the exporter's policy refuses this process", None),
    Status.EXPIRED: (HandleRevoked, "the handle's time or opens are used up", _NEW_HANDLE),
    Status.BAD_REQUEST: (
        UnsupportedFeature,
        "the exporter does not understand the request",
        "use the same version of ze_ipc in both processes",
    ),
    Status.BUSY: (ExporterGone, "the exporter has too many opens in its queue", "try again later"),
    Status.NO_FDS: (
        FdLimit,
        "the exporter is out of file descriptors",
        "raise RLIMIT_NOFILE (ulimit -n) of the exporting process",
    ),
    Status.FAILED: (ExporterGone, "the exporter failed to serve it", "see the exporter's log"),
    Status.CLOSING: (ExporterGone, "the exporter is closing its device", None),
}
"""Status → class, cause and hint (None: the class's own) of what the importer raises."""


def error_of(status: Status) -> ZeIpcError:
    """The error that a refusal stands for (not raised)."""
    cls, cause, hint = _ERRORS[status]
    return cls(cause, call="broker", hint=hint, status=status.name)
