"""What each MPI rank does in the tests; run by mpiexec."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from mpi4py import MPI

import ze_ipc
from ze_ipc import errors
from ze_ipc.interop import mpi

PAGE = 4096


def gather(node: MPI.Comm) -> None:
    """Each rank exports a range, writes into every other's and reads its own afterwards."""
    rank, size = node.Get_rank(), node.Get_size()
    with ze_ipc.open_device("mock") as device, device.reserve(2 * size * PAGE) as reservation:
        for at in range(0, 2 * size * PAGE, PAGE):
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=at)
        mine = np.asarray(reservation.array("int64", (size, PAGE // 4)))
        with device.get_ipc_handle(reservation.ptr, reservation.size) as handle:
            views = mpi.allgather(node, handle, device)
        assert [view is None for view in views] == [other == rank for other in range(size)]
        for other, view in enumerate(views):
            if view is not None:
                with view:
                    np.asarray(view.array("int64", (size, PAGE // 4)))[rank] = 100 * rank + other
        node.Barrier()
        for other in range(size):
            assert (mine[other] == (100 * other + rank if other != rank else 0)).all()


def broadcast(node: MPI.Comm) -> None:
    rank = node.Get_rank()
    with ze_ipc.open_device("mock") as device, device.reserve(PAGE) as reservation:
        handle = None
        if rank == 1:
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=0)
            device.write(reservation.ptr, b"from rank 1")
            handle = device.get_ipc_handle(reservation.ptr, 11)
        view = mpi.bcast(node, handle, device, root=1)
        if handle is not None:
            handle.close()
        assert (view is None) == (rank == 1)
        if view is not None:
            with view:
                assert bytes(memoryview(view)) == b"from rank 1"


def failures(node: MPI.Comm) -> None:
    """One rank cannot open; all know, and nothing is left open."""
    rank = node.Get_rank()
    with ze_ipc.open_device("mock") as device, device.reserve(PAGE) as reservation:
        with device.physical_memory(PAGE) as memory:
            reservation.map(memory, at=0)
        with device.get_ipc_handle(reservation.ptr, PAGE) as handle:
            revoked = bytes(handle) if rank == 0 else b""
            if rank == 0:
                handle.close()
                handle = ze_ipc.RangeHandle.from_bytes(revoked)
            expected = errors.HandleRevoked if rank else mpi.PeerRankFailed
            with pytest.raises(expected) as caught:
                mpi.bcast(node, handle, device)
            assert rank or caught.value.values["rank"] == 1
        with pytest.raises(TypeError):
            mpi.bcast(node, None, device, root=0)


def main() -> None:
    node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    assert node.Get_size() == MPI.COMM_WORLD.Get_size()
    for step in (gather, broadcast, failures):
        step(node)
        node.Barrier()
    if node.Get_rank() == 0:
        print("all ranks are done")
    node.Free()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
