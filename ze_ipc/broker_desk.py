"""What a broker has its backend's desk answer, and what it does with what the desk hands back."""

from __future__ import annotations

import socket
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from ze_ipc.broker_limits import Limits
from ze_ipc.broker_protocol import (
    MESSAGE_MANIFEST,
    REPLY_MANIFEST,
    REQUEST_MAGIC,
    Flag,
    encode_head,
)
from ze_ipc.broker_registry import Served
from ze_ipc.broker_service import SECONDS, SECONDS_AN_OBJECT
from ze_ipc.desk import Desk, DeskEvent, DeskEventKind, DeskRules
from ze_ipc.policy import Peer

Call = Callable[[], object]
DeskMaker = Callable[[int, DeskRules], "Desk | None"]
"""Backend.open_desk."""

_PATIENCE_SECONDS = 0.002


def rules_of(limits: Limits) -> DeskRules:
    """The desk's share of a broker's bounds."""
    return DeskRules(
        magic=REQUEST_MAGIC,
        skip_objects=int(Flag.SKIP_OBJECTS),
        first=REPLY_MANIFEST,
        rest=MESSAGE_MANIFEST,
        heard=max(4, limits.heard // 2),
        streams=max(2, limits.threads // 4),
        streams_a_peer=max(1, limits.threads_a_peer // 2),
        early_seconds=limits.early_seconds,
        last_word_seconds=limits.last_word_seconds,
        patience_seconds=_PATIENCE_SECONDS,
        stream_seconds=SECONDS,
        stream_seconds_an_object=SECONDS_AN_OBJECT,
    )


def offer(
    desk: Desk,
    generation: int,
    handle: bytes,
    served: Served,
    objects: array[int],
) -> None:
    """Have the desk answer for an export, of which nothing but the peer's uid is asked (PLAIN);
    whatever else a policy says is Python's to judge.
    """
    manifest = served.manifest_bytes
    desk.offer(generation, handle, encode_head(len(manifest), len(objects)), manifest, objects)


class Counter(Protocol):
    """Whoever goes on with what the desk hands over; each call gets the socket as its own."""

    def ready(self, number: int) -> Call | None:
        """What to call for a descriptor that can be read."""
        ...

    def take(self, sock: socket.socket) -> object:
        """A connection that has said nothing."""
        ...

    def take_asking(self, sock: socket.socket, peer: Peer, message: bytes) -> object:
        """A connection with its request."""
        ...

    def heard(self, sock: socket.socket, event: DeskEvent) -> object:
        """An answered connection with its last word."""
        ...


def calls_of(events: Sequence[DeskEvent], counter: Counter) -> Iterator[Call]:
    """The call to make for each event."""
    for event in events:
        if event.kind is DeskEventKind.READY:
            if (call := counter.ready(event.fd)) is not None:
                yield call
            continue
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=event.fd)
        if event.kind is DeskEventKind.STRANGER:
            yield partial(counter.take, sock)
        elif event.kind is DeskEventKind.ASKED:
            yield partial(counter.take_asking, sock, Peer(*event.peer), event.message)
        else:
            yield partial(counter.heard, sock, event)
