"""The two verbs: export a window of the address space as a handle, and open a handle."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ze_ipc import manifest as manifests
from ze_ipc import transport
from ze_ipc.backend import FewExtents, OpenTimings
from ze_ipc.broker_protocol import encode_done
from ze_ipc.errors import InvalidHandle, KernelError, PeerAccessError, ZeIpcError
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
    broker = device._broker_started()
    raw, objects = _described(
        backend, rows, ptr, size, policy.read_only, lineage or secrets.token_bytes(16)
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
    held = cache.acquire(key)
    try:
        connection = transport.connect(fields, deadline, packed=raw_handle, asking=device._backend)
        timings.connecting = clock.step()
        connection.request(skip_objects=held is not None)
        raw = connection.manifest(device._backend.receive_bytes)
        if held is None and device._backend.opens_few and (fds := connection.few):
            view = _open_few(
                device, connection, fds, raw, key, fields.pid, deadline, timings, clock, reserve
            )
            if view is not None:
                return view
        manifest = manifests.parse(raw)
        digest = manifests.digest(raw)
        del raw  # 29 bytes an extent
        timings.describing = clock.step()
        how: str = connection.transport
        if held is None:
            objects = _objects(device, connection, manifest, deadline, timings)
            held = cache.add(key, digest, objects, cache.new_token())
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


def _open_few(
    device: Device,
    connection: transport.Connection,
    fds: array[int],
    raw: bytes,
    key: tuple[bytes, int],
    exporter_pid: int,
    deadline: float,
    timings: OpenTimings,
    clock: StepClock,
    reserve: int,
) -> ImportedRange | None:
    """What the steps below do, by one call of the backend; None: they have to be done."""
    backend, cache = device._backend, device._imports
    glance = manifests.Glance(raw)
    if glance.object_count != len(fds) or glance.page_size % device.page_size:
        return None
    size, token = _room(glance, reserve, device.page_size), cache.new_token()
    try:
        base = _reserve(backend, size, glance.va_phase)
    except ZeIpcError:
        # The size is the exporter's word, which the steps below check first.
        return None
    timings.describing = clock.step()
    few = FewExtents(
        raw,
        manifests.HEADER_SIZE,
        glance.object_count,
        glance.extent_count,
        glance.page_size,
        glance.covered_size,
        fds,
        connection.fileno(),
        encode_done(0, token),
    )
    opened = None
    try:
        opened = backend.open_extents(few, base, deadline, timings)
    except BaseException:
        connection.take_fds()
        raise
    finally:
        if opened is None:
            backend.unreserve(base, size)
    if opened is None:
        return None
    objects, told = opened
    connection.take_fds()
    if told:
        connection.finished()
    held = cache.add(key, glance.digest, objects, token)
    held.told = connection
    entered = False
    try:
        device._add_import(base, glance, objects, size)
        entered = True
        view = ImportedRange(
            device, base, glance, held, connection.transport, exporter_pid, size, timings
        )
    except BaseException:
        with ExitStack() as undo:
            undo.callback(cache.drop, held)
            undo.callback(backend.unreserve, base, size)
            undo.callback(backend.unmap, base, size, deadline)
            if entered:
                undo.callback(device._forget_import, base, size)
        raise
    timings.binding = clock.step() - timings.importing
    if not told:
        connection.finish(token=token)
    return view


def _room(manifest: manifests.Manifest | manifests.Glance, reserve: int, page: int) -> int:
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
