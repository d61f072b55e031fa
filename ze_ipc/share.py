"""The two verbs: export a window of the address space as a handle, and open a handle."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ze_ipc import manifest as manifests
from ze_ipc import transport
from ze_ipc.backend import Opening, OpenTimings
from ze_ipc.broker_protocol import encode_done
from ze_ipc.errors import InvalidHandle, KernelError, PeerAccessError
from ze_ipc.export import Export
from ze_ipc.fds import close_fd
from ze_ipc.imported_range import ImportedRange
from ze_ipc.range_handle import RangeHandle

if TYPE_CHECKING:
    from array import array

    from ze_ipc.backend import Backend
    from ze_ipc.columns import Columns
    from ze_ipc.device import Device
    from ze_ipc.handle import HandleFields
    from ze_ipc.imported_objects import ImportedObjects
    from ze_ipc.policy import Policy


_UNDO_SECONDS = 10.0


def export_range(
    device: Device,
    rows: Columns,
    ptr: int,
    size: int,
    policy: Policy,
    lineage: bytes | None = None,
) -> RangeHandle:
    """A handle of ``[ptr, ptr + size)``, whose rows these are; the caller holds the device's lock,
    so the range stands still. ``lineage`` is that of the export that this one goes on from.
    """
    backend = device._backend
    broker = device._broker or device._broker_started()
    raw, objects = _described(
        backend, rows, ptr, size, policy.read_only, lineage or os.urandom(manifests.LINEAGE_SIZE)
    )
    export = Export(backend, raw, objects, ptr, size, policy, broker.call_back)
    try:
        handle = broker.serve(export, objects, policy)
    except BaseException:
        export.retired()
        raise
    return RangeHandle(handle, device, export)


def _described(
    backend: Backend, rows: Columns, ptr: int, size: int, read_only: bool, lineage: bytes
) -> tuple[bytes, array[int]]:
    """The bytes of a manifest, and its objects, with one more reference each."""
    info = backend.info
    few = None
    if not read_only:
        few = backend.describe_few(rows.starts, rows.ends, rows.objects, rows.offsets, rows.access)
    if few is not None:
        columns, objects, extents = few
        start = rows.starts[0]
        raw = manifests.seal(
            columns,
            len(objects),
            extents,
            page_size=info.page_size,
            window_offset=ptr - start,
            window_size=size,
            va_phase=start % manifests.VA_PHASE_SIZE,
            device_uuid=info.uuid,
            lineage=lineage,
        )
        return raw, objects
    manifest, objects = manifests.build(
        rows,
        ptr,
        size,
        device_uuid=info.uuid,
        page_size=info.page_size,
        object_sizes=backend.object_sizes,
    )
    if read_only:
        manifest = manifest.as_read_only()
    raw = manifests.encode(replace(manifest, lineage=lineage))
    backend.retain_objects(objects)
    return raw, objects


def open_range(
    device: Device, fields: HandleFields, raw_handle: bytes, deadline: float, reserve: int = 0
) -> ImportedRange:
    """Open a handle: receive its manifest and objects, map them in exporter order into fresh VA,
    of which ``reserve`` bytes at least are taken.
    """
    cache = device._imports
    key = (fields.broker, fields.generation)
    timings = OpenTimings()
    clock = StepClock()
    connection = manifest = None
    token = cache.new_token()
    held = cache.acquire(key)
    try:
        connection = transport.connect(fields, deadline, packed=raw_handle, asking=device._backend)
        connection.start(skip_objects=held is not None)
        timings.connecting = clock.step()
        last_word = encode_done(0, token)
        connection.request(
            skip_objects=held is not None,
            opening=Opening(last_word, reserve, manifests.VA_PHASE_SIZE),
        )
        raw = connection.manifest(device._backend.receive_bytes)
        if connection.opened is not None:
            return _view_of_opened(device, connection, raw, key, token, fields.pid, timings, clock)
        manifest = manifests.parse(raw)
        digest = manifests.digest(raw)
        del raw  # 29 bytes an extent
        timings.describing = clock.step()
        how: str = connection.transport
        if held is None:
            objects = _objects(device, connection, manifest, deadline, timings)
            held = cache.add(key, digest, objects, token)
        elif held.digest != digest:
            raise InvalidHandle(
                "the exporter described the same export in two ways", call="open_ipc_handle"
            )
        else:
            how = "cached"
        timings.receiving = clock.step() - timings.importing
        pages = manifests.widen(manifest, device.page_size)
        view = _map(device, pages, held, how, fields.pid, deadline, reserve)
    except BaseException as error:
        if connection is not None:
            connection.close()
            if not isinstance(error, Exception):  # a signal: the last word may have been said
                connection.tell_released(token)
        if held is not None:
            cache.drop(held)
        foreign = manifest is not None and manifest.device_uuid != device.uuid
        if manifest is not None and foreign and isinstance(error, KernelError):
            raise _peer_error(device, manifest, error) from error
        raise
    # The view owns the mapping and its share of the objects.
    timings.binding = clock.step()
    view.timings = timings
    held.told = connection
    connection.finish(token=held.token)
    return view


def _view_of_opened(
    device: Device,
    connection: transport.Connection,
    raw: bytes,
    key: tuple[bytes, int],
    token: int,
    exporter_pid: int,
    timings: OpenTimings,
    clock: StepClock,
) -> ImportedRange:
    """What the steps have made where the backend did them all."""
    opened = connection.opened
    assert opened is not None
    base, room, objects = opened.base, opened.room, opened.objects
    held = None
    entered = False
    try:
        glance = manifests.Glance(raw)
        held = device._imports.add(key, glance.digest, objects, token)
        held.told = connection
        device._add_import(base, glance, objects, room)
        entered = True
        view = ImportedRange(
            device, base, glance, held, connection.transport, exporter_pid, room, timings
        )
    except BaseException:
        backend = device._backend
        with ExitStack() as undo:
            if held is not None:
                undo.callback(device._imports.drop, held)
            else:
                undo.callback(connection.tell_released, token)
                undo.callback(backend.release_objects, objects)
            undo.callback(backend.unreserve, base, room)
            undo.callback(backend.unmap, base, room, time.monotonic() + _UNDO_SECONDS)
            if entered:
                undo.callback(device._forget_import, base, room)
        raise
    timings.importing = opened.importing
    timings.binding = opened.seconds - opened.importing
    timings.describing = clock.step() - opened.seconds
    if not connection.closed:
        connection.finish(token=token)
    return view


def _room(manifest: manifests.Manifest, reserve: int, page: int) -> int:
    """Bytes of VA for a window that may grow to ``reserve`` bytes."""
    return max(manifest.covered_size, -(-(manifest.window_offset + reserve) // page) * page)


def _reserve(backend: Backend, size: int, va_phase: int) -> int:
    large = size >= manifests.VA_PHASE_SIZE
    alignment = manifests.VA_PHASE_SIZE if large else backend.info.page_size
    return backend.reserve(size, None, alignment, va_phase % alignment)


def _objects(
    device: Device,
    connection: transport.Connection,
    manifest: manifests.Manifest,
    deadline: float,
    timings: OpenTimings,
) -> array[int]:
    """The manifest's objects, imported: they came with the answer, or come by the stream."""
    backend, sizes = device._backend, manifest.object_sizes
    fds = connection.take_fds()
    if not fds:
        return backend.receive_objects(
            connection.fileno(), sizes, deadline, timings, connection.greeted
        )
    if len(fds) != len(sizes):
        for fd in fds:
            close_fd(fd)
        raise InvalidHandle(
            "the exporter sent as many objects as it said, and described others",
            call="open_ipc_handle",
        )
    begin = time.perf_counter()
    objects = backend.import_fds(fds, sizes)
    timings.importing = time.perf_counter() - begin
    return objects


class StepClock:
    """Seconds since the last step."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def step(self) -> float:
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        return passed


def _map(
    device: Device,
    manifest: manifests.Manifest,
    held: ImportedObjects,
    how: str,
    exporter_pid: int,
    deadline: float,
    reserve: int,
) -> ImportedRange:
    backend = device._backend
    size = _room(manifest, reserve, backend.info.page_size)
    objects = manifest.objects_of_extents(held.objects)
    base = _reserve(backend, size, manifest.va_phase)
    mapped = entered = False
    try:
        backend.map_extents(
            base, objects, manifest.offsets, manifest.sizes, manifest.access, deadline
        )
        mapped = True
        device._add_import(base, manifest, held.objects, size)
        entered = True
        return ImportedRange(device, base, manifest, held, how, exporter_pid, size)
    except BaseException:
        with ExitStack() as undo:
            undo.callback(backend.unreserve, base, size)
            if mapped:
                undo.callback(backend.unmap, base, size, deadline)
            if entered:
                undo.callback(device._forget_import, base, size)
        raise


def _peer_error(
    device: Device, manifest: manifests.Manifest, error: KernelError
) -> PeerAccessError:
    return PeerAccessError(
        f"device {device.pci_address} cannot map the memory of another device",
        call=error.call,
        object_index=error.object_index,
        errno=error.errno,
        src=manifest.device_uuid,
        dst=device.uuid,
    )
