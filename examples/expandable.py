"""An allocator whose one range grows, and another process that follows without moving.

Run it: ``python examples/expandable.py``. The allocator gives out pieces of one reserved range and
maps physical memory only when the pieces need it (PyTorch calls that expandable segments). After
each growth it sends 64 bytes; the importer maps just what is new, behind what it has, so that every
address that it has handed on stays right.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np

import ze_ipc

STEP = 1 << 20
"""Bytes of each physical object."""
ROOM = 64 * STEP
"""Bytes of address space on either side; it costs no memory."""


class Allocator:
    """Pieces of one growing range, one behind the other."""

    def __init__(self, device: ze_ipc.Device) -> None:
        self.device = device
        self.range = device.reserve(ROOM)
        self.mapped = self.used = 0
        self.handle: ze_ipc.RangeHandle | None = None

    def allocate(self, count: int) -> np.ndarray:
        """An array of float32 in the range, which grows where it must."""
        offset, self.used = self.used, self.used + 4 * count
        while self.mapped < self.used:
            with self.device.physical_memory(STEP) as memory:
                self.range.map(memory, at=self.mapped)
            self.mapped += STEP
        return np.asarray(self.range.array("float32", (count,), offset=offset))

    def share(self) -> bytes:
        """64 bytes of all that is mapped now; equal to the last ones where nothing was added."""
        old = self.handle
        if old is None:
            self.handle = self.device.get_ipc_handle(self.range.ptr, self.mapped)
        elif old.size != self.mapped:
            self.handle = old.extend()
            old.close()  # who has it open can follow all the same
        return bytes(self.handle)

    def close(self) -> None:
        if self.handle is not None:
            self.handle.close()
        self.range.close()


def exporter() -> None:
    command = [sys.executable, __file__, "importer"]
    with (
        ze_ipc.open_device() as device,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer,
    ):
        assert peer.stdin is not None
        assert peer.stdout is not None
        allocator = Allocator(device)
        for number, count in enumerate((1000, 300_000, 5, 2_000_000), 1):
            allocator.allocate(count)[:] = number
            print(allocator.share().hex(), allocator.used, file=peer.stdin, flush=True)
            print(peer.stdout.readline(), end="", flush=True)
        peer.stdin.close()
        assert peer.wait(60) == 0
        allocator.close()


def importer() -> None:
    view = None
    with ze_ipc.open_device() as device:
        for line in sys.stdin:
            data, used = bytes.fromhex(line.split()[0]), int(line.split()[1])
            if view is None:
                view = device.open_ipc_handle(data, reserve=ROOM)
                first = view.ptr
            else:
                view.extend(data)
            total = np.asarray(view.array("float32", (used // 4,))).sum(dtype=np.float64)
            stayed = view.ptr == first
            print(
                f"{view.size >> 20} MiB, {view.objects} objects, {stayed=}, {total=:.0f}",
                flush=True,
            )
        if view is not None:
            view.close()


if __name__ == "__main__":
    importer() if sys.argv[1:] else exporter()
