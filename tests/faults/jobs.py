"""The traced side: one export that is opened, or one open; then once more if it failed."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from typing import Any

import ze_ipc
from faults.native import Native
from faults.reports import Holdings, Report, left_behind, watched
from faults.scenes import LEAD, OBJECT_SIZE, Scene, pattern
from ze_ipc.device import Device
from ze_ipc.mock import MockDevice
from ze_ipc.xe.backend import XeBackend
from ze_ipc.xe.device import Device as OpenFile
from ze_ipc.xe.query import query

ATTEMPTS = 2
"""Only one call fails, so the second attempt has to succeed."""
TIMEOUT = 5.0
"""Seconds of one open."""


def marked_device(native: Native) -> Device:
    """The mock device, with marks around its ioctls."""
    from ze_ipc._mock import ffi as mock_ffi
    from ze_ipc._mock import lib as mock_lib
    from ze_ipc._xe import ffi

    address = native.marked_ops(int(mock_ffi.cast("uintptr_t", mock_lib.xe_mock_ops())))
    file = OpenFile(ffi.cast("const struct xe_ops *", address), "mock:0")
    return Device(XeBackend(file, query(file), "0000:03:00.0", is_mock=True))


def make_range(device: Device, objects: int) -> ze_ipc.Reservation:
    """A range of so many objects, filled with the pattern."""
    reservation = device.reserve(objects * OBJECT_SIZE)
    for index in range(objects):
        with device.physical_memory(OBJECT_SIZE) as memory:
            reservation.map(memory, at=index * OBJECT_SIZE)
    device.write(reservation.ptr, pattern(objects))
    return reservation


def window_of(reservation: ze_ipc.Reservation) -> tuple[int, int]:
    """The window that is exported: neither end is an object's."""
    return reservation.ptr + LEAD, reservation.size - 2 * LEAD


def wrong_bytes(device: Device, view: ze_ipc.ImportedRange, objects: int) -> bool:
    """Whether an imported window has other bytes than the exporter's."""
    whole = pattern(objects)
    return device.read(view.ptr, view.size) != whole[LEAD:-LEAD]


class Job:
    """Runs in the forked child, and never returns to the parent's code."""

    def __init__(self, native: Native, scene: Scene, sabotage: Callable[[], None] | None) -> None:
        self.native = native
        self.scene = scene
        self.sabotage = sabotage
        """For the test of the checker: something wrong to do in the middle of the job."""
        self.report = Report()

    def run(self, link: socket.socket | bytes, answer_fd: int) -> None:
        """Do the job; write the report; exit."""
        code = 3
        try:
            with watched(self.report):
                self._run(link)
            code = 0
        except BaseException as error:
            self.report.wrong.append(f"the job failed: {error!r}")
            self.report.failed("job", error)
        finally:
            self.native.end()
            with open(answer_fd, "wb") as pipe:
                pipe.write(pickle.dumps((self.report.steps, self.report.wrong))[: 1 << 15])
            os._exit(code)

    def _run(self, link: socket.socket | bytes) -> None:
        mock = MockDevice(0)
        empty = Holdings.take(mock=mock)
        device = marked_device(self.native)
        if isinstance(link, bytes):
            self._import(device, mock, link)
        else:
            self._export(device, mock, link)
        self._step("device.close", device.close)
        self.native.end()
        del device
        self._expect(empty, "after device.close()", None, mock)
        if isinstance(link, socket.socket):
            link.close()

    def _export(self, device: Device, mock: MockDevice, link: socket.socket) -> None:
        reservation = make_range(device, self.scene.objects)
        ptr, size = window_of(reservation)
        before = Holdings.take(device, mock)
        self.native.trace_me()
        handle = self._attempt(
            "export", lambda: device.get_ipc_handle(ptr, size), before, device, mock
        )
        if self.sabotage is not None:
            self.sabotage()
        if handle is not None:
            with self.native.paused():
                opened = any(self._ask(link, bytes(handle)) for _ in range(ATTEMPTS))
            if not opened:
                self.report.wrong.append("the next open failed too")
            self._step("handle.close", handle.close)
        self._step("reservation.close", reservation.close)

    def _import(self, device: Device, mock: MockDevice, handle: bytes) -> None:
        before = Holdings.take(device, mock)
        self.native.trace_me()
        view = self._attempt(
            "open", lambda: device.open_ipc_handle(handle, timeout=TIMEOUT), before, device, mock
        )
        if self.sabotage is not None:
            self.sabotage()
        if view is not None:
            with self.native.paused():
                if wrong_bytes(device, view, self.scene.objects):
                    self.report.wrong.append("wrong bytes")
            self._step("view.close", view.close)
            del view
            if self._closed_well():
                with self.native.paused():
                    self._expect(before, "after view.close()", device, mock)

    def _closed_well(self) -> bool:
        """A close() that raised may have left things to device.close()."""
        return not any("close: " in step and ": ok" not in step for step in self.report.steps)

    def _attempt(
        self,
        step: str,
        call: Callable[[], Any],
        before: Holdings,
        device: Device,
        mock: MockDevice,
    ) -> Any:
        for attempt in range(ATTEMPTS):
            try:
                value = call()
            except BaseException as error:
                with self.native.paused():
                    self.report.failed(step, error)
                    del error
                    if attempt == ATTEMPTS - 1:
                        self.report.wrong.append("the next attempt failed too")
                    if device._broker is None:
                        self._expect(before, f"after {step} failed", device, mock)
                continue
            self.report.good(step)
            return value
        return None

    def _step(self, step: str, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self.report.failed(step, error)
        else:
            self.report.good(step)

    def _expect(self, before: Holdings, when: str, device: Device | None, mock: MockDevice) -> None:
        if left := left_behind(before, device, mock):
            self.report.wrong.append(f"left {when}: {'; '.join(left)}")

    def _ask(self, link: socket.socket, handle: bytes) -> bool:
        """Have the importer open it; whether it could."""
        link.sendall(handle)
        answer = link.recv(1)
        if not answer:
            self.report.wrong.append("the importer ended")
        return answer == b"1"
