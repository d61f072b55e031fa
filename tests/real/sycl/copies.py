"""Copies between every two kinds of SYCL memory, by dpctl; run in the root, by its Python.

Usage: copies.py LARGEST_COPY_WITHIN_THE_DEVICE [--sabotage]. Exit: 0 right, 3 wrong bytes.
"""

from __future__ import annotations

import itertools
import sys

import dpctl
import dpctl.memory as memory
import numpy as np

SIZES = (1, 63, 4096, 8192, 100_000, (1 << 21) + 17)
KINDS = {
    "device": memory.MemoryUSMDevice,
    "host": memory.MemoryUSMHost,
    "shared": memory.MemoryUSMShared,
}
CANARY = 0xEE


class Check:
    """Does the copies and looks at the bytes; sabotaged it only looks."""

    def __init__(self, queue: dpctl.SyclQueue, sabotage: bool) -> None:
        self.queue = queue
        self.sabotage = sabotage
        self.bad = self.looked_at = 0

    def new(self, kind: str, size: int) -> memory._Memory:
        """Memory of a kind, filled with the canary."""
        block = KINDS[kind](size, queue=self.queue)
        block.copy_from_host(np.full(size, CANARY, np.uint8))
        return block

    def data(self, size: int) -> np.ndarray:
        """Bytes that are neither zero nor the canary, other ones every time."""
        generator = np.random.default_rng(self.looked_at)
        return generator.integers(1, 0xED, size, dtype=np.uint8)

    def same(self, block: memory._Memory, wanted: np.ndarray, what: str) -> None:
        """Compare memory with bytes."""
        found = np.full(wanted.size, CANARY, np.uint8)
        block.copy_to_host(found)
        bad = int(np.count_nonzero(found != wanted))
        self.looked_at += wanted.size
        self.bad += bad
        if bad:
            print(f"{what}: {bad} of {wanted.size} bytes wrong")

    def copy(self, to: memory._Memory, source: memory._Memory, size: int, how: str) -> None:
        """Copy by one of the three ways that dpctl has."""
        if self.sabotage:
            return
        if how == "memory":
            to.copy_from_device(source)
        elif how == "queue":
            self.queue.memcpy(to, source, size)
        else:
            self.queue.memcpy_async(to, source, size).wait()


def main() -> int:
    """Run the whole matrix on every device."""
    largest = int(sys.argv[1])
    devices = dpctl.get_devices(backend="level_zero", device_type="gpu")
    print([device.name for device in devices], dpctl.__version__)
    if not devices:
        return 2
    wrong = 0
    for device in devices:
        check = Check(dpctl.SyclQueue(device), "--sabotage" in sys.argv)
        for size in SIZES:
            for kind in KINDS:
                data = check.data(size)
                block = check.new(kind, size)
                if not check.sabotage:
                    block.copy_from_host(data)
                check.same(block, data, f"host array to {kind}, {size}")
                if not check.sabotage:
                    block.memset(0x5B)
                check.same(block, np.full(size, 0x5B, np.uint8), f"memset of {kind}, {size}")
            ways = itertools.product(KINDS, KINDS, ("memory", "queue", "async"))
            for source_kind, kind, how in ways:
                # Shared memory lives on the device.
                if size > largest and "host" not in (source_kind, kind):
                    continue
                data = check.data(size)
                source, to = check.new(source_kind, size), check.new(kind, size)
                source.copy_from_host(data)
                check.copy(to, source, size, how)
                check.same(to, data, f"{source_kind} to {kind} by {how}, {size}")
        print(f"{device.name}: {check.looked_at} looked at, {check.bad} wrong")
        wrong += check.bad
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
