"""Few objects take one C call a side: it says what the steps say, and leaves hard cases to them."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ze_ipc
from helpers.broker_fakes import fd_count
from helpers.calls import calls_of
from ze_ipc._mock import lib as mock
from ze_ipc._xe import ffi, lib
from ze_ipc.columns import Columns
from ze_ipc.errors import (
    InvalidHandle,
    KernelError,
    OutOfDeviceMemory,
    OutOfHostMemory,
    ZeIpcError,
)
from ze_ipc.manifest import HEADER_SIZE, Glance, build, encode, merge, parse, seal
from ze_ipc.xe.backend import XeBackend

PAGE = 4096
BASE = 1 << 32
OBJECTS = 3
OBJECT_SIZE = 8 * PAGE
WORD = b"done"


@pytest.fixture(scope="module")
def exporter() -> Iterator[XeBackend]:
    with ze_ipc.open_device("mock") as device:
        yield backend_of(device)


@pytest.fixture(scope="module")
def importer() -> Iterator[XeBackend]:
    with ze_ipc.open_device("mock") as device:
        yield backend_of(device)


def backend_of(device: ze_ipc.Device) -> XeBackend:
    assert isinstance(device._backend, XeBackend)
    return device._backend


@pytest.fixture(scope="module")
def objects(exporter: XeBackend) -> Iterator[array[int]]:
    made = exporter.create_objects(OBJECT_SIZE, "device", OBJECTS)
    yield made
    exporter.release_objects(made)


def descriptors(exporter: XeBackend, objects: array[int]) -> array[int]:
    fds = array("i")
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        assert exporter.send_reply(near.fileno(), b"x", b"", objects)
        fds.frombytes(far.recvmsg(9, 999)[1][0][2])
    return fds


# ---- the exporter's half

rows = st.lists(
    st.tuples(
        st.integers(0, OBJECTS - 1),
        st.integers(0, 3),
        st.integers(1, 4),
        st.sampled_from((0, 0, 1)),
    ),
    min_size=1,
    max_size=64,
)


@given(rows=rows, lead=st.integers(0, PAGE - 1))
def test_describing(
    exporter: XeBackend, objects: array[int], rows: list[tuple[int, int, int, int]], lead: int
) -> None:
    """The same bytes as by build() and encode(), and one reference for each distinct object."""
    columns = Columns.back_to_back(
        BASE,
        array("Q", (objects[number] for number, *_ in rows)),
        array("Q", (offset * PAGE for _, offset, *_ in rows)),
        array("Q", (pages * PAGE for *_, pages, _ in rows)),
        array("B", (access for *_, access in rows)),
    )
    size = columns.ends[-1] - BASE - lead
    manifest, distinct = build(
        columns,
        BASE + lead,
        size,
        device_uuid=exporter.info.uuid,
        page_size=PAGE,
        object_sizes=exporter.object_sizes,
    )
    few = exporter.describe_few(
        columns.starts, columns.ends, columns.objects, columns.offsets, columns.access
    )
    assert few is not None
    body, held, extents = few
    exporter.release_objects(held)
    assert held == distinct
    assert extents == len(merge(columns))
    assert encode(manifest) == seal(
        body,
        len(held),
        extents,
        page_size=PAGE,
        window_offset=lead,
        window_size=size,
        va_phase=0,
        device_uuid=exporter.info.uuid,
        lineage=bytes(16),
    )


def test_describing_what_nobody_holds(exporter: XeBackend, objects: array[int]) -> None:
    """Nothing is held afterwards."""
    mixed = array("Q", [objects[0], 0xFFFF])
    starts, ends = array("Q", [BASE, BASE + PAGE]), array("Q", [BASE + PAGE, BASE + 2 * PAGE])
    few = exporter.describe_few(starts, ends, mixed, array("Q", [0, 0]), array("B", [0, 0]))
    assert few is None
    (extra,) = exporter.create_objects(PAGE, "device", 1)
    mixed[0] = extra
    assert (
        exporter.describe_few(starts, ends, mixed, array("Q", [0, 0]), array("B", [0, 0])) is None
    )
    exporter.release_objects(array("Q", [extra]))
    assert exporter.live_objects == OBJECTS


# ---- the importer's half

EXTENTS = [(0, 0, 2), (1, 1, 3), (0, 4, 4), (2, 0, 8)]
"""Object, page of it, pages."""


def a_manifest() -> bytearray:
    columns = [
        struct.pack(f"<{OBJECTS}Q", *[OBJECT_SIZE] * OBJECTS),
        *(struct.pack("<4Q", *(row[at] * PAGE for row in EXTENTS)) for at in (1, 2)),
        struct.pack("<4I", *(row[0] for row in EXTENTS)),
        bytes((0, 1, 0, 0)),
    ]
    pages = sum(row[2] for row in EXTENTS)
    raw = seal(
        b"".join(columns),
        OBJECTS,
        len(EXTENTS),
        page_size=PAGE,
        window_offset=5,
        window_size=pages * PAGE - 9,
        va_phase=0,
        device_uuid=bytes(16),
        lineage=bytes(16),
    )
    return bytearray(raw)


def resealed(raw: bytearray) -> bytes:
    raw[80:112] = sha256(raw[:80] + raw[112:]).digest()
    return bytes(raw)


def open_it(
    importer: XeBackend, raw: bytes, fds: array[int], number: int, seconds: float = 10.0
) -> tuple[array[int] | None, int]:
    """The objects that xe_open_extents() makes, or None, and where they are mapped."""
    glance, space = Glance(raw), importer._space
    base = importer.reserve(glance.covered_size, None, PAGE, 0)
    objects = array("Q", bytes(8 * glance.object_count))
    keep = ffi.from_buffer(raw), ffi.from_buffer(WORD)
    what = ffi.new(
        "struct xe_open *",
        {
            "columns": ffi.cast("uint8_t *", keep[0]) + HEADER_SIZE,
            "num_objects": glance.object_count,
            "count": glance.extent_count,
            "page_size": glance.page_size,
            "size": glance.covered_size,
            "address": base,
            "vm_id": space.vm_id,
            "pat_own": space.pat.own,
            "pat_imported": space.pat.imported,
            "fds": ffi.from_buffer("int32_t[]", fds),
            "objects": ffi.from_buffer("uint64_t[]", objects),
            "deadline": int((time.monotonic() + seconds) * 1e9),
            "last_word": ffi.cast("uint8_t *", keep[1]),
            "last_word_size": len(WORD),
            "socket": number,
        },
    )
    with importer._device as pointer:
        rc = lib.xe_open_extents(pointer, what)
    assert rc == 0 or not what.submitted
    if rc:
        importer.unreserve(base, glance.covered_size)
    return (None if rc else objects), base


def test_all_of_it(exporter: XeBackend, importer: XeBackend) -> None:
    objects = exporter.create_objects(OBJECT_SIZE, "device", OBJECTS)
    for index in range(OBJECTS):
        page = array("Q", [OBJECT_SIZE])
        data = memoryview(bytes([65 + index]) * OBJECT_SIZE)
        exporter.write_extents(objects[index : index + 1], array("Q", [0]), page, data)
    before = fd_count()
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fds = descriptors(exporter, objects)
    with far:
        mine, base = open_it(importer, resealed(a_manifest()), fds, near.detach())
        assert mine is not None
        assert far.recv(9) == WORD
        assert far.recv(9) == b""
    # The device keeps one for the CPU's copies.
    assert fd_count() <= before + 1
    size = sum(pages for *_, pages in EXTENTS) * PAGE
    copy = importer.create_objects(size, "device", 1)
    there = importer.reserve(size, None, PAGE, 0)
    one = array("Q", [0]), array("Q", [size])
    importer.map_extents(there, copy, *one, array("B", [0]), time.monotonic() + 10)
    importer.copy(there, base, size, time.monotonic() + 10)
    seen = bytearray(size)
    importer.read_extents(copy, *one, memoryview(seen))
    assert seen == b"".join(bytes([65 + index]) * pages * PAGE for index, _, pages in EXTENTS)
    for address in (base, there):
        importer.unmap(address, size, time.monotonic() + 10)
        importer.unreserve(address, size)
    importer.release_objects(copy)
    importer.release_objects(mine)
    exporter.release_objects(objects)
    importer._copies.close()
    assert importer.live_objects == 0


damage = st.lists(
    st.tuples(
        st.integers(0, 2 * 8 * 4 + 8 * OBJECTS + 5 * 4 - 1),
        st.sampled_from((0, 1, 2, 8, 16, 128, 255)),
    ),
    min_size=0,
    max_size=3,
)


def test_believes_nothing_that_parse_refuses(exporter: XeBackend, importer: XeBackend) -> None:
    """Columns with the digest that belongs to them: refused here exactly where parse() refuses,
    before anything is imported. (What parse() lets pass may yet not be what the descriptors are.)
    """
    objects = exporter.create_objects(OBJECT_SIZE, "device", OBJECTS)
    verdicts = set()

    @settings(max_examples=300)
    @given(damage=damage, swap=st.booleans())
    def check(damage: list[tuple[int, int]], swap: bool) -> None:
        raw = a_manifest()
        if swap:
            raw[112 + 8 * OBJECTS + 64 : 112 + 8 * OBJECTS + 72] = struct.pack("<2I", 1, 0)
        for at, value in damage:
            raw[112 + at] = value
        verdicts.add(same_verdict(exporter, importer, objects, resealed(raw)))

    check()
    exporter.release_objects(objects)
    assert verdicts == {True, False}


def same_verdict(
    exporter: XeBackend, importer: XeBackend, objects: array[int], data: bytes
) -> bool:
    """Whether the manifest is good, on which both agree."""
    try:
        good = parse(data).object_sizes == array("Q", [OBJECT_SIZE] * OBJECTS)
    except InvalidHandle:
        good = False
    fds = descriptors(exporter, objects)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        opened, base = open_it(importer, data, fds, near.fileno())
        assert (opened is not None) == good
        if opened is not None:
            near.detach()
            importer.unmap(base, Glance(data).covered_size, time.monotonic() + 10)
            importer.unreserve(base, Glance(data).covered_size)
            importer.release_objects(opened)
        else:
            # Nothing was closed, nothing is left.
            for number in fds:
                os.close(number)
        assert importer.live_objects == 0
    return good


@pytest.mark.parametrize("request_", [lib.DRM_IOCTL_XE_VM_BIND, lib.DRM_IOCTL_PRIME_FD_TO_HANDLE])
def test_what_the_kernel_refuses_is_said_by_the_steps(
    xe_mock: ze_ipc.Device, request_: int
) -> None:
    """The same errors as ever, and nothing left behind."""
    reservation = xe_mock.reserve(4 * PAGE)
    for index in range(4):
        with xe_mock.physical_memory(PAGE) as memory:
            reservation.map(memory, at=index * PAGE)
    with (
        reservation,
        xe_mock.get_ipc_handle(reservation.ptr, reservation.size) as handle,
        ze_ipc.open_device("mock") as importer,
        ExitStack() as faults,
    ):
        for nth in range(1, 20):
            assert mock.xe_mock_fault(0, request_, nth, errno.ENOMEM, 0) == 0
        faults.callback(mock.xe_mock_clear_faults, 0)
        with pytest.raises((KernelError, OutOfDeviceMemory, OutOfHostMemory)):
            importer.open_ipc_handle(handle)
        faults.close()
        assert backend_of(importer).live_objects == 0
        with importer.open_ipc_handle(handle) as view:
            assert view.objects == 4


# ---- what is put off


def test_an_import_is_in_the_table_when_somebody_looks(xe_mock: ze_ipc.Device) -> None:
    with (
        xe_mock.reserve(2 * PAGE) as reservation,
        xe_mock.physical_memory(2 * PAGE) as memory,
        ze_ipc.open_device("mock") as importer,
    ):
        reservation.map(memory, at=0)
        xe_mock.write(reservation.ptr, b"abc")
        with xe_mock.get_ipc_handle(reservation.ptr + 1, PAGE) as handle:
            views = [importer.open_ipc_handle(handle) for _ in range(3)]
            assert len(importer._late) == 3
            views.pop().close()
            assert len(importer._late) == 2
            assert importer.read(views[0].ptr, 2) == b"bc"
            assert not importer._late
            assert importer.address_range(views[1].ptr) == (views[1].ptr, PAGE)
            with importer.get_ipc_handle(views[0].ptr, 5) as again:
                assert again.size == 5
            for view in views:
                view.close()
            with pytest.raises(ZeIpcError):
                importer.address_range(views[0].ptr)
        assert backend_of(importer).live_objects == 0


def test_a_small_open_gives_up_the_gil_once_at_most(xe_mock: ze_ipc.Device) -> None:
    """Where the broker does not answer at once, as it may here, for it is in this process."""
    with (
        xe_mock.reserve(PAGE) as reservation,
        xe_mock.physical_memory(PAGE) as memory,
        ze_ipc.open_device("mock") as importer,
    ):
        reservation.map(memory, at=0)
        with xe_mock.get_ipc_handle(reservation.ptr, PAGE) as handle:
            importer.open_ipc_handle(handle).close()
            calls, view = calls_of(importer.open_ipc_handle, handle, only=("ze_ipc._xe.",))
            view.close()
    assert calls <= 1


@pytest.mark.parametrize(("count", "greeted"), [(64, None), (65, True), (600, True)])
def test_many_objects_begin_to_come_with_the_answer(
    xe_mock: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch, count: int, greeted: bool | None
) -> None:
    """The exporter sends the first of them while the importer reads what they are."""
    seen = []
    receive = XeBackend.receive_objects

    def look(self: XeBackend, *arguments: Any) -> array[int]:
        seen.append(arguments[-1])
        return receive(self, *arguments)

    monkeypatch.setattr(XeBackend, "receive_objects", look)
    with xe_mock.reserve(count * PAGE) as reservation, ze_ipc.open_device("mock") as importer:
        for index in range(count):
            with xe_mock.physical_memory(PAGE) as memory:
                reservation.map(memory, at=index * PAGE)
        with (
            xe_mock.get_ipc_handle(reservation.ptr, reservation.size) as handle,
            importer.open_ipc_handle(handle) as view,
        ):
            assert view.objects == count
            assert importer.read(view.ptr + view.size - 1, 1) == b"\0"
    assert seen == ([] if greeted is None else [greeted])
