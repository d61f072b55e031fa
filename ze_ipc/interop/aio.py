"""The waiting calls for asyncio: opens that can be cancelled, and what importers do as a stream.

The work runs on the loop's default executor; the loop is never blocked. A cancelled open leaves
nothing behind: its connection is cut, and the task ends when the thread has given everything back.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ze_ipc import transport_attempt

if TYPE_CHECKING:
    from typing_extensions import Self

    from ze_ipc.device import Device, OpenCheck
    from ze_ipc.imported_range import ImportedRange
    from ze_ipc.importer import ImporterEvent
    from ze_ipc.range_handle import RangeHandle

    HandleData = bytes | bytearray | memoryview | RangeHandle

T = TypeVar("T")


async def open_ipc_handle(
    device: Device,
    data: HandleData,
    timeout: float = 10.0,
    context: int | None = None,
    reserve: int = 0,
) -> ImportedRange:
    """As Device.open_ipc_handle(); ``timeout`` holds here, too, from now on."""
    work = partial(device.open_ipc_handle, data, timeout, context, reserve)
    return await _run(work, lambda view: view.close())


async def extend(view: ImportedRange, data: HandleData, timeout: float = 10.0) -> ImportedRange:
    """As ImportedRange.extend(); a cancelled one has either happened or not."""
    return await _run(partial(view.extend, data, timeout), lambda _: None)


async def can_open(device: Device, data: HandleData, timeout: float = 2.0) -> OpenCheck:
    """As Device.can_open()."""
    return await _run(partial(device.can_open, data, timeout), lambda _: None)


async def _run(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    attempt = transport_attempt.Attempt()
    inside = contextvars.copy_context()
    inside.run(transport_attempt.current.set, attempt)
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(None, inside.run, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if future.cancelled():  # the executor has been shut down, and has not begun
            raise
        attempt.cancel()
        await _finished(future)
        if future.exception() is None:
            await _finished(loop.run_in_executor(None, undo, future.result()))
        raise


async def _finished(future: asyncio.Future[T]) -> None:
    """Wait for the end of a future, however often this task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue


class ImporterEvents:
    """``async for event in ImporterEvents(handle)``: what importers of a handle do, in order, from
    the making of this object on. It ends when the handle is closed, or by aclose().

    To be made in the loop that iterates it.
    """

    def __init__(self, handle: RangeHandle) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[ImporterEvent | None] = asyncio.Queue()
        self._ended = False
        handle.on_importer(self._hear)
        handle._when_closed(partial(self._hear, None))

    def _hear(self, event: ImporterEvent | None) -> None:
        if self._ended:
            return
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, event)
        except RuntimeError:  # the loop has ended before the handle
            self._ended = True

    async def aclose(self) -> None:
        """Hear no more; who waits is told that it has ended."""
        self._ended = True
        self._queue.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ImporterEvent:
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)  # for whoever else waits
            raise StopAsyncIteration
        return event
