"""A few objects imported and mapped by one C call, straight from the bytes that describe them."""

from __future__ import annotations

import contextlib
import errno
from array import array

from ze_ipc._xe import ffi, lib
from ze_ipc.backend import FewExtents, OpenTimings
from ze_ipc.errors import ZeIpcError
from ze_ipc.xe.bind import AddressSpace
from ze_ipc.xe.device import nanoseconds, u64


def open_extents(
    space: AddressSpace, few: FewExtents, base: int, deadline: float, timings: OpenTimings
) -> tuple[array[int], bool] | None:
    """The objects, and whether the exporter was told; None: nothing was done, go step by step."""
    objects = array("Q", bytes(8 * few.objects))
    raw, word = ffi.from_buffer(few.raw), ffi.from_buffer(few.last_word)
    fds, column = ffi.from_buffer("int32_t[]", few.fds), u64(objects)
    pat = space.pat
    state = ffi.new(
        "struct xe_open *",
        (
            ffi.cast("uint8_t *", raw) + few.at,
            few.objects,
            few.extents,
            few.page_size,
            few.size,
            base,
            space.vm_id,
            pat.own,
            pat.imported,
            fds,
            column,
            nanoseconds(deadline),
            ffi.cast("uint8_t *", word),
            len(few.last_word),
            few.socket,
        ),
    )
    with space.device as pointer:
        rc = lib.xe_open_extents(pointer, state)
        timings.importing = state.import_time / 1e9
        if rc == 0:
            return objects, True
        if not state.submitted:
            return None
        try:
            while rc == -errno.EINTR:
                rc = lib.xe_fence_wait(pointer, state.fence, state.deadline)
        except BaseException:
            # A signal handler raised.
            rc = -errno.EINTR
            raise
        finally:
            lib.xe_fence_destroy(pointer, state.fence)
            if rc:
                lib.xe_objects_release(pointer, column, few.objects, ffi.new("uint64_t *"))
                _undo(space, base, few.size)
    if rc:
        raise space.error(rc)
    return objects, False


def _undo(space: AddressSpace, base: int, size: int) -> None:
    # Where it cannot be undone it is remembered as stuck; what is raised is why.
    with contextlib.suppress(ZeIpcError):
        space.undo(base, base + size)
