"""A process in a container: ``python container_child.py`` exports, ``... HANDLE SHOWN`` imports.

The exporter prints its handle, waits for a line, and prints what it then reads. The importer prints
what it reads and writes SHOWN.
"""

from __future__ import annotations

import contextlib
import os
import sys

import ze_ipc

PAGE = 4096
OBJECTS = 300
"""More than travel with an answer, and more than fit into one message."""


def main() -> None:
    with ze_ipc.open_device("mock") as device, contextlib.ExitStack() as owned:
        if len(sys.argv) > 1:
            view = owned.enter_context(device.open_ipc_handle(bytes.fromhex(sys.argv[1])))
            print(device.read(view.ptr, view.size).rstrip(b"\0").decode(), os.getpid(), flush=True)
            device.write(view.ptr + view.size - 8, sys.argv[2].encode())
            return
        reservation = owned.enter_context(device.reserve(OBJECTS * PAGE))
        for at in range(0, reservation.size, PAGE):
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=at)
        handle = owned.enter_context(device.get_ipc_handle(reservation.ptr, reservation.size))
        device.write(reservation.ptr, b"exported")
        print(bytes(handle).hex(), os.getpid(), flush=True)
        sys.stdin.readline()
        print(device.read(reservation.ptr + reservation.size - 8, 8).decode(), flush=True)


if __name__ == "__main__":
    main()
