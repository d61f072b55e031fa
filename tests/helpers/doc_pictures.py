"""The pictures of the documentation, drawn by ``ze-ipc map`` from ranges that exist.

``python -m helpers.doc_pictures`` in tests/ draws them anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from helpers.twelve_objects import twelve_objects
from ze_ipc import manifest
from ze_ipc.broker_listing import What
from ze_ipc.cli import picture, picture_svg
from ze_ipc.device import Device
from ze_ipc.handle import HandleFields
from ze_ipc.open_device import open_device
from ze_ipc.range_handle import RangeHandle
from ze_ipc.transport_listing import ask_about, ask_all

DIRECTORY = Path(__file__).resolve().parents[2] / "docs" / "pictures"
KIB = 1 << 10


def drawn() -> dict[str, str]:
    """SVG by file name."""
    with open_device("mock") as device:
        return dict(_pictures(device))


def _pictures(device: Device) -> Iterator[tuple[str, str]]:
    with twelve_objects(device) as range_, ExitStack() as held:
        first = held.enter_context(device.get_ipc_handle(range_.ptr + 192 * KIB + 100, 600 * KIB))
        held.enter_context(device.get_ipc_handle(range_.ptr + 2624 * KIB, 512 * KIB))
        yield "process.svg", _process("exporter.py", range_.ptr)
        yield "handle.svg", _handle(first)
    with device.reserve(4096 * KIB, 0x4000_0000) as range_:
        for index in range(6):
            with device.physical_memory(256 * KIB) as memory:
                range_.map(memory, at=index * 256 * KIB)
        with device.get_ipc_handle(range_.ptr, 1536 * KIB):
            yield "growing.svg", _process("kv_cache.py", range_.ptr)


def _process(program: str, at: int) -> str:
    (told,) = ask_all(What.MAPPINGS)
    return picture_svg.render(picture.of_process(_anonymous(told.said, program), at))


def _handle(handle: RangeHandle) -> str:
    said = ask_about(HandleFields.unpack(bytes(handle)), time.monotonic() + 10)
    described = manifest.parse(said["manifest"])
    return picture_svg.render(picture.of_handle(described, _anonymous(said, "exporter.py")))


def _anonymous(said: dict[str, Any], program: str) -> dict[str, Any]:
    """The same for everybody who draws it, and for each of the handles numbered from 1."""
    exports = said.get("exports", [])
    numbered = [export | {"generation": i} for i, export in enumerate(exports, 1)]
    return said | {"pid": 4242, "command": ["python", program], "exports": numbered}


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for name, svg in drawn().items():
        (DIRECTORY / name).write_text(svg)
        print(DIRECTORY / name)
