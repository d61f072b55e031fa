"""The two ends of the object stream: objects to descriptors to objects, one C call a side."""

from __future__ import annotations

import errno
from array import array
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.backend import OpenTimings
from ze_ipc.errors import ExporterGone, KernelError, ZeIpcError
from ze_ipc.xe.device import Device, nanoseconds, u64
from ze_ipc.xe.errors import exporter_error, fd_limit, kernel_error

_EXPORT = "DRM_IOCTL_PRIME_HANDLE_TO_FD"
_PEER_GONE = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN})


def send_objects(device: Device, socket: int, objects: array[int], deadline: float) -> None:
    """Send one dma-buf descriptor an object, in batches that the receiver acknowledges."""
    keep = u64(objects)
    state = ffi.new("struct stream_send *")
    state.socket, state.objects, state.count = socket, keep, len(objects)
    state.deadline = nanoseconds(deadline)
    rc = -errno.EINTR
    with device as pointer:
        while rc == -errno.EINTR:
            rc = lib.xe_stream_send(pointer, state)
    if rc == 0:
        return
    if state.reason == lib.STREAM_OBJECT:
        raise kernel_error(rc, _EXPORT, object_index=state.failed)
    if state.reason == lib.STREAM_FDS:
        raise fd_limit(_EXPORT, object_index=state.failed)
    raise _socket_error(rc, state, "sendmsg", len(objects))


def receive_objects(
    device: Device,
    socket: int,
    sizes: array[int],
    deadline: float,
    timings: OpenTimings | None = None,
    greeted: bool = False,
) -> array[int]:
    """Import one dma-buf of exactly each size; the objects have one reference each."""
    objects = array("Q", bytes(8 * len(sizes)))
    keep = u64(sizes), u64(objects)
    state = ffi.new("struct stream_receive *")
    state.greeted = greeted
    state.socket, state.sizes, state.objects, state.count = socket, *keep, len(sizes)
    state.deadline = nanoseconds(deadline)
    rc = -errno.EINTR
    with device as pointer:
        try:
            while rc == -errno.EINTR:
                rc = lib.xe_stream_receive(pointer, state)
        finally:
            if rc != 0:
                done = ffi.new("uint64_t *")
                lib.xe_objects_release(pointer, keep[1], state.received, done)
    if timings is not None:
        timings.importing = state.import_time / 1e9
    if rc == 0:
        return objects
    if state.reason == lib.STREAM_OBJECT:
        raise import_error(rc, state.failed)
    if state.reason == lib.STREAM_SIZE:
        raise size_error(state.failed, sizes[state.failed], state.found_size)
    if state.reason == lib.STREAM_PEER:
        raise exporter_error(state.peer_error, state.failed, _EXPORT)
    if state.reason == lib.STREAM_FDS:
        raise fd_limit("recvmsg", object_index=state.failed)
    raise _socket_error(rc, state, "recvmsg", len(sizes))


def size_error(index: int, declared: int, found: int) -> ZeIpcError:
    """What arrived has another size than the manifest says."""
    return KernelError(
        "the exporter sent an object of another size than it declared",
        errno=errno.EBADMSG,
        call="fstat",
        object_index=index,
        declared=declared,
        found=found,
    )


def import_error(rc: int, index: int) -> ZeIpcError:
    """Why a descriptor could not be imported."""
    call = "DRM_IOCTL_PRIME_FD_TO_HANDLE"
    if rc == -errno.EINVAL:
        return KernelError(
            "the exporter sent a descriptor that is no dma-buf",
            errno=errno.EINVAL,
            call=call,
            object_index=index,
        )
    return kernel_error(rc, call, object_index=index)


def _socket_error(rc: int, state: Any, call: str, count: int) -> ZeIpcError:
    if state.reason == lib.STREAM_PROTOCOL:
        return KernelError("the peer does not keep to the protocol", errno=-rc, call=call)
    if -rc in _PEER_GONE:
        done = state.failed
        cause = f"the peer closed its end after {done} of {count} objects"
        return (
            ExporterGone(cause, call=call, errno=-rc)
            if call == "recvmsg"
            else KernelError(cause, errno=-rc, call=call)
        )
    return kernel_error(rc, call)
