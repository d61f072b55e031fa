"""Mapping and unmapping through VM_BIND: arrays, halved when the kernel asks, all or nothing."""

from __future__ import annotations

import contextlib
import errno
import time
from array import array
from collections.abc import Callable
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.errors import DeviceLost, ZeIpcError
from ze_ipc.xe import held
from ze_ipc.xe.device import Device, nanoseconds, u64
from ze_ipc.xe.errors import kernel_error
from ze_ipc.xe.pat import Pat

CALL = "DRM_IOCTL_XE_VM_BIND"
UNDO_TIMEOUT = 5.0
"""Seconds to undo a bind that failed, whatever its deadline."""

_TRY_MORE = 64
"""Arrays of the length that is known to pass before twice as many extents are tried."""

_SPLIT = 64 << 10
"""Bytes: an unmap is cut at multiples of the largest page size any platform demands."""

_UNMAP = held.function("xe_bind_unmap")
_NOT_AN_EXTENT = frozenset({errno.ETIME, errno.EIO, errno.ECANCELED, errno.ENODEV})


class AddressSpace:
    """A VM of the device and the binds in it; thread-safe."""

    def __init__(self, device: Device, pat: Pat) -> None:
        arg = ffi.new("struct drm_xe_vm_create *")
        device.ioctl(lib.DRM_IOCTL_XE_VM_CREATE, arg, "DRM_IOCTL_XE_VM_CREATE")
        self.device = device
        self.pat = pat
        self.vm_id: int = arg.vm_id
        self.stuck: list[tuple[int, int]] = []
        self._longest: int | None = None
        """Extents in an array, at most, as ENOBUFS has taught; None: it never came."""
        self._passed = 0
        """How many arrays of that length have passed since it was learnt."""

    def map(
        self,
        address: int,
        objects: array[int],
        offsets: array[int],
        sizes: array[int],
        access: array[int],
        deadline: float,
    ) -> None:
        """Map extents back to back; nothing may be mapped there yet. All or nothing."""
        columns = (u64(objects), u64(offsets), u64(sizes), ffi.from_buffer("uint8_t[]", access))
        bind = ffi.new("struct xe_bind *", (self.vm_id, self.pat.own, self.pat.imported, *columns))
        done, at, step, size = 0, address, min(len(objects), self._longest or len(objects)), 0
        try:
            while done < len(objects):
                count = min(step, len(objects) - done)
                size = sum(sizes[done : done + count])
                rc, submitted = self._map(bind, done, count, at, deadline)
                if rc == 0:
                    done, at, size = done + count, at + size, 0
                    if count == self._longest and done < len(objects):
                        step = self._next_step(count)
                elif rc == -errno.ENOBUFS and count > 1:
                    step = self._longest = count // 2
                    self._passed = 0
                else:
                    end = at + size if submitted else at
                    self._fail(bind, sizes, (done, count, at, end), address, rc, deadline)
        except ZeIpcError:
            raise
        except BaseException:
            # A signal handler raised in the middle.
            with contextlib.suppress(ZeIpcError):
                self.undo(address, at + size)
            raise

    def _next_step(self, passed: int) -> int:
        """What was too many is not tried again, but for once in a while: it may have been want of
        memory.
        """
        self._passed += 1
        if self._passed < _TRY_MORE:
            return passed
        self._longest, self._passed = 2 * passed, 0
        return 2 * passed

    def unmap(self, address: int, size: int, deadline: float, few: bool = False) -> None:
        """Remove every mapping in the range, and what of others lies in it. ``few``: there are not
        more than held.FEW of them.
        """
        end, step = address + size, size
        while address < end:
            length = min(step, end - address)
            rc = self._unmap(address, length, deadline, few)
            if rc == 0:
                address += length
            elif rc in (-errno.ENOMEM, -errno.ENOBUFS) and length > _SPLIT:
                # Too many mappings for one job of the kernel.
                step = max(_SPLIT, length // 2 // _SPLIT * _SPLIT)
            else:
                raise self.error(rc, address=address, size=length)

    def destroy(self) -> None:
        """Unmap everything and end the VM."""
        arg = ffi.new("struct drm_xe_vm_destroy *", {"vm_id": self.vm_id})
        self.device.ioctl(lib.DRM_IOCTL_XE_VM_DESTROY, arg, "DRM_IOCTL_XE_VM_DESTROY")

    def _fail(
        self,
        bind: Any,
        sizes: array[int],
        failed: tuple[int, int, int, int],
        address: int,
        rc: int,
        deadline: float,
    ) -> None:
        """Undo what a failed map() has bound, and raise."""
        done, count, at, end = failed
        index = None
        if -rc not in _NOT_AN_EXTENT and end == at:
            index, end, rc = self._locate(bind, sizes, (done, count, at), rc, deadline)
        error = self.error(rc, object_index=index)
        try:
            self.undo(address, end)
        except ZeIpcError as left:
            raise error from left
        raise error

    def undo(self, address: int, end: int) -> None:
        """Unmap what a failed map() has bound; what cannot be is remembered as stuck."""
        if end == address:
            return
        try:
            self.unmap(address, end - address, time.monotonic() + UNDO_TIMEOUT)
        except ZeIpcError:
            self.stuck.append((address, end))
            raise

    def is_stuck(self, address: int, size: int) -> bool:
        """Whether a bind that was given up may still come into force there: such addresses must not
        be handed out again.
        """
        return any(start < address + size and address < end for start, end in self.stuck)

    def _locate(
        self, bind: Any, sizes: array[int], failed: tuple[int, int, int], rc: int, deadline: float
    ) -> tuple[int | None, int, int]:
        """(index of the extent that makes an array fail, end of what is bound now, its errno).

        The kernel does not say which op it refused. Halves that it takes stay bound for the undo.
        """
        done, count, at = failed
        while count > 1:
            half = count // 2
            size = sum(sizes[done : done + half])
            part, submitted = self._map(bind, done, half, at, deadline)
            if part == 0:
                done, count, at = done + half, count - half, at + size
            elif submitted:
                return None, at + size, part
            else:
                count, rc = half, part if part != -errno.ENOBUFS else rc
        part, submitted = self._map(bind, done, 1, at, deadline)
        if part == 0 or submitted:
            # It went well this time: the array as a whole was the trouble, or it has passed.
            return None, at + sizes[done], rc
        return done, at, part

    def _map(self, bind: Any, first: int, count: int, at: int, deadline: float) -> tuple[int, bool]:
        submitted = ffi.new("uint32_t *")

        def submit(pointer: Any, fence: Any, until: int) -> int:
            return int(lib.xe_bind_map(pointer, bind, first, count, at, fence, until, submitted))

        return self._run(submit, deadline), bool(submitted[0])

    def _unmap(self, address: int, size: int, deadline: float, few: bool) -> int:
        what = ffi.new("struct xe_unmap *", (self.vm_id, self.pat.own, address, size))

        def submit(pointer: Any, fence: Any, until: int) -> int:
            what.fence, what.deadline = fence, until
            if not few:
                return int(lib.xe_bind_unmap(pointer, what))
            what.deadline = patience = min(until, held.patience())
            rc = held.call(_UNMAP, pointer, what)
            is_late = rc == -errno.ETIME and what.submitted and patience < until
            return -errno.EINTR if is_late else rc

        return self._run(submit, deadline)

    def _run(self, submit: Callable[[Any, Any, int], int], deadline: float) -> int:
        """0 or -errno: submit once, wait in turns so that signal handlers run."""
        until = nanoseconds(deadline)
        with self.device as pointer:
            fence = lib.xe_fence_create(pointer)
            if fence == ffi.NULL:
                return -errno.ENOMEM
            try:
                rc = submit(pointer, fence, until)
                while rc == -errno.EINTR:
                    rc = int(lib.xe_fence_wait(pointer, fence, until))
            finally:
                lib.xe_fence_destroy(pointer, fence)
        return rc

    def error(self, rc: int, **values: Any) -> ZeIpcError:
        """What a refused bind is raised as (not raised)."""
        if rc == -errno.ENOENT:
            # Our handles are counted, so it is the VM that is gone.
            return DeviceLost("the address space was banned", call=CALL, **values)
        return kernel_error(rc, CALL, on_device=True, **values)
