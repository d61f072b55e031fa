"""Copies and fills by command lists on a queue that only copies, and reads and writes through
them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.errors import DeviceLost, OpenTimeout
from ze_ipc.level_zero.context import Context, pointer

STAGING = 4 << 20
"""Bytes of the buffer that reads and writes go through."""
BATCH = 1024
"""Copies in a command list at most."""
SLICE_NS = 100_000_000
TIMEOUT = 30.0

Copy = tuple[int, int, int]
"""Destination, source, bytes."""


class Copies:
    """One queue and one command list, made at the first use; thread-safe."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._table = context.table
        self._lock = threading.Lock()
        self._undo = contextlib.ExitStack()
        self._queue: Any = None
        self._list: Any = None
        self._staging = 0
        self._lost = False

    def copy(self, copies: Sequence[Copy], deadline: float) -> None:
        """All of them, in any order; returns when they are done."""
        with self._lock, self._context:
            self._copy(copies, deadline)

    def fill(self, dst: int, value: int, size: int, deadline: float) -> None:
        """One byte value."""
        pattern = ffi.new("uint8_t *", value)
        with self._lock, self._context:
            self._ready()
            arguments = pointer(dst), pattern, 1, size, ffi.NULL, 0, ffi.NULL
            self._table.call("CommandListAppendMemoryFill", self._list, *arguments, address=dst)
            self._execute(deadline)

    def read(self, pieces: Iterable[tuple[int, int]], into: memoryview) -> None:
        """Bytes at (address, size) pieces, back to back, into a buffer of their total size."""
        with self._lock, self._context:
            self._ready()
            at = 0
            for chunk, size in _chunks(pieces):
                copies = [(self._staging + place, gpu, count) for gpu, place, count in chunk]
                self._copy(copies, time.monotonic() + TIMEOUT)
                into[at : at + size] = ffi.buffer(pointer(self._staging), size)
                at += size

    def write(self, pieces: Iterable[tuple[int, int]], data: memoryview) -> None:
        """A buffer to (address, size) pieces of its total size."""
        with self._lock, self._context:
            self._ready()
            at = 0
            for chunk, size in _chunks(pieces):
                ffi.buffer(pointer(self._staging), size)[:] = data[at : at + size]
                copies = [(gpu, self._staging + place, count) for gpu, place, count in chunk]
                self._copy(copies, time.monotonic() + TIMEOUT)
                at += size

    def _copy(self, copies: Sequence[Copy], deadline: float) -> None:
        self._ready()
        for first in range(0, len(copies), BATCH):
            for dst, src, size in copies[first : first + BATCH]:
                arguments = pointer(dst), pointer(src), size, ffi.NULL, 0, ffi.NULL
                self._table.call("CommandListAppendMemoryCopy", self._list, *arguments)
            self._execute(deadline)

    def _execute(self, deadline: float) -> None:
        try:
            self._table.call("CommandListClose", self._list)
            lists = ffi.new("ze_command_list_handle_t[]", [self._list])
            execute = "CommandQueueExecuteCommandLists"
            self._table.call(execute, self._queue, 1, lists, ffi.NULL)
            self._wait(deadline)
        finally:
            if not self._lost:
                self._table.call("CommandListReset", self._list)

    def _wait(self, deadline: float) -> None:
        call = "CommandQueueSynchronize"
        while (result := self._table.result(call, self._queue, SLICE_NS)) != 0:
            if result != lib.ZE_RESULT_NOT_READY:
                self._lost = True
                self._table.call(call, self._queue, 0)
                raise DeviceLost("a copy failed", call="ze" + call)
            if time.monotonic() > deadline:
                self._lost = True  # it may still come: the list cannot be used again
                raise OpenTimeout("a copy did not end in time", call="ze" + call)

    def _ready(self) -> None:
        if self._lost:
            raise DeviceLost("an earlier copy did not end", call="zeCommandQueueSynchronize")
        if self._list is not None:
            return
        context, gpu, table = self._context.handle, self._context.gpu, self._table
        with contextlib.ExitStack() as undo:
            desc = ffi.new("ze_command_queue_desc_t *")
            desc.stype = lib.ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC
            desc.ordinal, desc.mode = gpu.copy_group, lib.ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS
            queue = ffi.new("ze_command_queue_handle_t *")
            table.call("CommandQueueCreate", context, gpu.handle, desc, queue)
            undo.callback(table.result, "CommandQueueDestroy", queue[0])
            kind = ffi.new("ze_command_list_desc_t *")
            kind.stype = lib.ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC
            kind.commandQueueGroupOrdinal = gpu.copy_group
            commands = ffi.new("ze_command_list_handle_t *")
            table.call("CommandListCreate", context, gpu.handle, kind, commands)
            undo.callback(table.result, "CommandListDestroy", commands[0])
            host = ffi.new("ze_host_mem_alloc_desc_t *")
            host.stype = lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC
            staging = ffi.new("void **")
            table.call("MemAllocHost", context, host, STAGING, 4096, staging)
            undo.callback(table.result, "MemFree", context, staging[0])
            self._queue, self._list = queue[0], commands[0]
            self._staging = int(ffi.cast("uintptr_t", staging[0]))
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Give queue, list and buffer back; what is stuck on them stays with the driver."""
        with self._lock:
            self._list = None
            if not self._lost:
                self._undo.close()


def _chunks(
    pieces: Iterable[tuple[int, int]],
) -> Iterable[tuple[list[tuple[int, int, int]], int]]:
    """((GPU address, place in the buffer, bytes)..., bytes in all) of one buffer after another."""
    chunk: list[tuple[int, int, int]] = []
    used = 0
    for address, size in pieces:
        while size:
            count = min(size, STAGING - used)
            chunk.append((address, used, count))
            used += count
            address, size = address + count, size - count
            if used == STAGING:
                yield chunk, used
                chunk, used = [], 0
    if used:
        yield chunk, used
