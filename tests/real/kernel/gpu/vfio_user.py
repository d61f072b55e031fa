"""The server side of the vfio-user protocol on one unix socket.

vfio-user carries the VFIO device ioctls as messages: a 16-byte header (id, command, size, flags,
errno) and the same structures that <linux/vfio.h> describes. The client (QEMU) passes its guest
memory as descriptors in DMA_MAP and interrupts as eventfds in SET_IRQS; we pass the parts of a
BAR that need no trap as a descriptor in DEVICE_GET_REGION_INFO.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

HEADER = struct.Struct("<HHIII")
TYPE_REPLY = 1
FLAG_NO_REPLY = 1 << 4
FLAG_ERROR = 1 << 5

REGION_READ, REGION_WRITE, REGION_MMAP, REGION_CAPS = 1, 2, 4, 8
CAP_SPARSE_MMAP = 1
IRQ_DATA_EVENTFD = 1 << 2
IRQ_ACTION_TRIGGER = 1 << 5

PCI_CONFIG_REGION = 7
PCI_REGION_COUNT = 9
PCI_IRQ_COUNT = 5
MSI_IRQ = 1

MAX_MESSAGE = 1 << 20


@dataclass(frozen=True, slots=True)
class Region:
    """One region of the device; `areas` (offset, size) of `fd` may be mapped by the client."""

    size: int
    flags: int = 0
    fd: int = -1
    areas: tuple[tuple[int, int], ...] = ()


class Device(Protocol):
    """What the protocol server needs of the device behind it."""

    def region(self, index: int) -> Region: ...
    def region_read(self, index: int, offset: int, size: int) -> bytes: ...
    def region_write(self, index: int, offset: int, data: bytes) -> None: ...
    def dma_map(self, address: int, size: int, fd: int, offset: int, writable: bool) -> None: ...
    def dma_map_device(self, address: int, size: int) -> None: ...
    def dma_unmap(self, address: int, size: int) -> None: ...
    def reset(self) -> None: ...


class ProtocolError(Exception):
    """The client sent something that is not vfio-user."""


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@dataclass(slots=True)
class _Message:
    id: int
    command: int
    flags: int
    body: bytes
    fds: list[int]

    def take_fd(self) -> int:
        return self.fds.pop(0) if self.fds else -1


@dataclass(slots=True)
class Server:
    """Serves one connected client; `serve_one` handles one message and returns False at the end.

    The fds of a message that nobody took are closed, so a hostile message leaks nothing.
    """

    sock: socket.socket
    device: Device
    irqs: dict[int, int] = field(default_factory=dict)

    def serve_one(self) -> bool:
        message = self._receive()
        if message is None:
            return False
        try:
            handler = COMMANDS.get(message.command)
            if handler is None:
                print(f"vfio-user: unknown command {message.command}", flush=True)
                raise _error(95)
            reply, fds = handler(self, message)
        except OSError as error:
            self._reply(message, b"", [], error.errno or 5)
        else:
            if not message.flags & FLAG_NO_REPLY:
                self._reply(message, reply, fds, 0)
        finally:
            for fd in message.fds:
                os.close(fd)
        return True

    def trigger(self, index: int = MSI_IRQ) -> None:
        """Raises interrupt vector 0 of the given kind, if the client has armed it."""
        fd = self.irqs.get(index, -1)
        if fd >= 0:
            os.eventfd_write(fd, 1)

    def close(self) -> None:
        for fd in self.irqs.values():
            os.close(fd)
        self.irqs.clear()
        self.sock.close()

    def _receive(self) -> _Message | None:
        fds: list[int] = []
        head = self._read_exactly(HEADER.size, fds)
        if head is None:
            return None
        ident, command, size, flags, _ = HEADER.unpack(head)
        if not HEADER.size <= size <= MAX_MESSAGE:
            raise ProtocolError(f"message size {size}")
        body = self._read_exactly(size - HEADER.size, fds)
        if body is None:
            return None
        return _Message(ident, command, flags, body, fds)

    def _read_exactly(self, size: int, fds: list[int]) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            part, ancillary, _, _ = self.sock.recvmsg(
                size - len(data), socket.CMSG_SPACE(8 * 4), socket.MSG_CMSG_CLOEXEC
            )
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(payload[: len(payload) // 4 * 4])
                    fds.extend(numbers)
            if not part:
                return None
            data += part
        return bytes(data)

    def _reply(self, message: _Message, body: bytes, fds: list[int], error: int) -> None:
        flags = TYPE_REPLY | (FLAG_ERROR if error else 0)
        head = HEADER.pack(message.id, message.command, HEADER.size + len(body), flags, error)
        ancillary = []
        if fds:
            ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds)))
        self.sock.sendmsg([head, body], ancillary)

    def _version(self, message: _Message) -> tuple[bytes, list[int]]:
        major, minor = struct.unpack_from("<HH", message.body)
        if major != 0:
            raise _error(22)
        capabilities = {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20, "pgsizes": 4096}
        text = json.dumps({"capabilities": capabilities}).encode() + b"\0"
        return struct.pack("<HH", 0, min(minor, 1)) + text, []

    def _dma_map(self, message: _Message) -> tuple[bytes, list[int]]:
        _, flags, offset, address, size = struct.unpack_from("<IIQQQ", message.body)
        fd = message.take_fd()
        if fd < 0:
            self.device.dma_map_device(address, size)
            return b"", []
        try:
            self.device.dma_map(address, size, fd, offset, bool(flags & 2))
        finally:
            os.close(fd)
        return b"", []

    def _dma_unmap(self, message: _Message) -> tuple[bytes, list[int]]:
        _, _, address, size = struct.unpack_from("<IIQQ", message.body)
        self.device.dma_unmap(address, size)
        return message.body[:24], []

    def _device_info(self, message: _Message) -> tuple[bytes, list[int]]:
        flag_reset, flag_pci = 1, 2
        return struct.pack("<IIII", 16, flag_reset | flag_pci, PCI_REGION_COUNT, PCI_IRQ_COUNT), []

    def _region_info(self, message: _Message) -> tuple[bytes, list[int]]:
        argsz, _, index = struct.unpack_from("<III", message.body)
        region = self.device.region(index)
        flags, caps = region.flags, b""
        if region.areas:
            flags |= REGION_MMAP | REGION_CAPS
            caps = struct.pack("<HHIII", CAP_SPARSE_MMAP, 1, 0, len(region.areas), 0)
            caps += b"".join(struct.pack("<QQ", *area) for area in region.areas)
        size = 32 + len(caps)
        body = struct.pack("<IIIIQQ", size, flags, index, 32 if caps else 0, region.size, 0)
        if argsz < size:
            return body, []  # the client asks again with enough room
        return body + caps, [region.fd] if region.areas else []

    def _irq_info(self, message: _Message) -> tuple[bytes, list[int]]:
        (index,) = struct.unpack_from("<I", message.body, 8)
        eventfd, noresize = 1, 8
        count = 1 if index == MSI_IRQ else 0
        return struct.pack("<IIII", 16, eventfd | noresize if count else 0, index, count), []

    def _set_irqs(self, message: _Message) -> tuple[bytes, list[int]]:
        _, flags, index, _, count = struct.unpack_from("<IIIII", message.body)
        if not flags & IRQ_ACTION_TRIGGER:
            return b"", []  # mask and unmask: MSI needs neither
        if flags & IRQ_DATA_EVENTFD or count == 0:
            old = self.irqs.pop(index, -1)
            if old >= 0:
                os.close(old)
        if flags & IRQ_DATA_EVENTFD and message.fds:
            self.irqs[index] = message.take_fd()
        return b"", []

    def _region_read(self, message: _Message) -> tuple[bytes, list[int]]:
        offset, index, count = struct.unpack_from("<QII", message.body)
        data = self.device.region_read(index, offset, count)
        return struct.pack("<QII", offset, index, len(data)) + data, []

    def _region_write(self, message: _Message) -> tuple[bytes, list[int]]:
        offset, index, count = struct.unpack_from("<QII", message.body)
        self.device.region_write(index, offset, message.body[16 : 16 + count])
        return message.body[:16], []

    def _reset(self, message: _Message) -> tuple[bytes, list[int]]:
        self.device.reset()
        return b"", []


_Handler = Callable[[Server, _Message], tuple[bytes, list[int]]]
COMMANDS: dict[int, _Handler] = {
    1: Server._version,
    2: Server._dma_map,
    3: Server._dma_unmap,
    4: Server._device_info,
    5: Server._region_info,
    7: Server._irq_info,
    8: Server._set_irqs,
    9: Server._region_read,
    10: Server._region_write,
    13: Server._reset,
}
