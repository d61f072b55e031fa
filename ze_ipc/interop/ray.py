"""A tensor transport for Ray: actors of one node return arrays of a range and share its memory.

    ze_ipc.interop.ray.register()                    # in the driver, before the actors are made

    @ray.remote(enable_tensor_transport=True)
    class Producer:
        @ray.method(tensor_transport="ZE_IPC")
        def weights(self):
            return self.reservation.array("float32", (1000, 1000))

What another actor gets for the reference is a RangeArray over the very same memory, not a copy: it
sees later writes, as the producer does. The producer keeps the array, and so the range, while the
reference lives; the consumer's mapping goes with its array, and needs the producer no more. A
consumer on another node gets WrongHost.

A RangeHandle is data and goes through ray.put() and arguments by itself.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray.experimental import (
    TensorTransportManager,
    TensorTransportMetadata,
    register_tensor_transport,
)
from ray.experimental.rdt.tensor_transport_manager import CommunicatorMetadata

from ze_ipc.pickling import Origin, receive
from ze_ipc.range_array import RangeArray

if TYPE_CHECKING:
    from ze_ipc.range_handle import RangeHandle

NAME = "ZE_IPC"


@dataclass
class Metadata(TensorTransportMetadata):
    """What the consumer is told: a handle an array, and how its elements lie in that window."""

    handles: list[bytes] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    layouts: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = field(default_factory=list)
    """(dtype, shape, strides, offset)."""


class ZeIpcTransport(TensorTransportManager):
    """One-sided: the consumer opens what the producer's broker serves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: dict[str, list[RangeHandle]] = {}

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """Every wait of ours ends by itself."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def extract_tensor_transport_metadata(
        self, obj_id: str, rdt_object: list[RangeArray]
    ) -> Metadata:
        """On the producer: a handle for each array, until garbage_collect()."""
        metadata = Metadata(tensor_meta=[], tensor_device="cpu")
        with ExitStack() as undo:
            handles = []
            for array in rdt_object:
                handle, origin, layout = array.export()
                undo.callback(handle.close)
                handles.append(handle)
                metadata.tensor_meta.append((array.shape, array.dtype))
                metadata.handles.append(bytes(handle))
                metadata.origins.append(Origin.of(origin))
                metadata.layouts.append(layout)
            undo.pop_all()
        with self._lock:
            self._handles[obj_id] = handles
        return metadata

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Metadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[RangeArray]:
        """On the consumer: open them all, or none."""
        if target_buffers:
            raise ValueError("nothing is copied, so there is nothing to put into target buffers")
        told = tensor_transport_metadata
        arrays = []
        with ExitStack() as undo:
            for data, origin, layout in zip(told.handles, told.origins, told.layouts, strict=True):
                view = receive(data, origin)
                undo.callback(view.close)
                arrays.append(view.array(*layout))
                view.closes_with_its_arrays()
            undo.pop_all()
        return arrays

    def send_multiple_tensors(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("a one-sided transport sends nothing")

    def garbage_collect(
        self, obj_id: str, tensor_transport_meta: Metadata, tensors: list[RangeArray]
    ) -> None:
        """On the producer: nobody can ask for it any more."""
        with self._lock:
            handles = self._handles.pop(obj_id, [])
        for handle in handles:
            handle.close()

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """An open that fails gives back what it has."""


def register() -> None:
    """Make ``tensor_transport="ZE_IPC"`` known to Ray, for actors that this process makes."""
    register_tensor_transport(NAME, ["cpu", "xpu"], ZeIpcTransport, RangeArray)
