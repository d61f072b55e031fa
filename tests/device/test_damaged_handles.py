"""Handles that are not what they were: every one gives an error of the contract, none a hang."""

from __future__ import annotations

import random
import struct
from zlib import crc32

import pytest

import ze_ipc

PAGE = 4096


@pytest.fixture
def raw(xe_mock: ze_ipc.Device) -> bytes:
    """A handle that stays good: the device, which owns everything, is closed after the test."""
    reservation = xe_mock.reserve(3 * PAGE)
    for index in range(3):
        with xe_mock.physical_memory(PAGE) as memory:
            reservation.map(memory, at=index * PAGE)
    keep = reservation, xe_mock.get_ipc_handle(reservation.ptr, 3 * PAGE)
    xe_mock.keep = keep  # type: ignore[attr-defined]
    return bytes(keep[1])


def sealed(body: bytes) -> bytes:
    """The same with a checksum that is right, as somebody would who means it."""
    return body[:60] + struct.pack("<I", crc32(body[:60]))


def test_a_thousand_flips_are_found(xe_mock: ze_ipc.Device, raw: bytes) -> None:
    source = random.Random(1)
    for _ in range(1000):
        damaged = bytearray(raw)
        for _ in range(source.randint(1, 8)):
            damaged[source.randrange(64)] ^= 1 << source.randrange(8)
        if bytes(damaged) == raw:
            continue
        with pytest.raises(ze_ipc.InvalidHandle):
            xe_mock.open_ipc_handle(bytes(damaged))
    xe_mock.open_ipc_handle(raw).close()


def test_a_hundred_forgeries_open_nothing(xe_mock: ze_ipc.Device, raw: bytes) -> None:
    source = random.Random(2)
    refused = (
        ze_ipc.InvalidHandle,
        ze_ipc.WrongHost,
        ze_ipc.ExporterGone,
        ze_ipc.HandleRevoked,
        ze_ipc.AccessDenied,
    )
    for position in [*range(60), *(source.randrange(60) for _ in range(40))]:
        if position in range(16, 20) or position in range(56, 60):
            continue  # the pid and the doorbell's number are advice
        damaged = bytearray(raw)
        damaged[position] ^= 1 << source.randrange(8)
        with pytest.raises(refused):
            xe_mock.open_ipc_handle(sealed(bytes(damaged)))
        assert not xe_mock.can_open(bytes(raw[:position]) + bytes(64 - position))
    xe_mock.open_ipc_handle(raw).close()


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (8, bytes(8), ze_ipc.WrongHost),
        (24, bytes(8), ze_ipc.ExporterGone),
        (32, bytes(16), ze_ipc.AccessDenied),
        (48, struct.pack("<Q", 1 << 60), ze_ipc.HandleRevoked),
        (4, b"\x02", ze_ipc.InvalidHandle),
        (20, b"\0\0", ze_ipc.InvalidHandle),
    ],
)
def test_each_field_has_its_error(
    xe_mock: ze_ipc.Device, raw: bytes, at: int, value: bytes, error: type[ze_ipc.ZeIpcError]
) -> None:
    forged = sealed(raw[:at] + value + raw[at + len(value) :])
    with pytest.raises(error) as caught:
        xe_mock.open_ipc_handle(forged)
    assert caught.value.hint
    check = xe_mock.can_open(forged)
    assert not check
    assert isinstance(check.error, error)


@pytest.mark.parametrize("length", [*range(0, 64, 9), 63, 65, 128, 4096])
def test_other_lengths(xe_mock: ze_ipc.Device, raw: bytes, length: int) -> None:
    wrong = (raw * 64)[:length]
    for call in (xe_mock.open_ipc_handle, xe_mock.can_open, ze_ipc.RangeHandle.from_bytes):
        with pytest.raises(ze_ipc.InvalidHandle):
            call(wrong)
