"""The 64 opaque bytes that a user passes around."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ze_ipc.errors import UnsupportedFeature
from ze_ipc.export import Export
from ze_ipc.handle import HANDLE_SIZE, HandleFields
from ze_ipc.owner import Owner

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.importer import Importer, ImporterEvent
    from ze_ipc.manifest import Exposure
    from ze_ipc.native_range import NativeExport


class RangeHandle(Owner):
    """A handle of ``[ptr, ptr+size)``: as get_ipc_handle returns it, it owns the export; from
    bytes, it is only data.

    Equal bytes are equal handles. It pickles as its bytes: an unpickled copy owns nothing.
    """

    def __init__(
        self, data: bytes, device: Device | None = None, export: Export | NativeExport | None = None
    ) -> None:
        self._data = bytes(data)
        self._device = device
        self._export = export
        if device is not None:  # else there is nothing to give back, nothing to warn about
            self._open(device._abandoned, device._owned)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, native: bool = False) -> RangeHandle:
        """A handle from its 64 bytes; InvalidHandle if they are damaged or not ours.

        ``native``: they are a driver's own (of a device whose ``ipc_path`` is ``"native"``), which
        only that driver can judge.
        """
        raw = bytes(data)
        if native and len(raw) == HANDLE_SIZE:
            return cls(raw)
        HandleFields.unpack(raw)
        return cls(raw)

    def __bytes__(self) -> bytes:
        return self._data

    def hex(self) -> str:
        """128 hexadecimal digits."""
        return self._data.hex()

    @property
    def owns_export(self) -> bool:
        """Whether closing this object puts the handle (zeMemPutIpcHandle)."""
        return self._export is not None

    @property
    def size(self) -> int | None:
        """Bytes of the window, where this object owns the export; importers learn it by opening."""
        return None if self._export is None else self._export.size

    @property
    def objects(self) -> int | None:
        """Number of physical objects, where this object owns the export."""
        return None if self._export is None else self._export.object_count

    def importers(self) -> list[Importer]:
        """The processes that opened this handle and are alive; for the owner of the export."""
        self._check("RangeHandle.importers")
        assert self._device is not None
        return self._device._importers(self._data)

    def extend(self, size: int | None = None) -> RangeHandle:
        """A handle of the same range, grown to ``size`` bytes: whoever has this one open follows by
        ``view.extend(new_handle)`` without moving, anybody else opens the new one as any other.

        ``size`` None takes all that is mapped without a hole now. This handle stays as it is, and
        may be closed; the new one is the one to extend next, under the same policy. InvalidSize
        where the range has not grown, InvalidArgument where this part of it was mapped anew or this
        is not the newest handle, UnsupportedFeature for a driver's own.
        """
        self._check("RangeHandle.extend")
        assert self._device is not None
        return self._device._extend(self._export, size)

    @property
    def exposure(self) -> Exposure | None:
        """What an importer can reach beyond the window, for objects are shared whole; None where
        this object does not own the export, or the driver made the handle.
        """
        return self._export.exposure if isinstance(self._export, Export) else None

    def on_importer(self, callback: Callable[[ImporterEvent], None]) -> None:
        """Have ``callback(event)`` called when a process opens this handle, closes all that it
        opened, or dies holding it; from now until the handle is closed.

        Callbacks of a device run one after another on a thread of their own (``ze_ipc-callbacks``)
        and may call anything, close() too. An end is told at once for 64 processes a device, for
        more of them within some seconds. UnsupportedFeature for a handle that the driver made.
        """
        self._check("RangeHandle.on_importer")
        if not isinstance(self._export, Export):
            raise UnsupportedFeature(
                "the driver does not say who opens its handles", call="RangeHandle.on_importer"
            )
        self._export.listen(callback)

    def revoke(self) -> None:
        """Serve nobody any more, and end the opens that have begun; what is open stays open.

        close() lets opens that have begun finish. A driver's own handle cannot be revoked before
        it is closed: UnsupportedFeature.
        """
        self._check("RangeHandle.revoke")
        assert self._device is not None
        if not isinstance(self._export, Export):
            raise UnsupportedFeature(
                "the driver's handle cannot be revoked", call="RangeHandle.revoke", hint="close it"
            )
        self._device._revoke(self._data)

    def _release(self) -> None:
        if self._device is not None:
            self._device._put(self._data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeHandle) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:  # type: ignore[override]
        return RangeHandle, (self._data,)

    def __repr__(self) -> str:
        if self._export is None:
            return f"<RangeHandle {self._data.hex()[:8]}… from bytes>"
        state = "put" if self.closed else "open"
        exposure = self.exposure
        reachable = "" if exposure is None else f" reachable={exposure.reachable:#x}"
        return (
            f"<RangeHandle size={self._export.size:#x} objects={self._export.object_count}"
            f"{reachable} {state}>"
        )
