"""Every message survives its way; everything else is Malformed and nothing worse."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ze_ipc import broker_protocol as protocol
from ze_ipc.broker_protocol import Flag, Malformed, Status
from ze_ipc.errors import AccessDenied, ExporterGone, FdLimit, HandleRevoked, UnsupportedFeature


@given(
    st.sampled_from([Flag(0), *Flag, Flag.CHECK | Flag.SKIP_OBJECTS]),
    st.binary(min_size=64, max_size=64),
)
def test_request(flags: Flag, handle: bytes) -> None:
    message = protocol.encode_request(flags, handle)
    assert len(message) == protocol.REQUEST_SIZE == 72
    assert protocol.decode_request(message) == protocol.Request(flags, handle)


@given(st.integers(0, 253), st.binary(min_size=64, max_size=64))
def test_request_with_room_for_fds(room: int, handle: bytes) -> None:
    message = protocol.encode_request(Flag(0), handle, room)
    assert protocol.decode_request(message) == protocol.Request(Flag(0), handle, room)


@pytest.mark.parametrize(
    ("flags", "room"),
    [(Flag(0), 254), (Flag(0), 65535), (Flag.CHECK, 1), (Flag.SKIP_OBJECTS, 253)],
)
def test_room_that_makes_no_sense(flags: Flag, room: int) -> None:
    with pytest.raises(Malformed):
        protocol.decode_request(protocol.encode_request(flags, bytes(64), room))


def protocol_sane(flags_and_room: bytes) -> bool:
    flags, room = struct.unpack("<HH", flags_and_room)
    return flags <= 3 and room <= (0 if flags else 253)


@given(st.binary(max_size=100))
@example(b"ZQ01" + bytes(68) + b"!")
@example(b"ZQ02" + bytes(68))
@example(b"ZQ01\x04" + bytes(67))
@example(b"ZQ01\x00\x00\x00\x80" + bytes(64))
@example(b"")
def test_no_request(message: bytes) -> None:
    if message[:4] == b"ZQ01" and len(message) == 72 and protocol_sane(message[4:8]):
        return
    with pytest.raises(Malformed):
        protocol.decode_request(message)


@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 98304, 98305, 300000])
def test_manifest_in_messages(size: int) -> None:
    manifest = bytes(range(256)) * (size // 256 + 1)
    manifest = manifest[:size]
    first, *rest = [b"".join(parts) for parts in protocol.encode_manifest(manifest, 7)]
    reply = protocol.decode_reply(first, check=False)
    assert (reply.status, reply.manifest_size, reply.object_count) == (Status.OK, size, 7)
    received = reply.manifest
    for message in rest:
        assert len(message) == protocol.manifest_message_size(len(received), size) > 0
        received += message
    assert received == manifest
    assert max(map(len, rest), default=0) <= 65536


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
@pytest.mark.parametrize("check", [False, True])
def test_refusal(status: Status, check: bool) -> None:
    reply = protocol.decode_reply(protocol.encode_refusal(status), check=check)
    assert reply == protocol.Reply(status, 0, 0, b"")


def test_check() -> None:
    reply = protocol.decode_reply(protocol.encode_head(1 << 20, 5), check=True)
    assert reply == protocol.Reply(Status.OK, 1 << 20, 5, b"")


GOOD = b"".join(next(protocol.encode_manifest(b"abc", 1)))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        GOOD[:23],
        GOOD[:-1],
        GOOD + b"!",
        b"ZR02" + GOOD[4:],
        GOOD[:4] + b"\x0b\0\0\0" + GOOD[8:],
        GOOD[:4] + b"\x01\0\0\0" + GOOD[8:],
        GOOD[:8] + (protocol.MANIFEST_LIMIT + 1).to_bytes(8, "little") + GOOD[16:],
        GOOD[:16] + (protocol.OBJECT_LIMIT + 1).to_bytes(8, "little") + GOOD[24:],
        GOOD[:8] + b"\xff" * 8 + GOOD[16:],
    ],
)
def test_no_reply(message: bytes) -> None:
    with pytest.raises(Malformed):
        protocol.decode_reply(message, check=False)


@given(st.binary(max_size=64), st.booleans())
def test_any_bytes_as_reply(message: bytes, check: bool) -> None:
    with pytest.raises(Malformed):
        protocol.decode_reply(message, check=check)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_done(status: int, token: int) -> None:
    message = protocol.encode_done(status, token)
    assert len(message) == protocol.DONE_SIZE
    assert protocol.decode_done(message) == (status, token)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_release(generation: int, token: int) -> None:
    message = protocol.encode_release(generation, token)
    assert message.startswith(protocol.RELEASE)
    assert protocol.decode_release(message) == (generation, token)


@pytest.mark.parametrize(
    "message", [b"", b"ZF01", b"ZF02" + bytes(20), b"ZF01\1" + bytes(19), b"ZF01" + bytes(21)]
)
def test_no_release(message: bytes) -> None:
    with pytest.raises(Malformed):
        protocol.decode_release(message)


@pytest.mark.parametrize("message", [b"", b"ZD01", b"ZD02" + bytes(12), b"ZD01" + bytes(13)])
def test_no_done(message: bytes) -> None:
    with pytest.raises(Malformed):
        protocol.decode_done(message)


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (Status.REVOKED, HandleRevoked),
        (Status.UNKNOWN, HandleRevoked),
        (Status.EXPIRED, HandleRevoked),
        (Status.WRONG_SECRET, AccessDenied),
        (Status.REFUSED_PEER, AccessDenied),
        (Status.BAD_REQUEST, UnsupportedFeature),
        (Status.BUSY, ExporterGone),
        (Status.NO_FDS, FdLimit),
        (Status.CLOSING, ExporterGone),
        (Status.FAILED, ExporterGone),
    ],
)
def test_error_of_status(status: Status, cls: type[Exception]) -> None:
    error = protocol.error_of(status)
    assert type(error) is cls
    assert error.hint
    assert error.values["status"] == status.name
    if isinstance(error, OSError):
        assert error.errno == errno.EACCES


def test_every_refusal_has_an_error() -> None:
    assert {*protocol._ERRORS} == {*Status} - {Status.OK}
