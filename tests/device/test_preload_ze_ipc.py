"""ze_ipc itself on the preload library: the kernel's ioctls through libc, two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ze_ipc import mock_run

LIMIT = 100.0

EXPORTER = """
import json, subprocess, sys
import ze_ipc

with ze_ipc.open_device("xe") as device:
    facts = [device.backend, device.is_mock, device.pci_address, device.render_node]
    objects, size = 40, 8192
    with device.reserve(objects * size) as range_:
        for index in range(objects):
            with device.physical_memory(size) as memory:
                range_.map(memory, at=index * size)
        data = bytes(index * 7 % 251 for index in range(objects * size))
        device.write(range_.ptr, data)
        with device.get_ipc_handle(range_.ptr + 5, 100000) as handle:
            child = subprocess.run(
                [sys.executable, "-c", sys.argv[1], bytes(handle).hex()],
                capture_output=True, text=True, timeout=60,
            )
        if child.returncode:
            sys.exit(child.stderr)
        changed = device.read(range_.ptr + 5, 9)
print(json.dumps([*facts, child.stdout == data[5:100005].hex(), changed.decode()]))
"""

IMPORTER = """
import sys
import ze_ipc

with ze_ipc.open_device("xe") as device:
    with device.open_ipc_handle(bytes.fromhex(sys.argv[1])) as view:
        sys.stdout.write(device.read(view.ptr, view.size).hex())
        device.write(view.ptr, b"from afar")
"""


@pytest.fixture(params=["bmg", "lnl"])
def on_mock(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str]]]:
    with mock_run.environment(profile=request.param) as variables:
        yield request.param, {**os.environ, **variables}


def test_a_range_crosses(on_mock: tuple[str, dict[str, str]]) -> None:
    profile, env = on_mock
    result = subprocess.run(
        [sys.executable, "-c", EXPORTER, IMPORTER],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    address = {"bmg": "0000:03:00.0", "lnl": "0000:00:02.0"}[profile]
    assert json.loads(result.stdout) == [
        "xe",
        True,
        address,
        "/dev/dri/renderD128",
        True,
        "from afar",
    ]
