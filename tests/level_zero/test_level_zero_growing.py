"""Ranges that grow, and the dma-bufs behind them, through a Level Zero driver."""

from __future__ import annotations

import mmap
import os

import ze_ipc
from helpers import ranges
from ze_ipc.peer_process import Peer

PAGE = 65536
ROOM = 16 * PAGE


def grow(device: ze_ipc.Device, reservation: ze_ipc.Reservation, at: int, count: int) -> bytes:
    """Map that many objects at a place, and fill them with bytes that tell them apart."""
    for index in range(count):
        with device.physical_memory(PAGE) as memory:
            reservation.map(memory, at=at + index * PAGE)
    data = ranges.pattern(count * PAGE, at + 1)
    device.write(reservation.ptr + at, data)
    return data


def test_another_process_follows(device: ze_ipc.Device, peer: Peer) -> None:
    with device.reserve(ROOM) as reservation:
        data = grow(device, reservation, 0, 2)
        handle = device.get_ipc_handle(reservation.ptr + 100, 2 * PAGE - 100)
        ptr, size = peer.call(ranges.open_growing, bytes(handle), ROOM - 100)
        assert size == 2 * PAGE - 100
        for count in (1, 3, 2):
            data += grow(device, reservation, len(data), count)
            old, handle = handle, handle.extend()
            old.close()
            assert peer.call(ranges.follow, bytes(handle)) == (ptr, len(data) - 100)
            assert peer.call(ranges.read_view) == data[100:]
            assert peer.call(ranges.address_range, len(data) - 200) == (True, len(data) - 100)
        peer.call(ranges.gpu_copy, len(data) - PAGE, 0, 1000)
        assert device.read(reservation.ptr + 100 + len(data) - PAGE, 1000) == data[100:1100]
        seen = peer.call(ranges.cpu_view, len(data) - 300, 100)
        assert seen == data[-200:-100]
        handle.close()
        peer.call(ranges.close_view)


def test_the_dma_bufs_are_the_memory(device: ze_ipc.Device) -> None:
    with device.reserve(ROOM) as reservation:
        data = grow(device, reservation, 0, 3)
        with reservation.dmabufs(1000, 2 * PAGE) as pieces:
            assert [(p.offset, p.length, p.range_offset) for p in pieces] == [
                (1000, PAGE - 1000, 1000),
                (0, PAGE, PAGE),
                (0, 1000, 2 * PAGE),
            ]
            for piece in pieces:
                size = os.lseek(piece.fd, 0, os.SEEK_END)
                with mmap.mmap(piece.fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
                    found = memory[piece.offset : piece.offset + piece.length]
                assert found == data[piece.range_offset :][: piece.length]


def test_arrays_are_the_memory(device: ze_ipc.Device) -> None:
    with device.reserve(ROOM) as reservation:
        data = grow(device, reservation, 0, 2)
        with memoryview(reservation.array("uint16", (2, 4), (PAGE, 2))) as window:
            assert window.tobytes() == data[:8] + data[PAGE : PAGE + 8]
        assert reservation.__dlpack_device__() == (1, 0)
