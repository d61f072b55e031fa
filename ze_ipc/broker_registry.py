"""What a broker serves: the exports by generation, and whether a peer may have one of them."""

from __future__ import annotations

import hmac
import logging
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from ze_ipc.broker_protocol import Status
from ze_ipc.importer import ImporterEvent
from ze_ipc.policy import Peer, Policy, Verdict

_log = logging.getLogger(__name__)

SECRET_SIZE = 16
"""Bytes."""

_STATUS_OF = {Verdict.REFUSED: Status.REFUSED_PEER, Verdict.EXPIRED: Status.EXPIRED}


class Served(Protocol):
    """What a broker is given to serve; it must stay as it is until retired().

    Every method is called without a lock held, from any thread, several at a time.
    """

    @property
    def manifest_bytes(self) -> bytes:
        """The manifest as it goes over the wire."""
        ...

    @property
    def object_count(self) -> int:
        """How many objects send_objects() sends."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the window, for lists of importers."""
        ...

    @property
    def ptr(self) -> int:
        """GPU VA of the window in the exporter, for listings."""
        ...

    def send_reply(self, socket_fd: int, head: bytes, body: bytes | memoryview) -> bool:
        """Send ``head + body`` as one message with the fds of all objects, waiting for nothing;
        False: it cannot be, and nothing was sent. Called on the listener's thread.
        """
        ...

    def send_bytes(self, socket_fd: int, data: memoryview, message: int, deadline: float) -> int:
        """Send bytes of the manifest in messages of ``message`` bytes: 0 or -errno."""
        ...

    def send_objects(self, socket_fd: int, deadline: float, first: int = 0) -> None:
        """Send the objects' fds, from the ``first`` on, over a connected unix socket, which stays
        the broker's.
        """
        ...

    def on_importer(self, event: ImporterEvent) -> None:
        """A peer has said that it holds the range now, or no more, or it has ended."""
        ...

    def retired(self) -> None:
        """Once, after it was revoked and the last service ended: the broker is done with it."""
        ...


@dataclass(eq=False, slots=True)
class Registration:
    """One export under its generation; its counts belong to the registry's lock."""

    generation: int
    secret: bytes
    served: Served
    policy: Policy
    uids: frozenset[int]
    """The uids of the policy, as they were when it was registered."""
    opens: int = 0
    services: int = 0
    revoked: bool = False
    since: float = field(default_factory=time.time)
    """time.time() of its registration."""


class Registry:
    """Generations are 1, 2, 3, ...: one that is not in the table and below the next was revoked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._table: dict[int, Registration] = {}
        self._leaving: dict[int, Registration] = {}
        """Revoked ones that the desk still sends."""
        self._uids: Counter[int] = Counter()
        self._closed = False

    def add(self, served: Served, policy: Policy) -> Registration | None:
        """Serve an export from now on, under a new generation and secret; None after close()."""
        uids = frozenset({os.geteuid()}) if policy.uids is None else policy.uids
        secret = os.urandom(SECRET_SIZE)
        with self._lock:
            if self._closed:
                return None
            registration = Registration(self._next, secret, served, policy, uids)
            self._next += 1
            self._table[registration.generation] = registration
            counts = self._uids
            for uid in uids:
                counts[uid] = counts.get(uid, 0) + 1
        return registration

    def admits_uid(self, uid: int) -> bool:
        """Whether any export could be opened by that uid; ours is always told why not."""
        return uid == os.geteuid() or uid in self._uids

    def begin(
        self, generation: int, secret: bytes, peer: Peer, *, check: bool
    ) -> Registration | Status:
        """Begin a service, to be ended by end(), or say why there is none."""
        with self._lock:
            registration = self._table.get(generation)
            if registration is None:
                return Status.REVOKED if 0 < generation < self._next else Status.UNKNOWN
            if not hmac.compare_digest(secret, registration.secret):
                return Status.WRONG_SECRET
            verdict = registration.policy.judge(
                peer, opens=registration.opens, now=time.monotonic()
            )
            if verdict is not Verdict.ADMITTED:
                return _STATUS_OF[verdict]
            registration.services += 1
            if not check:
                registration.opens += 1
            return registration

    def end(self, registration: Registration, *, refund: bool = False) -> None:
        """End a service, with ``refund`` not counting it as an open; the last one of a revoked
        export retires it.
        """
        with self._lock:
            registration.services -= 1
            registration.opens -= refund
            retire = registration.revoked and not registration.services
            if retire:
                self._leaving.pop(registration.generation, None)
        if retire:
            _retire(registration)

    def count_open_at_desk(self, generation: int) -> Registration | None:
        """Count an open that the desk has answered; its registration, if it is not revoked."""
        with self._lock:
            registration = self._table.get(generation)
            if registration is not None:
                registration.opens += 1
            return registration

    def end_at_desk(self, generation: int) -> None:
        """End a service that revoke() was told of; it may end before revoke() knows."""
        with self._lock:
            registration = self._leaving.get(generation) or self._table.get(generation)
            if registration is None:
                return
            registration.services -= 1
            retire = registration.revoked and not registration.services
            if retire:
                self._leaving.pop(generation, None)
        if retire:
            _retire(registration)

    def get(self, generation: int) -> Registration | None:
        """The registration of a generation that is not revoked."""
        return self._table.get(generation)

    def registrations(self) -> list[Registration]:
        """Those that are not revoked, oldest first."""
        with self._lock:
            return list(self._table.values())

    def revoke(self, generation: int, at_desk: int = 0) -> bool:
        """Serve that generation no more; services that run may finish, and so may as many that the
        desk has begun. False: it was not served.
        """
        with self._lock:
            registration = self._table.pop(generation, None)
            if registration is None:
                return False
            registration.revoked = True
            registration.services += at_desk
            if at_desk and registration.services:
                self._leaving[generation] = registration
            self._uids.subtract(registration.uids)
            self._uids += Counter()
            retire = not registration.services
        if retire:
            _retire(registration)
        return True

    def close(self) -> None:
        """Revoke every generation and take no more."""
        with self._lock:
            self._closed = True
            generations = list(self._table)
        for generation in generations:
            self.revoke(generation)


def _retire(registration: Registration) -> None:
    try:
        registration.served.retired()
    except Exception:
        # Nobody waits for it, and the other exports must be retired too.
        _log.exception("generation %d was not given back", registration.generation)
