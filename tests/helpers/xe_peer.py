"""The other process of the stream tests: ``python xe_peer.py ROLE SOCKET COUNT SIZE [options]``.

Prints one JSON object when done. Every object's first eight bytes hold its number.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from array import array
from pathlib import Path

from ze_ipc.errors import ZeIpcError
from ze_ipc.xe import XeBackend, open_mock


def numbers_of(backend: XeBackend, objects: array[int]) -> array[int]:
    """The first eight bytes of every object."""
    count = len(objects)
    data = array("Q", bytes(8 * count))
    view = memoryview(data).cast("B")
    backend.read_extents(objects, array("Q", bytes(8 * count)), array("Q", [8] * count), view)
    view.release()
    return data


def number(backend: XeBackend, objects: array[int]) -> None:
    """Write every object's number into its first eight bytes."""
    count = len(objects)
    view = memoryview(array("Q", range(count))).cast("B")
    backend.write_extents(objects, array("Q", bytes(8 * count)), array("Q", [8] * count), view)


def open_fds() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def warm_up(backend: XeBackend) -> None:
    """The mock opens its one descriptor a process when it first needs bytes."""
    objects = backend.create_objects(4096, "host", 1)
    number(backend, objects)
    backend.release_objects(objects)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["receive", "send"])
    parser.add_argument("socket", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("--nofile", type=int)
    parser.add_argument("--hold", type=int, default=0, help="fds to hold open meanwhile")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=60)
    args = parser.parse_args()
    if args.nofile:
        resource.setrlimit(resource.RLIMIT_NOFILE, (args.nofile, args.nofile))
    held = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(args.hold)]
    report: dict[str, object] = {}
    with open_mock(args.device) as backend:
        warm_up(backend)
        fds = open_fds()
        deadline = time.monotonic() + args.timeout
        try:
            if args.role == "receive":
                sizes = array("Q", [args.size] * args.count)
                objects = backend.receive_objects(args.socket, sizes, deadline)
                report["good"] = numbers_of(backend, objects) == array("Q", range(args.count))
            else:
                objects = backend.create_objects(args.size, "host", args.count)
                number(backend, objects)
                backend.send_objects(args.socket, objects, deadline)
            backend.release_objects(objects)
        except ZeIpcError as error:
            report["error"] = type(error).__name__
            report["object_index"] = error.object_index
        report["leaked_fds"] = open_fds() - fds
        report["live_objects"] = backend.live_objects
    for fd in held:
        os.close(fd)
    report["peak_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(report))


if __name__ == "__main__":
    main()
