"""The DLPack protocol: capsules of a range's own memory, by the CPU or in a context of SYCL."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from ze_ipc._dlpack import address_of, capsule
from ze_ipc.cpu_window import CpuLease

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from ze_ipc.range_array import ArrayLayout, ArraySource

CPU = (1, 0)
"""(kDLCPU, 0)."""
ONE_API = 14
"""kDLOneAPI."""

_READ_ONLY, _IS_COPIED = 1, 2
"""DLPACK_FLAG_BITMASK_*."""


class GpuLease:
    """Held by whom uses a range's GPU addresses; the range cannot be closed while it lives."""

    def __init__(self, owner: object, place: int) -> None:
        self._owner = owner
        self.place = place
        """The device's number in DLPack: its place among the root devices of its driver."""


def export(
    source: ArraySource,
    layout: ArrayLayout,
    stream: object,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> CapsuleType:
    """A capsule as ``__dlpack__`` is asked for it, or BufferError that says why there is none."""
    versioned = max_version is not None and operator.index(max_version[0]) >= 1
    lease = source._gpu_lease()
    own = CPU if lease is None else (ONE_API, lease.place)
    wanted = own if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if wanted == own and lease is not None:
        if copy:
            raise BufferError("no copy is made on the GPU: ask for dl_device=(1, 0), or copy=False")
        address = source.ptr + layout.offset
        return _capsule(layout, lease, address, wanted, _flags(source.read_only), versioned)
    if wanted != CPU:
        raise BufferError(f"the memory is on device {own} and not on {wanted}")
    if stream is not None:
        raise BufferError("the CPU has no streams: pass stream=None")
    if not copy:
        try:
            window, at = source._cpu_window(layout.start, layout.end - layout.start)
            held = memoryview(CpuLease(source, window))
        except BufferError:
            if copy is False or lease is None:
                raise
        else:
            address = address_of(held) + at + layout.offset - layout.start
            return _capsule(layout, held, address, CPU, _flags(held.readonly), versioned)
    span = source._read(layout.start, layout.end - layout.start) or b"\0"
    held = memoryview(bytearray(span))
    address = address_of(held) + layout.offset - layout.start
    return _capsule(layout, held, address, CPU, _IS_COPIED if versioned else 0, versioned)


def _flags(read_only: bool) -> int:
    return _READ_ONLY if read_only else 0


def _capsule(
    layout: ArrayLayout,
    owner: object,
    address: int,
    device: tuple[int, int],
    flags: int,
    versioned: bool,
) -> CapsuleType:
    kind = layout.dtype
    if flags & _READ_ONLY and not versioned:
        raise BufferError(
            "the memory is read-only, which DLPack can say from version 1.0 on: "
            "pass max_version=(1, 0), or copy=True"
        )
    if address % kind.size:
        raise BufferError(
            f"DLPack has no {kind.name} at an address that is no multiple of {kind.size}: "
            "take the array by the buffer protocol (numpy.asarray), or copy=True of uint8"
        )
    if any(step % kind.size for step in layout.strides):
        raise BufferError(f"DLPack's strides count elements, and these do not: {layout.strides}")
    strides = tuple(step // kind.size for step in layout.strides)
    return capsule(
        owner,
        address,
        (kind.code, 8 * kind.size),
        layout.shape,
        strides,
        device,
        flags,
        versioned,
    )
