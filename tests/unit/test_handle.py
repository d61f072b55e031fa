"""The 64 bytes: their layout, and that nothing else passes."""

from __future__ import annotations

import random
import struct
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ze_ipc.errors import InvalidHandle
from ze_ipc.handle import HANDLE_SIZE, HandleFields

fields = st.builds(
    HandleFields,
    host=st.binary(min_size=8, max_size=8),
    pid=st.integers(1, 0x7FFFFFFF),
    broker=st.binary(min_size=8, max_size=8),
    secret=st.binary(min_size=16, max_size=16),
    generation=st.integers(0, (1 << 64) - 1),
    doorbell=st.none() | st.integers(0, 0xFFFFFFFE),
)
EXAMPLE = HandleFields(
    host=b"HOSTHOST",
    pid=0x01020304,
    broker=b"BROKERID",
    secret=b"0123456789abcdef",
    generation=0x1122334455667788,
    doorbell=7,
)


def sealed(data: bytes) -> bytes:
    """The same bytes with the checksum that belongs to them."""
    return data[:60] + struct.pack("<I", crc32(data[:60]))


def refused(data: bytes) -> None:
    with pytest.raises(InvalidHandle) as caught:
        HandleFields.unpack(data)
    assert isinstance(caught.value, ValueError)


@given(fields)
def test_round_trip(handle: HandleFields) -> None:
    data = handle.pack()
    assert len(data) == HANDLE_SIZE
    for form in (data, bytearray(data), memoryview(data)):
        assert HandleFields.unpack(form) == handle


def test_layout() -> None:
    data = EXAMPLE.pack()
    assert data[:8] == b"ZIPC\x01\0\0\0"
    assert data[8:16] == b"HOSTHOST"
    assert data[16:20] == b"\x04\x03\x02\x01"
    assert data[20:24] == b"\xff\xff\0\0"
    assert data[24:32] == b"BROKERID"
    assert data[32:48] == b"0123456789abcdef"
    assert data[48:56] == bytes.fromhex("8877665544332211")
    assert data[56:60] == b"\x07\0\0\0"
    assert data == sealed(data)


@given(fields)
def test_every_flip_is_found(handle: HandleFields) -> None:
    data = handle.pack()
    for bit in range(8 * HANDLE_SIZE):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        refused(bytes(damaged))


def test_a_thousand_random_damages() -> None:
    dice = random.Random(3)
    data = EXAMPLE.pack()
    for _ in range(1000):
        damaged = bytearray(data)
        for _ in range(dice.randint(1, 6)):
            damaged[dice.randrange(64)] ^= 1 << dice.randrange(8)
        if bytes(damaged) != data:
            refused(bytes(damaged))


@pytest.mark.parametrize("at", [*range(8), 20, 21, 22, 23])
def test_fixed_fields_under_a_right_checksum(at: int) -> None:
    data = bytearray(EXAMPLE.pack())
    data[at] ^= 0x81
    refused(sealed(bytes(data)))


@pytest.mark.parametrize("pid", [0, 0x80000000, 0xFFFFFFFF])
def test_impossible_pids(pid: int) -> None:
    data = bytearray(EXAMPLE.pack())
    data[16:20] = struct.pack("<I", pid)
    refused(sealed(bytes(data)))


@given(st.binary(max_size=200))
def test_noise(data: bytes) -> None:
    refused(data)
    refused(b"ZIPC\x01" + data)


@pytest.mark.parametrize("length", [0, 1, 63, 65, 128])
def test_wrong_lengths(length: int) -> None:
    refused((EXAMPLE.pack() * 2)[:length])


def test_a_driver_handle_is_not_parsed() -> None:
    refused(struct.pack("<QQHH", 5, 0x1234, 0, 1).ljust(64, b"\0"))


@pytest.mark.parametrize("wrong", [64, None, "x" * 64, [1] * 64])
def test_other_types_are_type_errors(wrong: object) -> None:
    with pytest.raises(TypeError):
        HandleFields.unpack(wrong)  # type: ignore[arg-type]


def test_the_secret_is_not_printed() -> None:
    assert "0123456789" not in repr(EXAMPLE)


@pytest.mark.parametrize("name", ["host", "broker", "secret"])
def test_short_fields_are_a_programming_error(name: str) -> None:
    values: dict[str, Any] = {
        "host": bytes(8),
        "broker": bytes(8),
        "secret": bytes(16),
        name: b"short",
    }
    with pytest.raises(ValueError, match="bytes"):
        HandleFields(pid=1, generation=0, **values)
