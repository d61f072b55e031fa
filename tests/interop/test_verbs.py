"""RDMA registration by pyverbs: the real package where it can be loaded, and what it documents.

A region needs an RDMA device, which hardly any test machine has. So the real package is given a
wrong protection domain: it looks at the names of all arguments before that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ze_ipc
from ze_ipc.interop import verbs

PAGE = 4096

REAL = """
import ze_ipc
from pyverbs.device import get_device_list
from pyverbs.mr import DmaBufMR
from ze_ipc.interop import verbs

for name in ("pd", "length", "access", "dmabuf", "offset"):
    assert f":param {name}:" in DmaBufMR.__init__.__doc__, name
try:
    devices = get_device_list()
except Exception:
    devices = []
with ze_ipc.open_device("mock") as device, device.reserve(4096) as range_:
    with device.physical_memory(4096) as memory:
        range_.map(memory, at=0)
    try:
        with verbs.register("no protection domain", range_, 1):
            print("registered")
    except TypeError as error:
        assert "argument 'pd' has incorrect type" in str(error).lower(), error
        print("refused", len(devices))
"""


def environment() -> dict[str, str] | None:
    """With which Debian's package, as ci/interop has unpacked it, can be imported; None where there
    is none for this Python.
    """
    root = Path(__file__).resolve().parents[2] / "build/pyverbs/root"
    packages = root / "usr/lib/python3/dist-packages"
    if not list(packages.glob(f"pyverbs/mr.{sys.implementation.cache_tag}-*.so")):
        return None
    libraries = [str(path) for path in root.rglob("*-linux-gnu") if path.is_dir()]
    return {
        **os.environ,
        "PYTHONPATH": str(packages),
        "LD_LIBRARY_PATH": ":".join(libraries),
    }


def test_the_real_package_takes_our_arguments() -> None:
    env = environment()
    if env is None:
        print("pyverbs is of another Python here: only what it documents is checked")
        return
    done = subprocess.run(
        [sys.executable, "-c", REAL],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused")


class DmaBufMR:
    """As pyverbs documents it."""

    def __init__(  # type: ignore[no-untyped-def]
        self, pd, length, access, dmabuf=None, offset=0, gpu=0, gtt=0
    ) -> None:
        if pd.left == 0:
            raise OSError("no more regions")
        pd.left -= 1
        os.fstat(dmabuf)
        self.asked = (length, access, offset)
        self.pd = pd

    def close(self) -> None:
        self.pd.left += 1


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = types.ModuleType("pyverbs"), types.ModuleType("pyverbs.mr")
    module.DmaBufMR = DmaBufMR  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyverbs", package)
    monkeypatch.setitem(sys.modules, "pyverbs.mr", module)


@pytest.mark.usefixtures("documented")
def test_regions_are_the_pieces(xe_mock: ze_ipc.Device) -> None:
    pd = types.SimpleNamespace(left=2)
    with xe_mock.reserve(3 * PAGE) as reservation:
        for at in (0, 1, 2):
            with xe_mock.physical_memory(PAGE) as memory:
                reservation.map(memory, at=at * PAGE)
        with verbs.register(pd, reservation, 7, 100, PAGE) as regions:
            assert [(r.offset, r.length, r.range_offset) for r in regions] == [
                (100, PAGE - 100, 100),
                (0, 100, PAGE),
            ]
            assert [r.mr.asked for r in regions] == [(PAGE - 100, 7, 100), (100, 7, 0)]
            assert pd.left == 0
        assert pd.left == 2
        with pytest.raises(OSError, match="no more"), verbs.register(pd, reservation, 7):
            pass
        assert pd.left == 2
