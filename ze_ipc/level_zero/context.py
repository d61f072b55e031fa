"""An open context on one device, who uses it, and what the C side answers."""

from __future__ import annotations

import errno
import os
import threading
from array import array
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.errors import Closed, ForkedProcess, KernelError, ZeIpcError
from ze_ipc.level_zero.drivers import GpuDevice
from ze_ipc.level_zero.errors import ze_error
from ze_ipc.level_zero.table import Table

_RAW = {
    "zePhysicalMemGetProperties": lib.ZE_RAW_PROPERTIES,
    "zeMemPutIpcHandle": lib.ZE_RAW_PUT,
}
_CONTEXT_HANDLE = 2
"""zel_handle_type_t."""


class Context:
    """Owns a ze_context_handle_t and its ``struct ze_space``; ``with context as space`` keeps it
    open for the block. close() lets the blocks of other threads finish.
    """

    def __init__(self, table: Table, gpu: GpuDevice, foreign: int | None = None) -> None:
        """``foreign`` is a ze_context_handle_t that another library owns, and stays its."""
        self.table = table
        self.gpu = gpu
        self._own = foreign is None
        self.handle = pointer(foreign) if foreign is not None else _create(table, gpu)
        library = table.library.encode()
        raw = sum(bit for name, bit in _RAW.items() if name in table.from_driver)
        self._space = lib.ze_space_create(table.pointer, self.handle, gpu.handle, library, raw)
        if self._space == ffi.NULL:
            self._destroy_own()
            raise MemoryError
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._users = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_foreign(self) -> bool:
        """Whether another library owns the ze_context_handle_t."""
        return not self._own

    def check(self) -> None:
        """Raise when the context is closed or was made before a fork."""
        if os.getpid() != self._pid:
            raise ForkedProcess(pid=os.getpid(), opened_by=self._pid)
        if self._closed:
            raise Closed(f"the context on {self.gpu.name} is closed")

    def __enter__(self) -> Any:
        with self._lock:
            self.check()
            self._users += 1
        return self._space

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            self._destroy()

    def handle_for(self, entry: str, foreign: int = 0) -> Any:
        """The context, or another one, as an entry takes it: the driver's own where the entry is
        the driver's.
        """
        handle = pointer(foreign) if foreign else self.handle
        if entry not in self.table.from_driver:
            return handle
        return lib.ze_raw_handle(self.table.library.encode(), _CONTEXT_HANDLE, handle)

    def close(self) -> None:
        """Destroy what objects are left, and the context; idempotent. A forked child only
        forgets.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            now = self._users == 0 and os.getpid() == self._pid
        if now:
            self._destroy()

    def _destroy(self) -> None:
        lib.ze_space_destroy(self._space)
        self._destroy_own()

    def _destroy_own(self) -> None:
        if self._own:
            self.table.result("ContextDestroy", self.handle)


def _create(table: Table, gpu: GpuDevice) -> Any:
    desc = ffi.new("ze_context_desc_t *", {"stype": lib.ZE_STRUCTURE_TYPE_CONTEXT_DESC})
    handle = ffi.new("ze_context_handle_t *")
    table.call("ContextCreate", gpu.driver.handle, desc, handle)
    return handle[0]


def refused(rc: int, result: Any, call: str, **values: Any) -> ZeIpcError:
    """The error of a C call's -errno (not raised); -EIO means that the driver said why."""
    if rc == -errno.EIO:
        return ze_error(result[0], call, **values)
    if rc == -errno.ENOMEM:
        return ze_error(lib.ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, call, **values)
    return KernelError(errno=-rc, call=call, **values)


def u64(column: array[int]) -> Any:
    """A column as ``uint64_t *``; the array must outlive it and not grow meanwhile."""
    return ffi.from_buffer("uint64_t[]", column)


def pointer(address: int) -> Any:
    """An address as ``void *``."""
    return ffi.cast("void *", address)
