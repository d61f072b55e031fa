"""An open device: everything a user does starts here."""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
import time
import warnings
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ze_ipc import arguments, device_listing, grow, native_range, pickling, share, transport
from ze_ipc.broker import Broker
from ze_ipc.cpu_access import CpuAccess
from ze_ipc.device_facts import DeviceFacts
from ze_ipc.errors import InvalidArgument, UnsupportedFeature, ZeIpcError
from ze_ipc.handle import HandleFields
from ze_ipc.imported_objects import ImportCache
from ze_ipc.known_rows import known_rows
from ze_ipc.manifest import VA_PHASE_SIZE, Glance, Manifest, parse
from ze_ipc.mapping_table import VA_END, MappingTable
from ze_ipc.owner import Abandoned, Owned, Owner
from ze_ipc.physical_memory import PhysicalMemory
from ze_ipc.policy import PLAIN, Policy
from ze_ipc.range_handle import RangeHandle
from ze_ipc.reservation import Reservation
from ze_ipc.sent_handles import SentHandles
from ze_ipc.usm import UsmAllocation

if TYPE_CHECKING:
    from ze_ipc.backend import Access, Backend, CpuMapping, HandleType, Placement, UsmKind
    from ze_ipc.export import Export
    from ze_ipc.imported_range import ImportedRange
    from ze_ipc.importer import Importer
    from ze_ipc.native_range import NativeExport

    HandleData = bytes | bytearray | memoryview | RangeHandle

GPU_TIMEOUT = 30.0
"""Seconds that a bind, copy or fill may take before DeviceLost or OpenTimeout is raised."""


@dataclass(frozen=True, slots=True)
class OpenCheck:
    """Whether a handle can be opened here; false with a ``reason``."""

    ok: bool
    reason: str
    """Empty when ok."""
    error: ZeIpcError | None = None
    """What open_ipc_handle would raise."""

    def __bool__(self) -> bool:
        return self.ok


class Device(DeviceFacts):
    """One GPU, opened through one backend. Usable from several threads; not after fork().

    Made by ``ze_ipc.open_device``. close() ends every export of this device and unmaps everything.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.RLock()
        self._rows = MappingTable()
        self._late: dict[int, tuple[Manifest | Glance, array[int], int]] = {}
        """Imports that are not in the table yet, by their base."""
        self._broker: Broker | None = None
        self._imports = ImportCache(backend)
        self._contexts: dict[int, Device] = {}
        self._sent = SentHandles()
        self._owned: Owned = {}
        self._open(None)
        self._abandoned: Abandoned = Abandoned()

    # ---- memory

    def reserve(self, size: int, address: int | None = None) -> Reservation:
        """Reserve ``size`` bytes of GPU VA; ``address`` is met exactly or refused with
        InvalidArgument.
        """
        self._enter("Device.reserve")
        arguments.pages("Device.reserve", "size", size, self.page_size)
        if address is not None:
            arguments.aligned("Device.reserve", "address", address, self.page_size)
        alignment = VA_PHASE_SIZE if size >= VA_PHASE_SIZE else self.page_size
        with self._lock:
            ptr = self._backend.reserve(size, address, alignment, 0)
            try:
                self._table.reserve(ptr, size)
            except BaseException:
                self._backend.unreserve(ptr, size)
                raise
        return Reservation(self, ptr, size)

    def physical_memory(self, size: int, placement: Placement = "device") -> PhysicalMemory:
        """A physical memory object of ``size`` bytes, in device memory or in the host's."""
        self._enter("Device.physical_memory")
        arguments.pages("Device.physical_memory", "size", size, self.page_size)
        arguments.choice("Device.physical_memory", "placement", placement, ("device", "host"))
        obj = self._backend.create_object(size, placement)
        return PhysicalMemory(self, obj, size, placement)

    def allocate(self, size: int, kind: UsmKind = "device") -> UsmAllocation:
        """An ordinary USM allocation of ``size`` bytes; no range handle can carry it."""
        self._enter("Device.allocate")
        arguments.positive("Device.allocate", "size", size)
        arguments.choice("Device.allocate", "kind", kind, ("device", "host", "shared"))
        mapped = -(-size // self.page_size) * self.page_size
        with self._lock:
            ptr, obj = self._backend.allocate_usm(mapped, kind)
            try:
                self._table.add_usm(ptr, mapped, obj)
            except BaseException:
                self._backend.free_usm(ptr, mapped, obj)
                raise
        return UsmAllocation(self, ptr, size, mapped, obj, kind)

    # ---- sharing

    def get_ipc_handle(
        self,
        ptr: int,
        size: int,
        policy: Policy | None = None,
        handle_type: HandleType | None = None,
    ) -> RangeHandle:
        """A handle of ``[ptr, ptr + size)``, a snapshot of what is mapped there now; any ``ptr``
        and ``size``. What other code of this process has mapped counts while ``ze_ipc.observe()``
        sees it.

        ``policy`` says who may open it, how often, until when and how; None: this user's processes,
        without limit. A driver's own handle (ipc_path ``native``) knows none: UnsupportedFeature.

        As zeMemGetIpcHandleWithProperties with the range descriptor: InvalidSize for size 0,
        InvalidNullPointer for ptr 0, InvalidArgument if any byte is USM, AddressNotFound (with
        ``address``) at the first hole. ``handle_type`` is chained behind that descriptor
        (ZE_extension_ipc_mem_handle_type): ``"fabric"`` is a driver's own matter, so that it is
        UnsupportedFeature unless ``ipc_path`` is ``"native"``.
        """
        call = "Device.get_ipc_handle"
        self._enter(call)
        if type(ptr) is not int or type(size) is not int or not 0 < ptr < ptr + size <= VA_END:
            arguments.integer(call, "ptr", ptr)
            arguments.integer(call, "size", size)
        if handle_type is not None:
            arguments.choice(call, "handle_type", handle_type, ("default", "fabric"))
        backend = self._backend
        if backend.ipc_path.way == "unsupported":
            raise UnsupportedFeature(self.ipc_path_reason, call=call)
        native = backend.native
        if native is None and handle_type == "fabric":
            raise UnsupportedFeature("only a driver makes fabric handles", call=call)
        if native is not None and policy is not None:
            raise UnsupportedFeature(
                "the driver's handles open for whoever has them",
                call=call,
                hint="pass no policy, or use backend xe",
            )
        with self._lock:
            known = known_rows(self, ptr, size)
            try:
                if native is not None:
                    return native_range.export_range(self, native, known, ptr, size, handle_type)
                return share.export_range(self, known.rows, ptr, size, policy or PLAIN)
            finally:
                if known.held is not None:
                    backend.release_objects(known.held)

    def open_ipc_handle(
        self,
        data: bytes | bytearray | memoryview | RangeHandle,
        timeout: float = 10.0,
        context: int | None = None,
        reserve: int = 0,
    ) -> ImportedRange:
        """Map the range behind a handle into fresh contiguous VA; it needs the exporter no more
        afterwards.

        ``timeout`` is in seconds. ``context`` is a ze_context_handle_t that another library owns
        (SYCL's, for instance): the range is mapped there, for that library to use, and must be
        closed before the context goes. ``reserve`` is how many bytes the range may grow to in
        place (``ImportedRange.extend``). Raises InvalidHandle, WrongHost, ExporterGone,
        HandleRevoked, AccessDenied, OpenTimeout, OutOfDeviceMemory, PeerAccessError; whatever is
        raised, nothing is left behind.
        """
        self._enter("Device.open_ipc_handle")
        deadline = time.monotonic() + arguments.seconds("Device.open_ipc_handle", timeout)
        if context is not None:
            return self._in_context(context).open_ipc_handle(data, timeout, reserve=reserve)
        arguments.integer("Device.open_ipc_handle", "reserve", reserve)
        raw = arguments.handle("Device.open_ipc_handle", data)
        native = self._backend.native
        if native is not None and native_range.is_native(raw):
            with self._lock:
                return native_range.open_range(self, native, raw)
        return share.open_range(self, HandleFields.unpack(raw), raw, deadline, reserve)

    def can_open(
        self, data: bytes | bytearray | memoryview | RangeHandle, timeout: float = 2.0
    ) -> OpenCheck:
        """Ask the exporter whether this handle could be opened here; never raises for 64
        well-formed bytes.
        """
        self._enter("Device.can_open")
        raw = arguments.handle("Device.can_open", data)
        deadline = time.monotonic() + arguments.seconds("Device.can_open", timeout)
        native = self._backend.native
        try:
            if native is not None and native_range.is_native(raw):
                self.open_ipc_handle(raw).close()
            else:
                transport.probe(HandleFields.unpack(raw), deadline)
        except ZeIpcError as error:
            return OpenCheck(False, str(error), error)
        return OpenCheck(True, "")

    def address_range(self, ptr: int) -> tuple[int, int]:
        """(base, size) of what contains ``ptr``: an imported window, a mapping or an allocation
        (zeMemGetAddressRange).
        """
        self._enter("Device.address_range")
        arguments.integer("Device.address_range", "ptr", ptr)
        with self._lock:
            return self._table.address_range(ptr)

    # ---- bytes

    def read(self, ptr: int, size: int) -> bytes:
        """The bytes of ``[ptr, ptr + size)``, any mapped range, of one or many objects."""
        self._enter("Device.read")
        return self._cpu_access().read(ptr, size)

    def write(self, ptr: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` at ``ptr``; InvalidArgument if any byte is mapped read-only."""
        self._enter("Device.write")
        self._cpu_access().write(ptr, data)

    def copy(self, dst: int, src: int, size: int) -> None:
        """Copy ``size`` bytes between GPU VAs on a copy engine; synchronous."""
        self._enter("Device.copy")
        access = self._cpu_access()
        access.check("Device.copy", dst, size, write=True)
        access.check("Device.copy", src, size, write=False)
        if size:
            self._backend.copy(dst, src, size, time.monotonic() + GPU_TIMEOUT)

    def fill(self, dst: int, value: int, size: int) -> None:
        """Fill ``size`` bytes at ``dst`` with the byte ``value`` (0 to 255) on a copy engine;
        synchronous.
        """
        self._enter("Device.fill")
        if not 0 <= arguments.integer("Device.fill", "value", value) <= 255:
            raise InvalidArgument(
                "the value is one byte", call="Device.fill", value=value, hint="pass 0 to 255"
            )
        self._cpu_access().check("Device.fill", dst, size, write=True)
        if size:
            self._backend.fill(dst, value, size, time.monotonic() + GPU_TIMEOUT)

    def _in_context(self, context: int) -> Device:
        with self._lock:
            inside = self._contexts.get(context)
            if inside is None:
                inside = self._contexts[context] = Device(self._backend.in_context(context))
            return inside

    def _cpu_access(self) -> CpuAccess:
        return CpuAccess(self._backend, self._table, self._lock)

    # ---- what the owners of this device call

    def _enter(self, call: str) -> None:
        if self._closed or os.getpid() != self._pid:
            self._check(call)
        if self._abandoned:
            self._abandoned.close_all()
        if self._sent.handles:
            self._sent.give_up()

    def _open_owners(self) -> list[Owner]:
        return [owner for made in list(self._owned.values()) if (owner := made()) is not None]

    def _map(
        self,
        reservation: Reservation,
        obj: int,
        object_size: int,
        at: int,
        offset: int,
        size: int | None,
        access: Access,
    ) -> None:
        call = "Reservation.map"
        self._enter(call)
        read_only = arguments.access(call, access)
        size = arguments.part(call, at, offset, size, object_size, reservation.size, self.page_size)
        va = reservation.ptr + at
        one = (
            array("Q", (obj,)),
            array("Q", (offset,)),
            array("Q", (size,)),
            array("B", (read_only,)),
        )
        with self._lock:
            reservation._check(call)
            self._table.map_extents(va, *one)
            try:
                self._backend.retain_objects(one[0])
                try:
                    self._backend.map_extents(va, *one, time.monotonic() + GPU_TIMEOUT)
                except BaseException:
                    self._backend.release_objects(one[0])
                    raise
            except BaseException:
                self._table.unmap(va, size)
                raise

    def _unmap(self, reservation: Reservation, at: int, size: int) -> None:
        call = "Reservation.unmap"
        self._enter(call)
        arguments.inside(call, at, size, reservation.size, self.page_size)
        with self._lock:
            reservation._check(call)
            self._unmap_rows(reservation.ptr + at, size)

    def _unmap_rows(self, va: int, size: int) -> None:
        rows = self._table.window(va, size)
        if not rows:
            return
        self._backend.unmap(va, size, time.monotonic() + GPU_TIMEOUT, len(rows))
        gone = self._table.unmap(va, size)
        self._backend.retain_objects(gone.retained)
        self._backend.release_objects(gone.released)

    def _unreserve(self, ptr: int, size: int) -> None:
        with self._lock:
            if self._closed:
                return
            self._unmap_rows(ptr, size)
            self._table.unreserve(ptr, size)
            self._backend.unreserve(ptr, size)

    def _release_objects(self, objects: array[int]) -> None:
        with self._lock:
            if not self._closed:
                self._backend.release_objects(objects)

    def _free_usm(self, ptr: int, size: int, obj: int) -> None:
        with self._lock:
            if self._closed:
                return
            self._table.remove_usm(ptr, size)
            self._backend.free_usm(ptr, size, obj)

    def _add_import(
        self, base: int, manifest: Manifest | Glance, objects: array[int], size: int
    ) -> None:
        """Have an imported range in the table from now on, with ``size`` bytes of VA: entered when
        somebody looks, for many are never looked at.
        """
        with self._lock:
            self._check("Device.open_ipc_handle")
            self._late[base] = manifest, objects, size

    @property
    def _table(self) -> MappingTable:
        """All that is mapped; for those who hold the lock, or look only."""
        if self._late:
            with self._lock:
                for base, late in list(self._late.items()):
                    self._enter_import(base, *late)
                    del self._late[base]
        return self._rows

    def _enter_import(
        self, base: int, described: Manifest | Glance, objects: array[int], size: int
    ) -> None:
        """Rows of an imported range; each holds a reference, as every row does."""
        manifest = described if isinstance(described, Manifest) else parse(described.raw)
        objects = manifest.objects_of_extents(objects)
        with self._lock:
            self._backend.retain_objects(objects)
            with ExitStack() as undo:
                undo.callback(self._backend.release_objects, objects)
                self._rows.reserve(base, size)
                undo.callback(self._rows.unreserve, base, size)
                self._rows.map_extents(
                    base, objects, manifest.offsets, manifest.sizes, manifest.access
                )
                undo.callback(self._rows.unmap, base, size)
                self._rows.add_import(base + manifest.window_offset, manifest.window_size)
                undo.pop_all()

    def _extend(self, export: Export | NativeExport | None, size: int | None) -> RangeHandle:
        self._enter("RangeHandle.extend")
        with self._lock:
            return grow.extend_handle(self, export, size)

    def _extend_view(self, view: ImportedRange, data: HandleData, timeout: float) -> None:
        self._enter("ImportedRange.extend")
        grow.follow(view, data, timeout)

    def _forget_import(self, base: int, size: int) -> None:
        with self._lock:
            if self._late.pop(base, None) is not None:
                return
            gone = self._rows.unmap(base, size)
            self._rows.remove_import(base, size)
            self._rows.unreserve(base, size)
            self._backend.release_objects(gone.released)

    def _close_import(self, view: ImportedRange) -> None:
        base, size = view._base, view._room
        with self._lock:
            if self._closed:
                return
            objects = view._objects
            extents = view._described.extent_count
            self._backend.unmap(base, size, time.monotonic() + GPU_TIMEOUT, extents)
            self._forget_import(base, size)
            self._backend.unreserve(base, size)
        self._imports.drop(objects)

    def _cpu_map(self, manifest: Manifest, objects: array[int]) -> CpuMapping:
        self._enter("memoryview(ImportedRange)")
        return self._backend.cpu_map(
            manifest.objects_of_extents(objects),
            manifest.offsets,
            manifest.sizes,
            not manifest.read_only,
        )

    def _put(self, data: bytes) -> None:
        native = self._backend.native
        if native is not None and native_range.is_native(data):
            native.put(data)
            return
        broker = self._broker
        if broker is not None:
            broker.revoke(HandleFields.unpack(data).generation)

    def _revoke(self, data: bytes) -> None:
        broker = self._broker
        if broker is not None and not native_range.is_native(data):
            broker.revoke(HandleFields.unpack(data).generation, interrupt=True)

    def _importers(self, data: bytes) -> list[Importer]:
        broker = self._broker
        return (
            []
            if broker is None or native_range.is_native(data)
            else broker.importers(HandleFields.unpack(data).generation)
        )

    def _broker_started(self) -> Broker:
        if self._broker is None:
            self._broker = Broker(
                describe=device_listing.describer(self), open_desk=self._backend.open_desk
            )
        return self._broker

    def _check_unused(self) -> None:
        for owner in [*self._contexts.values(), *self._open_owners()]:
            if not owner.closed:
                owner._check_unused()

    def _release(self) -> None:
        with ExitStack() as all_of_it:
            all_of_it.callback(self._close_backend)
            with self._lock:
                broker, self._broker = self._broker, None
            if broker is not None:
                all_of_it.callback(broker.close)
            all_of_it.callback(self._imports.close)
            for inside in self._contexts.values():
                all_of_it.callback(inside.close)
            for owner in self._open_owners():
                owner._lose()

    def _close_backend(self) -> None:
        with self._lock:
            self._backend.close()

    def __del__(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
        # close() waits for the broker's threads, one of which may be running this finaliser.
        with contextlib.suppress(RuntimeError):  # the interpreter is ending
            _thread.start_new_thread(self.close, ())

    def __repr__(self) -> str:
        kind = f"{self.backend} on the mock" if self.is_mock else self.backend
        state = " closed" if self.closed else ""
        return f"<Device {self.name!r} {self.pci_address} {kind}{state}>"


pickling.register()
