"""The product on the real driver: Debian's Python and the wheel, taken into the guest.

`install` sends Debian sid's python3 with what the wheel depends on, and the wheel, as archives and
unpacks them in the guest, whose root then has everything that `ze-ipc` needs.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .agent import GuestError
from .packages import Suite, cache_dir
from .qemu import Guest

PACKAGES = [
    "python3", "python3-cffi-backend", "python3-psutil", "python3-rich", "python3-pytest",
    "python3-pytest-timeout", "python3-hypothesis",
]  # fmt: skip
DEVICE_TESTS = ("test_ranges.py", "test_sharing.py", "test_lifecycle.py")
"""Tests of tests/device that ask for a device and do not care which one it is."""
NOT_HERE = {
    "test_many_importers_at_once": "counts importers before the exporter's thread has, on one CPU",
    "test_another_device_maps_it_as_a_peer": "wants a second device: see ci/real-kernel peers",
    "test_a_hundred_thousand_objects_under_256_fds": "wants more memory than the guest has",
    "test_gpu_copies_through_an_imported_range": "too slow without KVM; see demo",
    "test_wrong_arguments[50]": "says that there is no GPU",
}
"""Tests that a slow guest with a real driver cannot pass, and why."""
DEMO_OBJECTS = 5000
ON_THE_DRIVER = """
import pytest
import ze_ipc


@pytest.fixture
def xe_mock():
    with ze_ipc.open_device("xe") as device:
        assert not device.is_mock
        yield device
"""
REPOSITORY = Path(__file__).parents[3]


class Row(NamedTuple):
    """One thing that ran in the guest."""

    title: str
    passed: bool
    text: str


def checks(guest: Guest) -> Iterator[Row]:
    """The demo over both transports and the device tests, as they finish."""
    for transport, objects in (("broker", DEMO_OBJECTS), ("pidfd", 100)):
        command = f"ZE_IPC_TRANSPORT={transport} python3 -m ze_ipc demo --backend xe --json"
        command += f" --objects {objects} --object-size 16384"
        done = guest.agent.run(["/bin/sh", "-c", command], seconds=300)
        text = done.output.decode(errors="replace").strip()
        title = f"demo with {objects} objects over {transport}"
        yield Row(title, done.status == 0 and '"mock": false' in text, text)
    for name in DEVICE_TESTS:
        command = "cd /tests && ZE_IPC_TEST_BACKEND=xe python3 -m pytest -q"
        for test in NOT_HERE:
            command += f" --deselect 'device/{name}::{test}'"
        done = guest.agent.run(["/bin/sh", "-c", f"{command} device/{name}"], seconds=500)
        yield Row(name, done.status == 0, done.output.decode(errors="replace").strip())


def peer_check(guest: Guest) -> Row:
    """The test that another device maps a range as a peer, where there are two."""
    test = "test_another_device_maps_it_as_a_peer"
    command = "cd /tests && ZE_IPC_TEST_BACKEND=xe python3 -m pytest -q"
    line = f"{command} device/test_sharing.py::{test}"
    done = guest.agent.run(["/bin/sh", "-c", line], seconds=300)
    return Row(test, done.status == 0, done.output.decode(errors="replace").strip())


SITE = "usr/lib/python3/dist-packages"
UNWANTED = ("usr/share", "usr/include", "etc", "var", "usr/games", "usr/sbin", "usr/lib/apt")
LINKS = {"lib": "usr/lib", "lib64": "usr/lib64"}


def _python_archive() -> Path:
    """A tar of the unpacked packages without documentation and the like; made once."""
    tree = cache_dir() / "python"
    archive = cache_dir() / "python.tar"
    names = Suite("sid").unpack(tree, PACKAGES, True)
    mark = cache_dir() / "python.names"
    if archive.exists() and mark.exists() and mark.read_text().split() == names:
        return archive
    with tarfile.open(archive, "w") as tar:
        for path in sorted(tree.rglob("*")):
            name = str(path.relative_to(tree))
            if name.startswith(UNWANTED) or name.startswith("."):
                continue
            if path.is_symlink() or path.is_file():
                tar.add(path, name, recursive=False)
        for name, target in LINKS.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    mark.write_text("\n".join(names))
    return archive


def _wheel_archive(wheel: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(wheel) as source, tarfile.open(fileobj=out, mode="w") as tar:
        for item in source.infolist():
            if item.is_dir():
                continue
            data = source.read(item)
            info = tarfile.TarInfo(f"{SITE}/{item.filename}")
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def install_tests(guest: Guest) -> None:
    """Puts the device tests into /tests; their device is the real driver's."""
    tests = REPOSITORY / "tests"
    guest.agent.put("/tests/conftest.py", (tests / "conftest.py").read_bytes(), 0o644)
    guest.agent.put_tree(tests / "helpers", "/tests/helpers")
    for name in DEVICE_TESTS:
        guest.agent.put(f"/tests/device/{name}", (tests / "device" / name).read_bytes(), 0o644)
    guest.agent.put("/tests/device/conftest.py", ON_THE_DRIVER.encode(), 0o644)
    settings = "[pytest]\naddopts = -ra --import-mode=importlib -p no:cacheprovider\n"
    settings += "pythonpath = .\ntimeout = 300\n"
    guest.agent.put("/tests/pytest.ini", settings.encode(), 0o644)


def install(guest: Guest, wheel: Path) -> None:
    """Puts Python and the wheel into the guest and proves that both import."""
    for data in (_python_archive().read_bytes(), _wheel_archive(wheel)):
        guest.agent.put("/tmp/in.tar", data)
        done = guest.agent.run(["/bin/tar", "-xf", "/tmp/in.tar", "-C", "/"], seconds=120)
        guest.agent.run(["/bin/rm", "-f", "/tmp/in.tar"])
        if done.status:
            raise GuestError(f"tar in the guest: {done.output.decode(errors='replace')}")
    done = guest.agent.run(["/usr/bin/python3", "-c", "import ze_ipc, ze_ipc._xe"], seconds=120)
    if done.status:
        raise GuestError(f"no Python in the guest: {done.output.decode(errors='replace')}")
