"""What a broker's peers may cost it, in connections, threads, fds and seconds."""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that hold whatever the peers do."""

    pending: int = 128
    """Connections that have not made their request yet."""
    handshake_seconds: float = 2.0
    """Time for that."""
    early_seconds: float = 0.02
    """Time for that at the desk; then it is one of those pending."""
    heard: int = 256
    """Peers that were answered at once and have not said yet that they hold the range."""
    last_word_seconds: float = 10.0
    """Time for that."""
    threads: int = 64
    """Opens served at once."""
    threads_a_peer: int = 8
    """Of these for one process."""
    queued: int = 1024
    """Opens that wait for a thread; more are told to come again."""
    watched: int = 64
    """Importing processes whose end is known at once, by an fd each."""
    pause_seconds: float = 0.05
    """Between attempts to accept while there are no fds."""
    patience_seconds: float = 0.25
    """How long that may go on before waiting peers are refused."""
    tick_seconds: float = 5.0
    """Between looks at importing processes without such an fd."""

    @classmethod
    def of_process(cls) -> Limits:
        """The bounds that leave at least a third of this process's fds to others."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return cls()
        return cls(
            pending=max(8, min(cls().pending, soft // 8)),
            heard=max(8, min(cls().heard, soft // 32)),
            threads=max(8, min(cls().threads, soft // 8)),
            queued=max(32, min(cls().queued, soft // 4)),
            watched=min(cls().watched, soft // 8),
        )
