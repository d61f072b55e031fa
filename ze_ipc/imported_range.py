"""A range that another process exported, mapped here."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ze_ipc._buffer import BufferBase
from ze_ipc.backend import OpenTimings
from ze_ipc.errors import ZeIpcError
from ze_ipc.owner import Owner

if TYPE_CHECKING:
    from ze_ipc.backend import CpuMapping
    from ze_ipc.device import Device
    from ze_ipc.imported_objects import ImportedObjects
    from ze_ipc.manifest import Manifest


class ImportedRange(BufferBase, Owner):
    """Owns one reservation, the imported objects and their maps; ``ptr`` is where the exporter's
    ``ptr`` was.

    ``memoryview(view)`` is a zero-copy CPU view where the memory is CPU-visible. A CPU view stays
    valid until it is
    released, even after close(); GPU access ends with close().
    """

    def __init__(
        self,
        device: Device,
        base: int,
        manifest: Manifest,
        objects: ImportedObjects,
        transport: str,
        exporter_pid: int,
    ) -> None:
        self._device = device
        self._base = base
        self._manifest = manifest
        self._objects = objects
        self._view_lock = threading.Lock()
        self._views = 0
        self._cpu: CpuMapping | None = None
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
        self.timings = OpenTimings()
        """Seconds that the steps of the open took."""
        self._open(device._abandoned)
        device._adopt(self)

    @property
    def read_only(self) -> bool:
        """Whether some part of the range may not be written."""
        return self._manifest.read_only

    @property
    def objects(self) -> int:
        """Number of physical memory objects behind the range."""
        return len(self._manifest.object_sizes)

    @property
    def mapped_size(self) -> int:
        """Bytes mapped: the window rounded out to pages."""
        return self._manifest.covered_size

    def _acquire_buffer(self) -> tuple[int, int, bool]:
        self._check("memoryview(ImportedRange)")
        with self._view_lock:
            if self._cpu is None:
                try:
                    self._cpu = self._device._cpu_map(self._manifest, self._objects.objects)
                except (ZeIpcError, OSError) as error:
                    raise BufferError(f"no CPU view of this range: {error}") from error
            self._views += 1
            return self._cpu.address + self._manifest.window_offset, self.size, self.read_only

    def _release_buffer(self) -> None:
        with self._view_lock:
            self._views -= 1
            self._drop_cpu_map()

    def _drop_cpu_map(self) -> None:
        if self._views == 0 and self.closed and self._cpu is not None:
            cpu, self._cpu = self._cpu, None
            cpu.close()

    def _release(self) -> None:
        with self._view_lock:
            self._drop_cpu_map()
        self._device._close_import(self._base, self._manifest.covered_size, self._objects)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"ptr={self.ptr:#x}"
        return f"<ImportedRange size={self.size:#x} objects={self.objects} {state}>"
