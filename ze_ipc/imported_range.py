"""A range that another process exported, mapped here."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from ze_ipc._buffer import BufferBase
from ze_ipc.array_like import ArrayLike
from ze_ipc.backend import OpenTimings
from ze_ipc.cpu_window import CpuLease, CpuWindow
from ze_ipc.dlpack import GpuLease
from ze_ipc.manifest import Exposure, Glance, exposure, parse
from ze_ipc.owner import Owner

if TYPE_CHECKING:
    from ze_ipc.backend import CpuMapping
    from ze_ipc.device import Device
    from ze_ipc.imported_objects import ImportedObjects
    from ze_ipc.manifest import Manifest
    from ze_ipc.range_handle import RangeHandle


class ImportedRange(BufferBase, ArrayLike, Owner):
    """Owns one reservation, the imported objects and their maps; ``ptr`` is where the exporter's
    ``ptr`` was.

    ``memoryview(view)`` and ``array()`` are zero-copy views where the memory is CPU-visible. A CPU
    view stays valid until it is released, even after close(); GPU access ends with close(), which
    raises BufferError while another library uses the GPU addresses by DLPack.
    """

    def __init__(
        self,
        device: Device,
        base: int,
        manifest: Manifest | Glance,
        objects: ImportedObjects,
        transport: str,
        exporter_pid: int,
        room: int,
        timings: OpenTimings | None = None,
    ) -> None:
        self._device = device
        self._base = base
        self._described = manifest
        self._objects = objects
        self._room = room
        """Bytes of VA from ``base`` on."""
        self._grow_lock = threading.Lock()
        self._made_window: CpuWindow | None = None
        self._sycl: object = None
        """The SYCL queue or context that it was opened for (interop.sycl)."""
        self._gpu_leases: weakref.WeakSet[GpuLease] | None = None
        self.ptr = base + manifest.window_offset
        """GPU VA of the first byte of the window; as unaligned as the exporter's was."""
        self.size = manifest.window_size
        """Bytes of the window."""
        self.transport = transport
        """How the objects came: ``"broker"``, ``"pidfd"``, ``"native"`` (by the driver), or
        ``"cached"`` where this process held them already.
        """
        self.exporter_pid = exporter_pid
        """The exporter's pid as the kernel reports it, 0 where it cannot be seen from here."""
        self.timings = timings or OpenTimings()
        """Seconds that the steps of the open took."""
        self._open(device._abandoned, device._owned)

    @property
    def read_only(self) -> bool:
        """Whether some part of the range may not be written."""
        return self._manifest.read_only

    @property
    def _manifest(self) -> Manifest:
        described = self._described
        if isinstance(described, Glance):
            # Checked already, when it was mapped; most are never looked at.
            self._described = described = parse(described.raw)
        return described

    @property
    def objects(self) -> int:
        """Number of physical memory objects behind the range."""
        return self._described.object_count

    @property
    def exposure(self) -> Exposure:
        """What of the exporter's objects this process can reach; computed at each call."""
        return exposure(self._manifest)

    @property
    def mapped_size(self) -> int:
        """Bytes mapped: the window rounded out to pages."""
        return self._described.covered_size

    @property
    def room(self) -> int:
        """Bytes that the range may grow to in place (``open_ipc_handle(..., reserve=)``)."""
        return self._room - self._described.window_offset

    def extend(
        self, data: bytes | bytearray | memoryview | RangeHandle, timeout: float = 10.0
    ) -> ImportedRange:
        """Follow a range that has grown: map what a handle made by ``handle.extend()`` has after
        this range's end, and nothing else; ``ptr`` and all that is mapped stay as they are.

        Only the objects that are new here are sent. CPU views taken before keep their size.
        InvalidArgument where the handle does not go on from this range, OutOfDeviceMemory where
        there is no ``room``, UnsupportedFeature for a driver's own handle; else as
        open_ipc_handle(). Nothing changes then.
        """
        self._check("ImportedRange.extend")
        self._device._extend_view(self, data, timeout)
        return self

    def _follow(self, manifest: Manifest, objects: ImportedObjects) -> ImportedObjects:
        """It is as long as this manifest now; what it held before, to be dropped."""
        with self._close_lock:
            window, self._made_window = self._made_window, None
            before, self._objects, self._described = self._objects, objects, manifest
            self.size = manifest.window_size
        if window is not None:
            window.drop()
        return before

    def closes_with_its_arrays(self) -> None:
        """From now on it needs no close(): collected with the last of its arrays, it is closed by
        the next call into its device, without a warning.
        """
        self._warns = False

    def _acquire_buffer(self) -> CpuLease:
        self._check("memoryview(ImportedRange)")
        return CpuLease(self, self._window)

    # ---- what arrays ask

    def _cpu_window(self, offset: int, size: int) -> tuple[CpuWindow, int]:
        self._check("ImportedRange.array")
        return self._window, offset

    @property
    def _window(self) -> CpuWindow:
        if self._made_window is None:
            with self._close_lock:
                self._made_window = self._made_window or self._new_window()
        return self._made_window

    def _new_window(self) -> CpuWindow:
        manifest, objects = self._manifest, self._objects.objects

        def make() -> tuple[CpuMapping, bool]:
            return self._device._cpu_map(manifest, objects), manifest.read_only

        return CpuWindow(make, manifest.window_offset, manifest.window_size, keep=True)

    def _gpu_lease(self) -> GpuLease | None:
        self._check("ImportedRange.array")
        place = self._device._backend.sycl_place
        if place is None:
            return None
        lease = GpuLease(self, place)
        with self._close_lock:
            if self._gpu_leases is None:
                self._gpu_leases = weakref.WeakSet()
            self._gpu_leases.add(lease)
        return lease

    def _sycl_object(self) -> object:
        return self._sycl

    def _check_unused(self) -> None:
        if self._gpu_leases:
            raise BufferError(
                f"{len(self._gpu_leases)} arrays of other libraries use {self!r}: "
                "delete them before close()"
            )

    def _lose(self) -> None:
        self._drop_window()
        super()._lose()

    def _drop_window(self) -> None:
        if self._made_window is not None:
            self._made_window.drop()

    def _release(self) -> None:
        self._drop_window()
        self._device._close_import(self)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"ptr={self.ptr:#x}"
        return f"<ImportedRange size={self.size:#x} objects={self.objects} {state}>"
