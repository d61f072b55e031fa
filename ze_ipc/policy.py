"""Who may open a handle: the peer as the kernel describes it, and the rule it is held against."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from enum import Enum

from ze_ipc.host import maps_every_uid, overflow_uid


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection, by SO_PEERCRED: what it was at connect()."""

    pid: int
    """In our pid namespace; 0 when it has no pid there."""
    uid: int
    """In our user namespace; the overflow uid when it has none there."""
    gid: int


_CREDENTIALS = struct.Struct("3i")


def peer_of(sock: socket.socket) -> Peer:
    """Who is at the other end, as the kernel recorded it at connect() or listen()."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(raw))


class Verdict(Enum):
    """What a policy says about one peer at one moment."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    """This peer is not among those who may."""
    EXPIRED = "expired"
    """Nobody may any more: the time or the number of opens is used up."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which peers may open, how often and until when; the secret is asked for besides.

    The default admits processes of the exporter's own uid and nobody else. Root is no exception:
    it could read the memory by other means (ptrace), but a broker hands nothing to root by
    mistake; name it in ``uids`` where that is wanted.
    """

    uids: frozenset[int] | None = None
    """The uids that may open, as numbered in our user namespace; None: our effective uid."""
    pids: frozenset[int] | None = None
    """The processes that may open, as numbered in our pid namespace; None: any."""
    max_opens: int | None = None
    """How many opens may begin; None: any number. Checks (can_open) and refusals do not count."""
    not_after: float | None = None
    """Seconds on time.monotonic() after which no open may begin; None: never ends."""
    read_only: bool = False
    """Importers map every byte read-only. ze_ipc keeps to it; the kernel holds nobody to it, for
    who has an object's dma-buf fd can import and map the object as it likes.
    """

    def judge(self, peer: Peer, *, opens: int, now: float) -> Verdict:
        """What to do with a peer after ``opens`` opens have begun; pure but for our own uid."""
        uids = frozenset({os.geteuid()}) if self.uids is None else self.uids
        if peer.uid not in uids or not _names_one_user(peer.uid):
            return Verdict.REFUSED
        if self.pids is not None and peer.pid not in self.pids:
            return Verdict.REFUSED
        if self.not_after is not None and now > self.not_after:
            return Verdict.EXPIRED
        if self.max_opens is not None and opens >= self.max_opens:
            return Verdict.EXPIRED
        return Verdict.ADMITTED

    @property
    def admits_others(self) -> bool:
        """Whether peers of another uid must be able to reach the socket file at all."""
        return self.uids is not None and not self.uids <= {os.geteuid()}


PLAIN = Policy()
"""What holds where nobody says anything else."""


def admits_own_uid() -> bool:
    """Whether Policy() admits any peer at all."""
    return _names_one_user(os.geteuid())


def _names_one_user(uid: int) -> bool:
    """False for the overflow uid inside a user namespace, where it stands for all strangers."""
    return uid != overflow_uid() or maps_every_uid()
