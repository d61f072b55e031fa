"""A process that means no good: ``python hostile_child.py SOCKET HANDLE DEAD_HANDLE`` keeps at a
broker by every means until its standard input ends, and prints how often it tried.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import sys
from collections import deque

from ze_ipc.broker_protocol import Flag, encode_done, encode_release, encode_request

KEPT = 300
"""Connections that are kept open at once; older ones are dropped."""
MANY = 3000
"""Connections after which it says that it was at it long enough."""
BURST = 100
"""Connections in a row."""
PAUSE = 0.02
"""Seconds after that."""


def words(handle: bytes, dead: bytes) -> list[list[bytes]]:
    """What is said over one connection, and then no more."""
    good = encode_request(Flag(0), handle)
    wrong = bytearray(handle)
    wrong[40] ^= 1  # the secret
    return [
        [],  # says nothing
        [good[:9]],  # half a message
        [good],  # asks, and reads nothing
        [encode_request(Flag(0), handle, 64)],  # the same with room for objects
        [good, b"x"],
        [good, encode_done(0, 1)],  # says that it holds what it never took
        [encode_request(Flag(0), bytes(wrong))],
        [encode_request(Flag(0), dead)],  # a handle that was put
        [encode_release(1, 12345)],
        [b"\0" * 60_000],
    ]


def main() -> None:
    path = sys.argv[1]
    said = words(bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3]))
    kept: deque[socket.socket] = deque()
    tries = 0
    for messages in itertools.cycle(said):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        kept.append(sock)
        with contextlib.suppress(OSError):
            sock.connect(path)
            for message in messages:
                sock.send(message, socket.MSG_NOSIGNAL)
        tries += 1
        if len(kept) > KEPT:
            kept.popleft().close()
        if tries in (KEPT, MANY):
            print("at it", flush=True)
        # As fast as it can it would measure who gets the processor.
        if tries % BURST == 0 and select.select([0], [], [], PAUSE)[0]:
            break
    for sock in kept:
        sock.close()
    print(tries, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
