"""The device behind the protocol server: BARs, registers and the loop that drives the engines."""

from __future__ import annotations

import os
import selectors
import socket
from pathlib import Path

from .guc import Guc
from .memory import Fault, GlobalTable, Memory
from .pci import CONFIG_SIZE, ConfigSpace
from .profiles import Profile
from .vfio_user import (
    MSI_IRQ,
    PCI_CONFIG_REGION,
    REGION_READ,
    REGION_WRITE,
    ProtocolError,
    Region,
    Server,
)

BAR0_SIZE = 16 << 20
VF_CAPABILITY = 0x1901F8
DOORBELLS = {0x1901F0: 0, 0x190304: 1}
MAILBOXES = {0x190240: 0, 0x190310: 1}
IGNORED = {
    0x000D8C,  # a write that orders earlier ones
    0x130030,
    0x190010,  # master interrupt: unused with memory-based interrupts
    0x190044,
    0x1900F4,
    0x380D8C,
}
BARRIER_PAGE = range(0x7FF000, 0x800000)
"""What a program maps as the PCI barrier: writes go nowhere, and this is what is read."""
BARRIER_VALUE = 0xDEADBEEF
POLL_SECONDS = 0.002
"""How long a waiting semaphore sleeps between two looks at memory."""


class Gpu:
    """One emulated GPU; `serve` answers one client until it goes away."""

    def __init__(self, profile: Profile, vram: int = -1, peer: int = -1) -> None:
        self.profile = profile
        self.memory = Memory(profile.vram_size, vram)
        self._peer = peer
        self.ggtt = GlobalTable(self.memory)
        self.config = ConfigSpace(profile.device_id, profile.revision, profile.vram_size > 0)
        self.gucs = [
            Guc(media, profile, self.memory, self.ggtt, self._raise_msi) for media in (False, True)
        ]
        self._server: Server | None = None
        self._seen: set[tuple[str, int]] = set()

    def serve(self, sock: socket.socket) -> None:
        self._server = Server(sock, self)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(sock, selectors.EVENT_READ)
                while True:
                    runnable = [guc.run() for guc in self.gucs if guc.busy]
                    timeout = 0.0 if any(runnable) else POLL_SECONDS if runnable else None
                    if selector.select(timeout) and not self._server.serve_one():
                        return
        except (ConnectionError, ProtocolError) as error:
            print(f"gpu: client lost: {error}", flush=True)
        finally:
            self._server.close()
            self._server = None

    def _raise_msi(self) -> None:
        if self._server is not None:
            self._server.trigger(MSI_IRQ)

    # vfio_user.Device

    def region(self, index: int) -> Region:
        access = REGION_READ | REGION_WRITE
        if index == 0:
            half = BAR0_SIZE // 2
            return Region(BAR0_SIZE, access, self.ggtt.fd, ((half, half),))
        if index == 2 and self.memory.has_vram:
            size = self.profile.vram_size
            return Region(size, access, self.memory.vram_fd, ((0, size),))
        if index == PCI_CONFIG_REGION:
            return Region(CONFIG_SIZE, access)
        return Region(0)

    def region_read(self, index: int, offset: int, size: int) -> bytes:
        if index == PCI_CONFIG_REGION:
            return self.config.read(offset, size)
        if index == 0:
            return self._register(offset).to_bytes(size, "little")
        area, at = self.memory.find(offset, size, True)
        return area[at : at + size]

    def region_write(self, index: int, offset: int, data: bytes) -> None:
        if index == PCI_CONFIG_REGION:
            self.config.write(offset, data)
        elif index == 0:
            self._set_register(offset, int.from_bytes(data, "little"))
        elif index == 2:
            area, at = self.memory.find(offset, len(data), True)
            area[at : at + len(data)] = data

    def dma_map(self, address: int, size: int, fd: int, offset: int, writable: bool) -> None:
        self.memory.guest.add(address, size, fd, offset)

    def dma_map_device(self, address: int, size: int) -> None:
        """Memory of some device at this address: our own, which nobody needs, or the peer's."""
        if self._peer >= 0 and size == os.fstat(self._peer).st_size != self.profile.vram_size:
            self.memory.guest.add(address, size, self._peer, 0)

    def dma_unmap(self, address: int, size: int) -> None:
        self.memory.guest.remove(address, size)

    def reset(self) -> None:
        for guc in self.gucs:
            guc.reset()

    # Registers

    def _register(self, offset: int) -> int:
        if offset == VF_CAPABILITY:
            return 1
        guc = MAILBOXES.get(offset & ~0xF)
        if guc is not None:
            return self.gucs[guc].mailbox[offset >> 2 & 3]
        if offset in BARRIER_PAGE:
            return BARRIER_VALUE
        self._once("read", offset)
        return 0

    def _set_register(self, offset: int, value: int) -> None:
        bell = DOORBELLS.get(offset)
        guc = MAILBOXES.get(offset & ~0xF)
        if bell is not None:
            self.gucs[bell].serve_safely()
        elif guc is not None:
            self.gucs[guc].write_mailbox(offset >> 2 & 3, value)
        elif offset not in IGNORED and offset not in BARRIER_PAGE:
            self._once("write", offset)

    def _once(self, kind: str, offset: int) -> None:
        if (kind, offset) not in self._seen:
            self._seen.add((kind, offset))
            print(f"gpu: {kind} of register {offset:#x}, which has no effect here", flush=True)

    def describe(self) -> str:
        jobs = sum(guc.jobs + sum(c.jobs for c in guc.contexts.values()) for guc in self.gucs)
        return f"{self.profile.name}: {jobs} batches executed"


def serve_once(profile: Profile, path: Path, vram: int = -1, peer: int = -1) -> None:
    """Serves one client and returns; when `path` exists, it can be connected to."""
    path.unlink(missing_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(hidden))
        listener.listen(1)
        hidden.rename(path)
        connection, _ = listener.accept()
    gpu = Gpu(profile, vram, peer)
    try:
        gpu.serve(connection)
    except Fault as fault:
        print(f"gpu: unexpected fault: {fault}", flush=True)
        raise
    print(gpu.describe(), flush=True)
