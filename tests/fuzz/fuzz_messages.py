"""Every decoder of foreign bytes: it takes them or refuses them by the one error it may raise, and
what it takes is what it writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import zlib
from collections.abc import Callable

from ze_ipc import broker_listing, broker_protocol, manifest
from ze_ipc.broker_protocol import Malformed
from ze_ipc.errors import InvalidHandle
from ze_ipc.handle import HandleFields
from ze_ipc.range_handle import RangeHandle

_HEADER, _HASHED, _ROW = 112, 80, 21


def _handle(data: bytes, mend: bool) -> None:
    if mend and len(data) >= 64:
        body = b"ZIPC\1\0\0\0" + data[8:20] + b"\xff\xff\0\0" + data[24:60]
        data = body + struct.pack("<I", zlib.crc32(body))
    fields = HandleFields.unpack(data)
    assert fields.pack() == data
    assert bytes(RangeHandle.from_bytes(data)) == data


def _manifest(data: bytes, mend: bool) -> None:
    if mend and len(data) >= _HEADER:
        # Counts that fit the length, and the digest: what lies behind these checks.
        extents = min(int.from_bytes(data[12:14], "little"), (len(data) - _HEADER) // _ROW)
        objects = (len(data) - _HEADER - _ROW * extents) // 8
        data = data[: _HEADER + 8 * objects + _ROW * extents]
        head = b"ZIPM\1\0" + struct.pack("<HII", _HEADER, objects, extents) + data[16:64]
        head += bytes(16)
        data = head + hashlib.sha256(head + data[_HEADER:]).digest() + data[_HEADER:]
    parsed = manifest.parse(data)
    assert manifest.encode(parsed) == data
    exposed = manifest.exposure(parsed)
    assert 0 <= exposed.beyond <= exposed.reachable
    covered = 0
    for index, offset, size in zip(
        parsed.object_indices, parsed.offsets, parsed.sizes, strict=True
    ):
        assert size
        assert offset + size <= parsed.object_sizes[index]
        covered += size
    assert covered == parsed.covered_size


def _request(data: bytes, mend: bool) -> None:
    request = broker_protocol.decode_request(b"ZQ01" + data if mend else data)
    if not mend and data[:4] == b"ZE01":
        assert broker_protocol.encode_extend(request.first, request.handle) == data
        return
    again = broker_protocol.encode_request(request.flags, request.handle, request.room)
    assert again == (b"ZQ01" + data if mend else data)


def _reply(data: bytes, mend: bool) -> None:
    for check in (False, True):
        try:
            reply = broker_protocol.decode_reply(b"ZR01" + data if mend else data, check=check)
        except Malformed:
            continue
        assert len(reply.manifest) <= min(reply.manifest_size, broker_protocol.REPLY_MANIFEST)
        if reply.status is not broker_protocol.Status.OK:
            broker_protocol.error_of(reply.status)


def _words(data: bytes, mend: bool) -> None:
    for decode, magic in (
        (broker_protocol.decode_done, b"ZD01"),
        (broker_protocol.decode_release, broker_protocol.RELEASE),
        (broker_listing.decode_question, b"ZL01"),
        (broker_listing.decode_answer, b"ZT01"),
    ):
        try:
            decode(magic + data if mend else data)  # type: ignore[operator]
        except Malformed:
            continue


_TARGETS: tuple[Callable[[bytes, bool], None], ...] = (
    _manifest,
    _handle,
    _request,
    _reply,
    _words,
    _manifest,
)


def one_input(data: bytes) -> None:
    """The first byte says which decoder, and whether checksums are made right first."""
    if not data:
        return
    target = _TARGETS[data[0] % len(_TARGETS)]
    with contextlib.suppress(InvalidHandle, Malformed):
        target(data[1:], bool(data[0] & 0x80))
