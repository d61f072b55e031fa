"""The 64 bytes that users pass around: who serves a range, and the secret that opens it.

All fields are little-endian:

======  =====  ==================================================================================
offset  width  field
======  =====  ==================================================================================
0       4      magic ``ZIPC``
4       1      version, 1
5       3      zero
8       8      host identity: machine and boot
16      4      the exporter's pid; advisory, for pid namespaces make it wrong
20      2      0xFF 0xFF: where Intel's driver reads a type, so that it refuses the handle at once
22      2      zero
24      8      broker id: where the exporter listens
32      16     secret
48      8      generation
56      4      doorbell: fd number in the exporter (pidfd transport), 0xFFFFFFFF for none
60      4      crc32 of bytes 0 to 59
======  =====  ==================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from ze_ipc.errors import InvalidHandle

HANDLE_SIZE = 64
MAGIC = b"ZIPC"
VERSION = 1
NO_DOORBELL = 0xFFFFFFFF

_DRIVER_TYPE = b"\xff\xff"
_LAYOUT = struct.Struct("<4sB3s8sI2s2s8s16sQI")
_TAIL = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_SECRET_AT = 32
_ZEROS = bytes(3)


@dataclass(frozen=True, slots=True)
class HandleFields:
    """What a handle says; unpack() is the only way in for foreign bytes."""

    host: bytes
    """8 bytes: which machine, since which boot."""
    pid: int
    """The exporter's pid in its own namespace; advisory."""
    broker: bytes
    """8 bytes: the name of the exporter's socket."""
    secret: bytes = field(repr=False)
    """16 bytes that the broker asks for; whoever has them may open the range."""
    generation: int
    """Counts the exports of a broker, so that an old handle never opens a new range."""
    doorbell: int | None = None
    """fd number of the exporter's end for the pidfd transport, or None."""

    def pack(self) -> bytes:
        """The 64 bytes."""
        doorbell = NO_DOORBELL if self.doorbell is None else self.doorbell
        body = _LAYOUT.pack(
            MAGIC,
            VERSION,
            bytes(3),
            self.host,
            self.pid,
            _DRIVER_TYPE,
            bytes(2),
            self.broker,
            self.secret,
            self.generation,
            doorbell,
        )
        return body + _CHECKSUM.pack(crc32(body))

    def packer(self) -> Callable[[bytes, int], bytes]:
        """What gives the 64 bytes of another secret and generation of the same broker."""
        head = self.pack()[:_SECRET_AT]
        doorbell = NO_DOORBELL if self.doorbell is None else self.doorbell

        def pack(secret: bytes, generation: int) -> bytes:
            body = head + secret + _TAIL.pack(generation, doorbell)
            return body + _CHECKSUM.pack(crc32(body))

        return pack

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview) -> HandleFields:
        """The fields of 64 foreign bytes, or InvalidHandle; no system call is made."""
        raw = data if isinstance(data, bytes) else memoryview(data).tobytes()
        if len(raw) != HANDLE_SIZE:
            raise _invalid("a handle has 64 bytes", length=len(raw))
        if raw[:4] != MAGIC:
            raise _invalid("not a handle of ze_ipc (perhaps a driver's own)", magic=raw[:4])
        if raw[4] != VERSION:
            raise _invalid(
                "a handle of another version",
                version=raw[4],
                known=VERSION,
                hint="use the same version of ze_ipc on both sides",
            )
        body = raw[: _LAYOUT.size]
        if _CHECKSUM.unpack_from(raw, _LAYOUT.size)[0] != crc32(body):
            raise _invalid("the handle is damaged: its checksum does not match")
        (_, _, zeros, host, pid, driver_type, zeros2, broker, secret, generation, doorbell) = (
            _LAYOUT.unpack(body)
        )
        if zeros != _ZEROS or zeros2 != _ZEROS[:2] or driver_type != _DRIVER_TYPE:
            raise _invalid("reserved fields of the handle are not as this version writes them")
        if not pid or pid > 0x7FFFFFFF:
            raise _invalid("the handle's pid is none", pid=pid)
        return cls(
            host, pid, broker, secret, generation, None if doorbell == NO_DOORBELL else doorbell
        )

    def __post_init__(self) -> None:
        if (len(self.host), len(self.broker), len(self.secret)) != (8, 8, 16):
            raise ValueError("host and broker have 8 bytes, secret has 16")


def _invalid(cause: str, *, hint: str | None = None, **values: Any) -> InvalidHandle:
    return InvalidHandle(cause, call="open_ipc_handle", hint=hint, **values)
