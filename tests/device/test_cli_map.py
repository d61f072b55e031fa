"""``ze-ipc ls``, ``map`` and ``inspect`` as people run them, on the range that the documentation
shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from helpers.twelve_objects import SIZE, twelve_objects
from ze_ipc.device import Device
from ze_ipc.handle import HandleFields
from ze_ipc.range_handle import RangeHandle

PID = str(os.getpid())


def run(*arguments: str, columns: int = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ze_ipc", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env={**os.environ, "ZE_IPC_BACKEND": "mock", "COLUMNS": str(columns)},
        check=False,
    )


def report(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture
def handle(xe_mock: Device) -> Iterator[RangeHandle]:
    with (
        twelve_objects(xe_mock) as range_,
        xe_mock.get_ipc_handle(range_.ptr + 100, 600 << 10) as handle,
    ):
        yield handle


def test_ls_shows_exports_and_no_secret(handle: RangeHandle) -> None:
    words = run("ls")
    assert words.returncode == 0, words.stderr
    assert f"process {PID}" in words.stdout
    assert "600 KiB in 3 objects" in words.stdout
    (exporter,) = report("ls")["exporters"]
    assert exporter["pid"] == int(PID)
    assert exporter["exports"][0]["size"] == 600 << 10
    secret = HandleFields.unpack(bytes(handle)).secret.hex()
    assert secret not in words.stdout + json.dumps(exporter)


def test_ls_of_nothing_says_so() -> None:
    done = run("ls")
    assert done.returncode == 0
    assert "nobody" in done.stdout
    assert report("ls") == {"exporters": []}


def test_map_of_a_handle(handle: RangeHandle, tmp_path: Path) -> None:
    done = run("map", handle.hex())
    assert done.returncode == 0, done.stderr
    assert "from +64 KiB of 512 KiB" in done.stdout
    (picture,) = report("map", handle.hex())["pictures"]
    (strip,) = picture["strips"]
    assert len(strip["pieces"]) == 3
    assert strip["windows"][0]["size"] == 600 << 10


@pytest.mark.parametrize("columns", [80, 120])
def test_map_of_a_process(handle: RangeHandle, columns: int) -> None:
    done = run("map", PID, columns=columns)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum("hole" in line.split() for line in lines) >= 2
    assert sum("alias" in line for line in lines) == 2
    assert sum("from +" in line for line in lines) == 3
    assert any("exported window" in line for line in lines)


def test_map_as_svg_shows_all_that_there_is(handle: RangeHandle, tmp_path: Path) -> None:
    path = tmp_path / "range.svg"
    done = run("map", PID, "--svg", str(path))
    assert done.returncode == 0, done.stderr
    svg = path.read_text()
    root = ElementTree.fromstring(svg)
    tips = {element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")}
    assert sum(tip.startswith("hole ") for tip in tips) == 2
    assert sum(": object " in tip for tip in tips) == 13
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for obj in range(12):
        assert f"object {obj}" in words
    assert sum(word.startswith("from +") for word in words) == 3
    assert "alias: 2×" in words
    assert "hole" in words
    assert "read-only" in words
    assert any(word.startswith("exported window, handle 1: 600 KiB") for word in words)


def test_map_of_one_range_of_a_process(handle: RangeHandle, xe_mock: Device) -> None:
    with xe_mock.reserve(1 << 20) as other:
        (picture,) = report("map", PID)["pictures"]
        assert [strip["start"] for strip in picture["strips"]] == sorted([0x40000000, other.ptr])
        (picture,) = report("map", PID, "--at", hex(0x40000000 + SIZE - 1))["pictures"]
        assert [strip["start"] for strip in picture["strips"]] == [0x40000000]


def test_what_cannot_be_drawn_is_named(handle: RangeHandle) -> None:
    fields = HandleFields.unpack(bytes(handle))
    handle.close()
    for arguments, word in (
        (["map", "1"], "exported nothing"),
        (["map", "4194305"], "no process"),
        (["map", fields.pack().hex()], "HandleRevoked"),
    ):
        done = run(*arguments)
        assert done.returncode == 1
        assert word in done.stderr
        assert "Traceback" not in done.stderr
    for arguments in (["map"], ["map", "x"], ["map", "1", "--at", "here"], ["ls", "x"]):
        assert run(*arguments).returncode == 2


def test_inspect_knows_size_and_objects(handle: RangeHandle) -> None:
    result = report("inspect", handle.hex())
    assert result["size"] == 600 << 10
    assert (result["objects"], result["extents"]) == (3, 3)
    assert result["exporter_alive"] is True
    assert result["window_offset"] == 100
    assert "600 KiB (614,400 bytes)" in run("inspect", handle.hex(), columns=80).stdout
