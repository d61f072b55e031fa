"""Objects to descriptors to objects: the stream, and the few that come with an answer."""

from __future__ import annotations

import errno
import os
import resource
from array import array
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.backend import OpenTimings
from ze_ipc.errors import (
    ExporterGone,
    FdLimit,
    KernelError,
    OpenTimeout,
    UnsupportedFeature,
    ZeIpcError,
)
from ze_ipc.level_zero.context import Context, refused, u64
from ze_ipc.xe.errors import exporter_error

EXPORT, IMPORT = "zePhysicalMemGetProperties", "zePhysicalMemCreate"
MOST = int(lib.REPLY_ROOM)
_PEER_GONE = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN})


def send_objects(context: Context, socket: int, objects: array[int], deadline: float) -> None:
    """Send one dma-buf descriptor an object, in batches that the receiver acknowledges."""
    keep, result = u64(objects), ffi.new("uint32_t *")
    state = ffi.new("struct stream_send *")
    state.socket, state.objects, state.count = socket, keep, len(objects)
    state.deadline = _nanoseconds(deadline)
    rc = -errno.EINTR
    with context as space:
        while rc == -errno.EINTR:
            rc = lib.ze_stream_send(space, state, result)
    if rc:
        raise _error(rc, state, result, EXPORT, "sendmsg", len(objects))


def receive_objects(
    context: Context,
    socket: int,
    sizes: array[int],
    deadline: float,
    timings: OpenTimings | None = None,
    greeted: bool = False,
) -> array[int]:
    """Import one dma-buf of exactly each size; the objects have one reference each."""
    objects = array("Q", bytes(8 * len(sizes)))
    keep, result = (u64(sizes), u64(objects)), ffi.new("uint32_t *")
    state = ffi.new("struct stream_receive *")
    state.greeted = greeted
    state.socket, state.sizes, state.objects, state.count = socket, *keep, len(sizes)
    state.deadline = _nanoseconds(deadline)
    rc = -errno.EINTR
    with context as space:
        try:
            while rc == -errno.EINTR:
                rc = lib.ze_stream_receive(space, state, result)
        finally:
            if rc:
                _release(space, keep[1], state.received)
    if timings is not None:
        timings.importing = state.import_time / 1e9
    if rc == 0:
        return objects
    if state.reason == lib.STREAM_SIZE:
        raise _size_error(state.failed, sizes[state.failed], state.found_size)
    if state.reason == lib.STREAM_PEER:
        raise exporter_error(state.peer_error, state.failed, EXPORT)
    raise _error(rc, state, result, IMPORT, "recvmsg", len(sizes))


def reply_room() -> int:
    """How many descriptors could come with an answer now."""
    return int(lib.object_reply_room())


def send_reply(
    context: Context, socket: int, head: bytes, body: bytes | memoryview, objects: array[int]
) -> bool:
    """Send ``head + body`` as one message with a descriptor for every object, without waiting;
    False: it could not be, and nothing was sent.
    """
    count = len(objects)
    if not 0 < count <= MOST:
        return False
    keep = u64(objects), ffi.from_buffer(head), ffi.from_buffer(body)
    parts = (keep[1], len(head), keep[2], len(body))
    reply = ffi.new("struct object_reply *", (socket, count, keep[0], *parts))
    with context as space:
        return bool(lib.ze_reply_send(space, reply, ffi.new("uint32_t *")) == 0)


def import_fds(context: Context, fds: array[int], sizes: array[int]) -> array[int]:
    """Import dma-bufs of exactly these sizes and close their descriptors, whatever happens."""
    count = len(fds)
    objects = array("Q", bytes(8 * count))
    keep = ffi.from_buffer("int32_t[]", fds), u64(sizes), u64(objects)
    arrival, result = ffi.new("struct object_arrival *", (*keep, count)), ffi.new("uint32_t *")
    with context as space:
        rc = lib.ze_reply_import(space, arrival, result)
        if rc:
            _release(space, keep[2], arrival.made)
    if rc == 0:
        return objects
    index, found = int(arrival.failed), int(arrival.found_size)
    if rc == -errno.EBADMSG and found:
        raise _size_error(index, sizes[index], found)
    raise _object_error(rc, result, IMPORT, index)


def export_fds(context: Context, objects: array[int]) -> array[int]:
    """A dma-buf descriptor for every object, the caller's to close; all or nothing."""
    fds = array("i", bytes(4 * len(objects)))
    done, result = ffi.new("uint64_t *"), ffi.new("uint32_t *")
    with context as space:
        out = ffi.from_buffer("int32_t[]", fds)
        rc = lib.ze_objects_export(space, u64(objects), len(objects), out, done, result)
    if rc == 0:
        return fds
    index = int(done[0])
    for fd in fds[:index]:
        os.close(fd)
    raise _object_error(rc, result, EXPORT, index)


def _release(space: Any, objects: Any, count: int) -> None:
    lib.ze_objects_release(space, objects, count, ffi.new("uint64_t *"), ffi.new("uint32_t *"))


def _nanoseconds(deadline: float) -> int:
    return int(min(deadline * 1e9, 2.0**62))


def _size_error(index: int, declared: int, found: int) -> ZeIpcError:
    return KernelError(
        "the exporter sent an object of another size than it declared",
        errno=errno.EBADMSG,
        call="fstat",
        object_index=index,
        declared=declared,
        found=found,
    )


def _object_error(rc: int, result: Any, call: str, index: int) -> ZeIpcError:
    if rc in (-errno.EMFILE, -errno.ENFILE):
        return _fd_limit(call, index)
    if rc == -errno.EINVAL and call == IMPORT:
        return KernelError(
            "the exporter sent a descriptor that is no dma-buf",
            errno=errno.EINVAL,
            call=call,
            object_index=index,
        )
    if rc == -errno.EBUSY:
        return UnsupportedFeature(
            "another open device of this process holds this memory, and the driver would close it "
            "for both",
            call=call,
            object_index=index,
            hint="open the handle on the device that made it, or in another process",
        )
    return refused(rc, result, call, object_index=index)


def _fd_limit(call: str, index: int) -> ZeIpcError:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    cause = "no file descriptor is left; the driver keeps one for every imported object"
    return FdLimit(cause, need=1, soft=soft, hard=hard, call=call, object_index=index)


def _error(rc: int, state: Any, result: Any, call: str, socket_call: str, count: int) -> ZeIpcError:
    if state.reason == lib.STREAM_OBJECT:
        return _object_error(rc, result, call, state.failed)
    if state.reason == lib.STREAM_FDS:
        return _fd_limit(socket_call, state.failed)
    if state.reason == lib.STREAM_PROTOCOL:
        cause = "the peer does not keep to the protocol"
        return KernelError(cause, errno=-rc, call=socket_call)
    if rc == -errno.ETIME:
        return OpenTimeout(errno=errno.ETIMEDOUT, call=socket_call)
    if -rc in _PEER_GONE:
        cause = f"the peer closed its end after {state.failed} of {count} objects"
        cls = ExporterGone if socket_call == "recvmsg" else KernelError
        return cls(cause, call=socket_call, errno=-rc)
    return KernelError(errno=-rc, call=socket_call)
