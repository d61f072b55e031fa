"""Elements of a range as array libraries take them, without a copy and without importing one."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from ze_ipc import dlpack
from ze_ipc._buffer import BufferBase
from ze_ipc.cpu_window import CpuLease, CpuWindow
from ze_ipc.dtype import DType, dtype_of
from ze_ipc.errors import InvalidArgument

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from ze_ipc.device import Device
    from ze_ipc.range_handle import RangeHandle

    Rebuilt = tuple[str, tuple[int, ...], tuple[int, ...], int]


class ArraySource(Protocol):
    """A range that arrays can be made of."""

    @property
    def ptr(self) -> int:
        """GPU VA of its first byte."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def device(self) -> Device:
        """The open device that it is on."""
        ...

    def _cpu_window(self, offset: int, size: int) -> tuple[CpuWindow, int]:
        """A CPU window that has these bytes, and where in it they begin."""
        ...

    def _gpu_lease(self) -> dlpack.GpuLease | None:
        """What keeps the GPU addresses mapped while it lives; None where no other library can use
        them.
        """
        ...

    def _sycl_object(self) -> object:
        """The SYCL queue or context that the GPU addresses are of, or None."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether some part of it may not be written."""
        ...

    def _read(self, offset: int, size: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """Where the elements of an array are, in bytes from the beginning of its range."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes."""
    offset: int
    """Of the element with all indices 0."""
    start: int
    """Of the first byte of any element."""
    end: int
    """After the last byte of any element."""

    @classmethod
    def inside(
        cls,
        call: str,
        size: int,
        dtype: Any,
        shape: int | Sequence[int] | None,
        strides: Sequence[int] | None,
        offset: int,
    ) -> ArrayLayout:
        """Elements within ``size`` bytes, or InvalidArgument."""
        kind = dtype_of(call, dtype)
        offset = operator.index(offset)
        extents = _shape(call, kind, size - offset, shape)
        steps = _strides(call, kind, extents, strides)
        start, end = offset, offset
        if 0 not in extents:
            reach = [(n - 1) * step for n, step in zip(extents, steps, strict=True)]
            start += sum(step for step in reach if step < 0)
            end += sum(step for step in reach if step > 0) + kind.size
        if start < 0 or end > size:
            raise InvalidArgument(
                "the array reaches beyond the range",
                call=call,
                hint=f"keep all elements within {size} bytes",
                first_byte=start,
                end_byte=end,
                shape=extents,
                strides=steps,
            )
        return cls(kind, extents, steps, offset, start, end)


class RangeArray(BufferBase):
    """Elements of a range: ``numpy.asarray(a)``, ``torch.from_dlpack(a)``, ``memoryview(a)`` and
    SYCL's ``__sycl_usm_array_interface__`` see the range's own memory.

    It costs nothing until it is taken, and keeps its range alive. What was taken by the CPU stays
    valid after the range is closed; a range whose GPU addresses were taken cannot be closed before
    they are given back (BufferError).
    """

    def __init__(self, source: ArraySource, layout: ArrayLayout) -> None:
        self._source = source
        self._layout = layout
        self._lease: dlpack.GpuLease | None = None

    @property
    def dtype(self) -> str:
        """The type of the elements by name, such as ``float32``."""
        return self._layout.dtype.name

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._layout.dtype.size

    @property
    def shape(self) -> tuple[int, ...]:
        return self._layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self._layout.strides

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._layout.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self._layout.shape) * self.itemsize

    @property
    def ptr(self) -> int:
        """GPU VA of the element with all indices 0."""
        return self._source.ptr + self._layout.offset

    def _acquire_buffer(self) -> CpuLease:
        layout = self._layout
        if not layout.dtype.format:
            raise BufferError(
                f"the buffer protocol has no {self.dtype}: use DLPack, or make the array of uint16"
            )
        span = layout.end - layout.start
        window, at = self._source._cpu_window(layout.start, span)
        first = at + layout.offset - layout.start
        kind = layout.dtype
        elements = (first, kind.format, kind.size, layout.shape, layout.strides)
        return CpuLease(self, window, elements)

    def export(
        self,
    ) -> tuple[RangeHandle, Device, tuple[str, tuple[int, ...], tuple[int, ...], int]]:
        """A handle of the bytes that the elements span, for whoever rebuilds the array elsewhere by
        ``view.array(*layout)``: (handle, device, layout).
        """
        layout = self._layout
        span = layout.end - layout.start
        device = self._source.device
        handle = device.get_ipc_handle(self._source.ptr + layout.start, max(1, span))
        rebuilt = self.dtype, self.shape, self.strides, layout.offset - layout.start
        return handle, device, rebuilt

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kDLOneAPI, place) where the range was opened in a context of SYCL, else (kDLCPU, 0)."""
        lease = self._source._gpu_lease()
        return dlpack.CPU if lease is None else (dlpack.ONE_API, lease.place)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A DLPack capsule; versioned, with the read-only flag, where ``max_version`` allows it.

        Ours are synchronous operations, so ``stream`` has nothing to wait for. A CPU view is given
        on request (``dl_device=(1, 0)``) where the memory is on the GPU, copied only if ``copy`` is
        not False and the CPU cannot reach it. BufferError says what cannot be.
        """
        return dlpack.export(self._source, self._layout, stream, max_version, dl_device, copy)

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """Version 1, for dpctl and dpnp; AttributeError unless the range was opened for SYCL."""
        syclobj = self._source._sycl_object()
        kind = self._layout.dtype
        if syclobj is None:
            raise AttributeError(
                "the range was not opened for SYCL: use ze_ipc.interop.sycl.open_ipc_handle()"
            )
        if not kind.typestr:
            raise AttributeError(f"__sycl_usm_array_interface__ has no {kind.name}")
        if any(step % kind.size for step in self.strides):
            raise AttributeError("strides of SYCL's arrays count elements")
        rows = _strides("", kind, self.shape, None)
        steps = tuple(step // kind.size for step in self.strides)
        # Whoever takes the addresses keeps this array, and so the range's mapping.
        self._lease = self._source._gpu_lease()
        return {
            # True means read-only, as in NumPy's interface; MemoryUSM* of dpctl say the contrary.
            "data": (self.ptr, self._source.read_only),
            "shape": self.shape,
            "strides": None if self.strides == rows else steps,
            "typestr": kind.typestr,
            "version": 1,
            "offset": 0,
            "syclobj": syclobj,
        }

    def __repr__(self) -> str:
        return f"<RangeArray {self.dtype} shape={self.shape} of {self._source!r}>"


def _shape(
    call: str, dtype: DType, room: int, shape: int | Sequence[int] | None
) -> tuple[int, ...]:
    if shape is None:
        count, rest = divmod(room, dtype.size)
        if room < 0 or rest:
            raise InvalidArgument(
                f"the range is no whole number of {dtype.name}",
                call=call,
                hint=f"pass a shape, such as ({max(count, 0)},)",
                size=room,
            )
        return (count,)
    if isinstance(shape, Sequence):
        extents = tuple(operator.index(extent) for extent in shape)
    else:
        extents = (operator.index(shape),)
    if any(extent < 0 for extent in extents):
        raise InvalidArgument(
            "an axis has a negative length", call=call, hint="pass its length", shape=extents
        )
    return extents


def _strides(
    call: str, dtype: DType, shape: tuple[int, ...], strides: Sequence[int] | None
) -> tuple[int, ...]:
    if strides is None:
        lengths = [max(1, extent) for extent in reversed(shape[1:])]
        inner = accumulate(lengths, operator.mul, initial=dtype.size)
        return tuple(reversed(list(inner)))[: len(shape)] if shape else ()
    steps = tuple(operator.index(step) for step in strides)
    if len(steps) != len(shape):
        raise InvalidArgument(
            "shape and strides differ in length",
            call=call,
            hint="pass one stride an axis, in bytes",
            shape=shape,
            strides=steps,
        )
    return steps
