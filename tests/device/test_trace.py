"""Records of what a program does, and running them again: the same, another way, and faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ze_ipc import replay as replays
from ze_ipc import trace
from ze_ipc.device import Device
from ze_ipc.errors import InvalidArgument, KernelError
from ze_ipc.mock import MockDevice
from ze_ipc.replay import replay

PROGRAM = """
import sys
import ze_ipc

with ze_ipc.open_device("mock") as device, device.reserve(16384) as range_:
    for at in range(0, 12288, 4096):
        with device.physical_memory(4096) as memory:
            try:
                range_.map(memory, at=at)
            except ze_ipc.ZeIpcError as error:
                print(error)
                range_.map(memory, at)
    device.write(range_.ptr + 8, b"confidential")
    with device.get_ipc_handle(range_.ptr + 1, 9000) as handle:
        print(handle.hex())
        with device.open_ipc_handle(bytes(handle)) as view:
            assert device.address_range(view.ptr) == (view.ptr, 9000)
            assert device.read(view.ptr + 7, 12) == b"confidential"
    try:
        device.get_ipc_handle(range_.ptr, 16384)
    except ze_ipc.AddressNotFound:
        pass
    assert not device.can_open(handle)
"""


def traced(tmp_path: Path, **env: str) -> tuple[Path, str]:
    """The record of PROGRAM, and what it printed."""
    record = tmp_path / "record.jsonl"
    command = ["trace", "--output", str(record), "--", sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        [sys.executable, "-m", "ze_ipc", *command],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "lines in" in done.stderr
    return record, done.stdout


def lines(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_a_record_runs_again_and_tells_nothing(tmp_path: Path) -> None:
    record, printed = traced(tmp_path)
    outcome = replay(record)
    assert outcome.same, outcome
    calls = [line["call"] for line in lines(record) if "call" in line]
    assert outcome.calls == len(calls)
    assert outcome.ioctls > 10
    assert calls[0] == "Device.reserve"
    assert calls[-1] == "Device.close"
    text = record.read_text()
    handle = printed.split()[0]
    for secret in ("confidential", handle, handle[64:96], str(tmp_path)):
        assert secret not in text


def test_a_failed_ioctl_fails_again_and_the_program_goes_on_as_it_did(tmp_path: Path) -> None:
    record, printed = traced(tmp_path, ZE_IPC_MOCK_FAULTS="VM_BIND:2=ENOSPC")
    assert "ENOSPC" in printed
    (failed,) = [line for line in lines(record) if "raised" in line and "map" in line["call"]]
    assert failed["raised"]["error"] == "OutOfDeviceMemory"
    outcome = replay(record)
    assert outcome.same, outcome
    # Without the failed ioctl the record is another story.
    honest = "".join(
        line + "\n" for line in record.read_text().splitlines() if not json.loads(line).get("errno")
    )
    record.write_text(honest)
    different = replay(record)
    assert different.call == "Reservation.map"
    assert different.seen == {"result": None}


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    record, _ = traced(tmp_path)
    changed = record.read_text().replace('"size":9000', '"size":9001', 1)
    record.write_text(changed)
    done = subprocess.run(
        [sys.executable, "-m", "ze_ipc", "replay", str(record)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    assert "another way in line" in done.stdout
    assert "Device." in done.stdout


@pytest.mark.parametrize(
    "text", ["x\n", "[]\n", '{"trace": 1}\n', '{"pid": 1, "tid": 1, "trace": 99}\n']
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "record").write_text(text)
    with pytest.raises(InvalidArgument):
        replay(tmp_path / "record")
    with pytest.raises(InvalidArgument):
        replay(tmp_path / "missing")


def test_a_call_on_something_that_was_never_made_is_a_difference(tmp_path: Path) -> None:
    line = {"pid": 1, "tid": 1, "call": "Reservation.close", "on": "r", "given": {}, "result": None}
    (tmp_path / "record").write_text(json.dumps(line) + "\n")
    assert not replay(tmp_path / "record").same


def test_off_nothing_is_wrapped(xe_mock: Device) -> None:
    assert trace._recorder is None
    for cls, names in trace.TRACED.items():
        for name in names:
            assert not hasattr(getattr(cls, name), "__wrapped__")


def test_every_traced_method_exists() -> None:
    assert replays.trace is trace
    for cls, names in trace.TRACED.items():
        assert cls in trace.KINDS
        for name in names:
            assert callable(getattr(cls, name))


def test_an_ioctl_fails_by_its_number(xe_mock: Device) -> None:
    with MockDevice.attached(0) as faults:
        with pytest.raises(InvalidArgument):
            faults.fail_number(0xFF, 1, 5)
        faults.fail_number(0xC0406441, 1, 1)
        with pytest.raises(KernelError):
            xe_mock.physical_memory(4096)
