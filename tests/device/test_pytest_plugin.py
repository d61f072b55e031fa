"""The pytest plugin as another project uses it: its tests are run, and made to fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ze_ipc import mock
from ze_ipc.device import Device
from ze_ipc.errors import DeviceLost, InvalidArgument, OutOfDeviceMemory
from ze_ipc.fault_plan import FaultPlan

DOWNSTREAM = Path(__file__).resolve().parents[1] / "downstream"
PAGE = 4096


def pytest_in(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own, with this project's installed plugin and nothing of its conftest."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "ZE_IPC_BACKEND"))
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command,
        cwd=directory,
        env=environment | {"PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the downstream project."""
    return Path(shutil.copytree(DOWNSTREAM, tmp_path / "kvpool"))


def test_the_downstream_project_passes(project: Path) -> None:
    done = pytest_in(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_the_option_insists_and_a_marker_insists_more(project: Path) -> None:
    done = pytest_in(project, "--ze-ipc-backend=xe")
    failed = set(re.findall(r"^ERROR test_kvpool.py::(\w+)", done.stdout, re.MULTILINE))
    if Path("/dev/dri").is_dir():  # then there may be a GPU, and it works
        failed.add("test_another_process_sees_the_pages")
    assert failed == {"test_another_process_sees_the_pages"}
    assert "skipped" not in done.stdout


LEAKY = """
import pytest
import ze_ipc

kept = []

def keep(state):
    return 1

def test_object(no_leaks, xe_mock):
    kept.append(xe_mock.physical_memory(4096))

def test_device(no_leaks):
    kept.append(ze_ipc.open_device("mock"))

def test_device_closed(no_leaks):
    kept.pop().close()

def test_peer_started_in_the_test(ze_ipc_peer, no_leaks):
    assert ze_ipc_peer().call(keep) == 1

def test_device_opened_before(xe_mock, no_leaks):
    with xe_mock.physical_memory(4096):
        pass

def test_failed(no_leaks, xe_mock):
    kept.append(ze_ipc.open_device("mock"))
    assert not kept

def test_unasked():
    kept.append(ze_ipc.open_device("mock"))
"""


def test_leaks_are_red_and_named(tmp_path: Path) -> None:
    (tmp_path / "test_leaky.py").write_text(LEAKY)
    done = pytest_in(tmp_path, "-W", "ignore::ResourceWarning")
    errors = re.findall(r"^ERROR test_leaky.py::(\w+)", done.stdout, re.MULTILINE)
    failures = re.findall(r"^FAILED test_leaky.py::(\w+)", done.stdout, re.MULTILINE)
    # An object that its device outlives is given back with the device.
    assert errors == ["test_device"], done.stdout
    assert failures == ["test_failed"]
    assert "mock device 0: handle" in done.stdout or "mock device 0: vm" in done.stdout
    assert "mock device 0: file x1" in done.stdout


@pytest.mark.parametrize(
    ("ini", "test", "word"),
    [
        ("[pytest]\nze_ipc_backend = cuda\n", "def test(): pass", "cuda"),
        (
            "[pytest]\n",
            "import pytest\n@pytest.mark.ze_ipc_backend('cuda')\ndef test(ze_ipc_device): pass",
            "marker",
        ),
        (
            "[pytest]\n",
            "import pytest\n@pytest.mark.ze_ipc_backend\ndef test(ze_ipc_device): pass",
            "marker",
        ),
    ],
)
def test_a_wrong_backend_is_named(tmp_path: Path, ini: str, test: str, word: str) -> None:
    (tmp_path / "pytest.ini").write_text(ini)
    (tmp_path / "test_it.py").write_text(test)
    done = pytest_in(tmp_path)
    assert done.returncode != 0
    assert word in done.stdout + done.stderr


def test_the_ini_option_chooses(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nze_ipc_backend = level_zero\n")
    (tmp_path / "test_it.py").write_text(
        "def test(ze_ipc_backend): assert ze_ipc_backend == 'level_zero'"
    )
    assert pytest_in(tmp_path).returncode == 0
    assert pytest_in(tmp_path, "--ze-ipc-backend", "mock").returncode == 1


def bind(device: Device) -> None:
    with device.reserve(PAGE) as range_, device.physical_memory(PAGE) as memory:
        range_.map(memory, at=0)


def test_faults_happen_where_they_are_planned(xe_mock: Device, xe_mock_faults: FaultPlan) -> None:
    bind(xe_mock)
    xe_mock_faults.plan("VM_BIND:1=ENOSPC, DRM_IOCTL_XE_GEM_CREATE:2=EIO")
    with pytest.raises(OutOfDeviceMemory):
        bind(xe_mock)
    with pytest.raises(DeviceLost):
        bind(xe_mock)
    bind(xe_mock)
    xe_mock_faults.fail("VM_BIND", nth=0, errno="ENOSPC")
    for _ in range(2):
        with pytest.raises(OutOfDeviceMemory):
            bind(xe_mock)
    xe_mock_faults.clear()
    bind(xe_mock)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda faults: faults.plan("VM_BIND"),
        lambda faults: faults.plan("VM_BIND:0.5=ENOSPC"),
        lambda faults: faults.plan("VM_BOND:1=ENOSPC"),
        lambda faults: faults.plan("VM_BIND:1=ENOTHING"),
        lambda faults: faults.fail("VM_BIND", errno=0),
        lambda faults: faults.fail("GEM_CREATE", errno="path"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_whole(
    xe_mock: Device, xe_mock_faults: FaultPlan, wrong: object
) -> None:
    with pytest.raises(InvalidArgument):
        wrong(xe_mock_faults)  # type: ignore[operator]
    bind(xe_mock)


def test_the_next_test_has_no_faults_of_the_last(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(
        "def test_one(xe_mock, xe_mock_faults):\n    xe_mock_faults.fail('GEM_CREATE')\n"
        "def test_two(xe_mock):\n    xe_mock.physical_memory(4096).close()\n"
    )
    done = pytest_in(tmp_path)
    assert "2 passed" in done.stdout, done.stdout


def test_what_mock_devices_hold_is_told_by_number(xe_mock: Device) -> None:
    with xe_mock.physical_memory(PAGE):
        held = mock.held()
        assert list(held) == [0]
        assert held[0].files == 1
        assert held[0].handles >= 1
