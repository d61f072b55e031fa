"""Batches for the copy engines, decoded and executed here on plain bytes."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ze_ipc._xe import ffi, lib

MEM, XY = lib.XE_BLIT_MEM, lib.XE_BLIT_XY
PLATFORMS = [(MEM, 2001), (MEM, 1260), (XY, 1200), (XY, 1255), (XY, 1271)]
BASE = 0x7F_0000_0000
"""Above 32 bits: the high halves of addresses matter."""


def batches(room: int, **fields: int) -> Iterator[list[int]]:
    """All batches of one job, each as its dwords."""
    blit = ffi.new("struct xe_blit *", fields)
    while blit.done < blit.size:
        batch = ffi.new("uint32_t[]", room)
        used = lib.xe_blit_emit(blit, batch, room)
        assert used % 2 == 0
        assert used <= room
        yield list(batch[0:used])


def commands(batch: list[int]) -> Iterator[list[int]]:
    at = 0
    while batch[at] >> 29:
        length = (batch[at] & 0xFF) + 2
        yield batch[at : at + length]
        at += length
    assert batch[at] == 0x0500_0000
    assert batch[at + 1 :] in ([], [0])


def address(low: int, high: int) -> int:
    return (high << 32 | low) - BASE


def rows_of(command: list[int]) -> list[tuple[int, int | None, int, int | None]]:
    """What a command does: (destination, source or None, width, value or None) a row."""
    opcode = command[0] >> 22 & 0x7F
    if opcode in (0x5A, 0x5B):
        matrix = command[0] >> 17 & 1
        width, height = command[1] + 1, command[2] + 1 if matrix else 1
        pitch = command[3] + 1
        copies = opcode == 0x5A
        dst = address(*command[7:9]) if copies else address(*command[4:6])
        src = address(*command[5:7]) if copies else None
        value = None if copies else command[6] >> 24
        if matrix:
            assert width == pitch
    else:
        assert opcode in (0x42, 0x44)
        copies = opcode == 0x42
        pitch = command[1] & 0xFFFF if copies else (command[1] & 0x3FFFF) + 1
        x1, y1, x2, y2 = (
            command[2] & 0xFFFF,
            command[2] >> 16,
            command[3] & 0xFFFF,
            command[3] >> 16,
        )
        assert y1 == 0
        assert x2 < 1 << 15
        assert x2 <= pitch
        width, height = x2 - x1, y2
        assert command[4] % 64 == 0
        dst = address(*command[4:6]) + x1
        src = None
        value = command[7] & 0xFF
        if copies:
            assert command[8] % 64 == 0
            assert command[7] == pitch
            src, value = address(*command[8:10]) + (command[6] & 0xFFFF), None
    return [
        (dst + row * pitch, None if src is None else src + row * pitch, width, value)
        for row in range(height)
    ]


SIZES = st.one_of(
    st.integers(1, 300),
    st.integers(1, 300_000),
    st.sampled_from([4095, 4096, 4097, 8192, 65535, 65536, 65537, 9 << 20]),
)
OFFSETS = st.one_of(st.integers(0, 200), st.sampled_from([0, 64, 4096, 4095]))


@given(platform=st.sampled_from(PLATFORMS), size=SIZES, dst=OFFSETS, src=OFFSETS)
@settings(max_examples=120, deadline=None)
def test_a_copy_moves_each_byte_once_to_its_place(
    platform: tuple[int, int], size: int, dst: int, src: int
) -> None:
    kind, graphics = platform
    done = 0
    job = {
        "commands": kind,
        "graphics": graphics,
        "dst": BASE + dst,
        "src": BASE + src,
        "size": size,
    }
    for batch in batches(2048, **job):
        for command in commands(batch):
            for to, origin, width, value in rows_of(command):
                assert (to, origin, value) == (dst + done, src + done, None)
                done += width
    assert done == size


@given(platform=st.sampled_from(PLATFORMS), size=SIZES, dst=OFFSETS, value=st.integers(0, 255))
@settings(max_examples=120, deadline=None)
def test_a_fill_writes_each_byte_once(
    platform: tuple[int, int], size: int, dst: int, value: int
) -> None:
    kind, graphics = platform
    done = 0
    job = {"fill": 1, "value": value, "dst": BASE + dst, "size": size}
    for batch in batches(2048, commands=kind, graphics=graphics, **job):
        for command in commands(batch):
            for to, origin, width, written in rows_of(command):
                assert (to, origin, written) == (dst + done, None, value)
                done += width
    assert done == size


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("room", [24, 25, 64, 1000])
def test_a_batch_keeps_to_its_room_and_the_next_goes_on(
    platform: tuple[int, int], room: int
) -> None:
    kind, graphics = platform
    job = {"commands": kind, "graphics": graphics, "dst": BASE + 1, "src": BASE + (1 << 30)}
    seen = list(batches(room, size=3 << 20, **job))
    total = sum(
        width
        for batch in seen
        for command in commands(batch)
        for _, _, width, _ in rows_of(command)
    )
    assert total == 3 << 20


def test_a_gibibyte_is_few_commands_where_the_engine_has_the_matrix_form() -> None:
    seen = list(
        batches(16384, commands=MEM, graphics=2001, dst=BASE, src=BASE + (2 << 30), size=1 << 30)
    )
    assert len(seen) == 1
    assert len(list(commands(seen[0]))) == 128


@pytest.mark.parametrize(("graphics", "shift"), [(2001, 3), (3000, 3), (1260, 1)])
def test_mocs_sits_where_the_platform_has_it(graphics: int, shift: int) -> None:
    (fill,) = batches(
        64, commands=MEM, graphics=graphics, mocs=3, fill=1, value=0xAB, dst=BASE, size=8
    )
    assert fill[6] == 0xAB << 24 | 3 << shift
