"""What other processes do with ranges that come to them as arguments, through queues and pools."""

from __future__ import annotations

from typing import Any

import ze_ipc


def read(view: ze_ipc.ImportedRange) -> tuple[str, bytes]:
    with view:
        return type(view).__name__, view.device.read(view.ptr, view.size)


def write(view: ze_ipc.ImportedRange, at: int, data: bytes) -> None:
    with view:
        view.device.write(view.ptr + at, data)


def write_and_say(view: ze_ipc.ImportedRange, at: int, data: bytes, said: Any) -> None:
    write(view, at, data)
    said.put("done")


def echo(questions: Any, answers: Any) -> None:
    """Send every range back that comes; it stays open here until the answer was received, for a
    queue pickles some time after put().
    """
    while (view := questions.get()) is not None:
        with view:
            answers.put(view)
            assert questions.get() == "received"


def make(size: int, byte: int) -> ze_ipc.ImportedRange:
    """A range of this process, for whoever asked; nothing of it stays here."""
    with ze_ipc.open_device("mock") as device, device.reserve(size) as reservation:
        with device.physical_memory(size) as memory:
            reservation.map(memory, at=0)
        device.fill(reservation.ptr, byte, size)
        with device.get_ipc_handle(reservation.ptr, size) as handle:
            from ze_ipc.interop import multiprocessing

            origin = multiprocessing.Origin.of(device)
            return multiprocessing.receive(bytes(handle), origin)


def sizes(views: list[ze_ipc.ImportedRange]) -> list[int]:
    found = [len(view) for view in views]
    for view in views:
        view.close()
    return found
