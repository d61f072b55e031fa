"""What a broker and a backend say to each other about answering peers without Python.

A backend may have a desk: C code that accepts the connections of a broker and answers the plain
ones, all by itself, so that a busy interpreter holds up nobody. The broker says which exports it
may answer for, and hears from it what it cannot answer and what answered peers say at the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DeskRules:
    """The protocol, as far as the desk must know it, and the bounds of what peers may cost."""

    magic: bytes
    """The first 4 bytes of a request."""
    skip_objects: int
    """The flag of a request that asks for no objects."""
    first: int
    """Bytes of manifest in the answer, at most."""
    rest: int
    """Bytes of manifest in each later message, at most."""
    heard: int
    """Peers that were answered and have not said their last word."""
    streams: int
    """Of these, how many are being sent to."""
    streams_a_peer: int
    """And of one process."""
    early_seconds: float
    """For a request; afterwards the connection is the broker's."""
    last_word_seconds: float
    patience_seconds: float
    """Until the broker hears a last word: while the interpreter works, the peer may have to wait
    for a processor. What a peer says later is never heard earlier.
    """
    stream_seconds: float
    """For all messages of one open."""
    stream_seconds_an_object: float
    """And for each of its objects."""


class DeskEventKind(IntEnum):
    """What the desk has for the broker."""

    READY = 0
    """A descriptor of the epoll set that is not the desk's can be read."""
    STRANGER = 1
    """A connection that it wants nothing to do with."""
    ASKED = 2
    """A request that it cannot answer."""
    HEARD = 3
    """The end of a conversation that it has had."""


@dataclass(frozen=True, slots=True)
class DeskEvent:
    """All but READY hand their descriptor over."""

    kind: DeskEventKind
    fd: int
    peer: tuple[int, int, int] = (0, 0, 0)
    """pid, uid, gid, as SO_PEERCRED says."""
    message: bytes = b""
    """The request, or the last word; empty where the peer has just closed its end."""
    error: int = 0
    """HEARD: the errno that there is in place of a last word; ETIME where none came in time."""
    generation: int = 0
    ended: bool = False
    """HEARD: a stream that desk.withdraw() counted has ended."""


class Desk(Protocol):
    """Safe to use from several threads; one of them calls wait()."""

    def offer(
        self, generation: int, handle: bytes, head: bytes, manifest: bytes, objects: array[int]
    ) -> None:
        """Answer for an export: every process of our effective uid that has the handle gets
        ``head`` and the manifest, and the objects. They must stay as they are until it was
        withdrawn and its streams have ended.
        """
        ...

    def withdraw(self, generation: int, *, interrupt: bool) -> int:
        """Answer for it no more, not once after this has returned; how many streams of it go on,
        each to be heard of. ``interrupt`` breaks them, and what is answered and not ended.
        """
        ...

    def wait(self, listening: int, timeout: float | None) -> Sequence[DeskEvent]:
        """Accept and answer for so many seconds, or until there is something for the broker."""
        ...

    @property
    def answered(self) -> int:
        """How many peers it has answered."""
        ...

    def close(self, deadline: float) -> bool:
        """Answer nobody any more, and break the streams; whether they ended before the deadline
        (``time.monotonic()``). wait() may go on.
        """
        ...

    def abandon(self) -> None:
        """Close every descriptor: of a forked child, and where wait() is called no more."""
        ...

    def free(self) -> None:
        """After close() returned True, when nobody calls wait() any more."""
        ...
