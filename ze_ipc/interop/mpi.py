"""Ranges between the MPI ranks of one node, by mpi4py.

The calls here are collective: every rank of the communicator makes them. They succeed on all ranks
or raise on all, so that no rank waits for one that has failed. Handles do not cross nodes: split
the communicator by ``comm.Split_type(MPI.COMM_TYPE_SHARED)`` first, else WrongHost is raised.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ze_ipc.errors import WrongHost, ZeIpcError
from ze_ipc.host import host_identity

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.imported_range import ImportedRange
    from ze_ipc.range_handle import RangeHandle


class PeerRankFailed(ZeIpcError):
    """Another rank could not open what it was sent; ``values['rank']`` says which."""

    default_hint = "see that rank's own error"


def allgather(
    comm: Any, handle: RangeHandle | None, device: Device, timeout: float = 10.0
) -> list[ImportedRange | None]:
    """Give each rank what every other one exports: by rank, None for oneself and for who gave None.

    Once it returns, all ranks have opened everything: the handles may be closed.
    """
    mine = None if handle is None else bytes(handle)
    everybody = comm.allgather((host_identity(), mine))
    _check_hosts(comm, [host for host, _ in everybody])
    offered = [data for _, data in everybody]
    offered[comm.Get_rank()] = None
    return _open_all(comm, offered, device, timeout)


def bcast(
    comm: Any,
    handle: RangeHandle | None,
    device: Device,
    root: int = 0,
    timeout: float = 10.0,
) -> ImportedRange | None:
    """Give every rank what ``root`` exports; None there. Once it returns, all have opened it."""
    is_root = comm.Get_rank() == root
    mine = bytes(handle) if is_root and handle is not None else None
    everybody = comm.allgather((host_identity(), mine))
    _check_hosts(comm, [host for host, _ in everybody])
    offered = everybody[root][1]
    if offered is None:
        raise TypeError(f"rank {root} gave no handle")
    return _open_all(comm, [None if is_root else offered], device, timeout)[0]


def _check_hosts(comm: Any, hosts: list[bytes]) -> None:
    others = [rank for rank, host in enumerate(hosts) if host != hosts[0]]
    if others:
        raise WrongHost(
            "the ranks of this communicator are on several machines",
            call="mpi",
            hint="use comm.Split_type(MPI.COMM_TYPE_SHARED)",
            ranks=others,
        )


def _open_all(
    comm: Any, offered: list[bytes | None], device: Device, timeout: float
) -> list[ImportedRange | None]:
    views: list[ImportedRange | None] = []
    with ExitStack() as undo:
        failure: Exception | None = None
        try:
            for data in offered:
                view = None if data is None else device.open_ipc_handle(data, timeout)
                views.append(view)
                if view is not None:
                    undo.callback(view.close)
        except Exception as error:
            failure = error
        failed = [rank for rank, bad in enumerate(comm.allgather(failure is not None)) if bad]
        if failure is not None:
            raise failure
        if failed:
            raise PeerRankFailed(
                f"rank {failed[0]} could not open what it was sent", call="mpi", rank=failed[0]
            )
        undo.pop_all()
    return views
