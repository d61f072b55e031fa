"""PyTorch over a range of many objects that another process exported, without a copy."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import ze_ipc
from helpers import native_way, ranges
from ze_ipc.peer_process import Peer

OBJECTS = 8
OBJECT = 64 << 10
SIZE = OBJECTS * OBJECT

torch.set_num_threads(1)
"""Else its first work on a large tensor leaves threads behind."""


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with Peer() as peer:
        peer.call(ranges.open_device)
        # Its broker starts, and stays, here.
        peer.call(ranges.export_range, 1, OBJECT, b"a")
        peer.call(ranges.put_handle)
        peer.call(ranges.close_reservation)
        yield peer
        peer.call(ranges.close_all)


@pytest.fixture
def view(xe_mock: ze_ipc.Device, peer: Peer) -> Iterator[ze_ipc.ImportedRange]:
    handle = peer.call(ranges.export_range, OBJECTS, OBJECT, b"abcdefgh")
    with xe_mock.open_ipc_handle(handle) as view:
        yield view
    peer.call(ranges.put_handle)
    peer.call(ranges.close_reservation)


def test_both_processes_see_what_torch_writes(view: ze_ipc.ImportedRange, peer: Peer) -> None:
    tensor = torch.from_dlpack(view.array(torch.float32, (OBJECTS, OBJECT // 4)))
    assert tensor.device == torch.device("cpu")
    tensor.copy_(torch.arange(SIZE // 4, dtype=torch.float32).reshape(tensor.shape))
    tensor[3:5] *= 2
    wanted = np.arange(SIZE // 4, dtype=np.float32).reshape(tensor.shape)
    wanted[3:5] *= 2
    assert peer.call(native_way.read_exported, 0, SIZE) == wanted.tobytes()


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.uint8, torch.int16, torch.uint32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float64, torch.complex64),
    ],
)
def test_every_type(view: ze_ipc.ImportedRange, dtype: torch.dtype) -> None:
    tensor = torch.from_dlpack(view.array(dtype))
    assert tensor.dtype == dtype
    assert tensor.numel() == SIZE // dtype.itemsize
    assert tensor.view(torch.uint8)[OBJECT * 3].item() == ord("d")


def test_strides_and_offsets(view: ze_ipc.ImportedRange) -> None:
    array = view.array("uint8", (OBJECTS, 4), (OBJECT, 2), OBJECT // 2)
    tensor = torch.from_dlpack(array)
    assert tensor.stride() == (OBJECT, 2)
    assert bytes(tensor[:, 3].tolist()) == b"abcdefgh"
    assert tensor.data_ptr() == np.asarray(array).ctypes.data


def test_lifetime(view: ze_ipc.ImportedRange) -> None:
    tensor = torch.from_dlpack(view)
    part = tensor[OBJECT * 2 :][:4]
    del tensor
    view.close()
    gc.collect()
    assert bytes(part.tolist()) == b"cccc"
    thread = threading.Thread(target=part.fill_, args=(1,))
    thread.start()
    thread.join()
    assert part.sum() == 4


def test_the_buffer_protocol_and_numpy(view: ze_ipc.ImportedRange) -> None:
    tensor = torch.frombuffer(view, dtype=torch.uint8)
    same = torch.from_numpy(np.asarray(view.array("uint8")))
    tensor[5] = 77
    assert same[5] == 77


def test_read_only_memory(xe_mock: ze_ipc.Device) -> None:
    with xe_mock.reserve(4096) as reservation, xe_mock.physical_memory(4096) as memory:
        reservation.map(memory, at=0, access="ro")
        with (
            xe_mock.get_ipc_handle(reservation.ptr, 4096) as handle,
            xe_mock.open_ipc_handle(handle) as view,
        ):
            # PyTorch has no read-only tensors and does not look at DLPack's flag.
            assert torch.from_dlpack(view).sum() == 0
            copied = torch.from_dlpack(view, copy=True)
            copied.fill_(5)
            assert bytes(memoryview(view)[:2]) == b"\0\0"
