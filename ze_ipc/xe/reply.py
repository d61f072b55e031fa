"""A few objects with the answer that describes them: no stream, no acknowledgements."""

from __future__ import annotations

import errno
import os
from array import array

from ze_ipc._xe import ffi, lib
from ze_ipc.xe.device import Device, u64
from ze_ipc.xe.errors import fd_limit, kernel_error
from ze_ipc.xe.stream import import_error, size_error

MOST = int(lib.REPLY_ROOM)
"""Objects."""


def send_reply(
    device: Device, socket: int, head: bytes, body: bytes | memoryview, objects: array[int]
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
    with device as pointer:
        return bool(lib.xe_reply_send(pointer, reply) == 0)


def import_fds(device: Device, fds: array[int], sizes: array[int]) -> array[int]:
    """Import dma-bufs of exactly these sizes and close their descriptors, whatever happens."""
    count = len(fds)
    objects = array("Q", bytes(8 * count))
    keep = ffi.from_buffer("int32_t[]", fds), u64(sizes), u64(objects)
    arrival = ffi.new("struct object_arrival *", (*keep, count))
    with device as pointer:
        rc = lib.xe_reply_import(pointer, arrival)
        if rc:
            lib.xe_objects_release(pointer, keep[2], arrival.made, ffi.new("uint64_t *"))
    if rc == 0:
        return objects
    index, found = int(arrival.failed), int(arrival.found_size)
    if rc == -errno.EBADMSG and found:
        raise size_error(index, sizes[index], found)
    raise import_error(rc, index)


def export_fds(device: Device, objects: array[int]) -> array[int]:
    """A dma-buf descriptor for every object, the caller's to close; all or nothing."""
    fds = array("i", bytes(4 * len(objects)))
    done = ffi.new("uint64_t *")
    with device as pointer:
        out = ffi.from_buffer("int32_t[]", fds)
        rc = lib.xe_objects_export(pointer, u64(objects), len(objects), out, done)
    if rc == 0:
        return fds
    index = int(done[0])
    for fd in fds[:index]:
        os.close(fd)
    call = "DRM_IOCTL_PRIME_HANDLE_TO_FD"
    if rc == -errno.EMFILE:
        raise fd_limit(call, need=len(objects), object_index=index)
    raise kernel_error(rc, call, object_index=index)
