"""What every range offers to other libraries: itself as an array, and the dma-bufs behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ze_ipc.dmabufs import DmaBuf, dmabufs
from ze_ipc.range_array import ArrayLayout, RangeArray

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from ze_ipc.cpu_window import CpuWindow
    from ze_ipc.device import Device
    from ze_ipc.dlpack import GpuLease


class ArrayLike:
    """A range with ``ptr`` and ``size`` on a device; see ``range_array.ArraySource``."""

    _device: Device
    _check: Callable[[str], None]
    ptr: int
    size: int

    @property
    def read_only(self) -> bool:
        raise NotImplementedError

    @property
    def device(self) -> Device:
        """The open device that it is on."""
        return self._device

    def array(
        self,
        dtype: Any = "uint8",
        shape: int | Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        offset: int = 0,
    ) -> RangeArray:
        """Elements of the range for NumPy, PyTorch, SYCL and ``memoryview``, without a copy.

        ``dtype`` is a name such as ``"float32"`` or ``"bfloat16"``, or a dtype of NumPy or PyTorch;
        ``shape`` None takes all from ``offset`` on; ``strides`` None is C order. ``strides`` and
        ``offset`` are bytes, as NumPy's. Raises InvalidArgument where an element would lie outside.
        """
        call = f"{type(self).__name__}.array"
        layout = ArrayLayout.inside(call, self.size, dtype, shape, strides, offset)
        return RangeArray(self, layout)

    def dmabufs(
        self, offset: int = 0, size: int | None = None
    ) -> AbstractContextManager[list[DmaBuf]]:
        """``with view.dmabufs() as pieces``: the (fd, offset, length, range_offset) of the objects
        behind ``[offset, offset + size)``, in order, byte for byte; what ``ibv_reg_dmabuf_mr``,
        libfabric and UCX register. The fds, one an object, are closed at the end of the block.

        FdLimit where there are too many objects; AddressNotFound at a hole of a reservation.
        """
        call = f"{type(self).__name__}.dmabufs"
        self._check(call)
        return dmabufs(self._device, call, self.ptr, self.size, offset, size)

    def __dlpack_device__(self) -> tuple[int, int]:
        """As ``array().__dlpack_device__()``."""
        return self.array().__dlpack_device__()

    def __dlpack__(self, **options: Any) -> CapsuleType:
        """The bytes as a DLPack capsule; the options are those of ``RangeArray.__dlpack__``."""
        return self.array().__dlpack__(**options)

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """The bytes for dpctl and dpnp, where the range was opened for SYCL."""
        return self.array().__sycl_usm_array_interface__

    # ---- what arrays ask

    def _cpu_window(self, offset: int, size: int) -> tuple[CpuWindow, int]:
        raise NotImplementedError

    def _gpu_lease(self) -> GpuLease | None:
        return None

    def _sycl_object(self) -> object:
        return None

    def _read(self, offset: int, size: int) -> bytes:
        return self._device.read(self.ptr + offset, size)
