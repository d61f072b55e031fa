"""The generated tree, as programs see it through the library."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ze_ipc import mock_run, mock_tree
from ze_ipc.errors import InvalidArgument

LIMIT = 60.0


def shell(script: str, env: dict[str, str]) -> str:
    result = subprocess.run(
        ["bash", "-ec", script], env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize(("profile", "address"), [("bmg", "0000:0a:00.0"), ("lnl", "0000:00:09.0")])
def test_eight_devices(profile: str, address: str) -> None:
    with mock_run.environment(devices=8, profile=profile) as variables:
        env = {**os.environ, **variables}
        nodes = shell("ls /dev/dri", env).split()
        assert nodes == ["by-path", *(f"card{i}" for i in range(8))] + [
            f"renderD{i}" for i in range(128, 136)
        ]
        script = "stat -c '%F %t:%T' /dev/dri/renderD135; readlink -f /sys/dev/char/226:135"
        kind, path = shell(script, env).splitlines()
        assert kind == "character special file e2:87"
        assert path.endswith(f"/{address}/drm/renderD135")
        links = shell("readlink -f /sys/class/drm/*/device/driver | sort -u", env)
        assert links == "/sys/bus/pci/drivers/xe\n"
        uevent = shell("cat /sys/class/drm/card7/uevent", env)
        assert "MAJOR=226\nMINOR=7\nDEVNAME=dri/card7\n" in uevent


def test_a_gpu_is_found_by_every_path() -> None:
    with mock_run.environment(vram=1 << 30) as variables:
        env = {**os.environ, **variables}
        device = "/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0"
        for path in (
            "/sys/class/drm/card0/device",
            "/sys/bus/pci/devices/0000:03:00.0",
            "/sys/class/drm/../drm/renderD128/device",
            "/sys//bus/./pci/drivers/xe/0000:03:00.0",
        ):
            assert shell(f"readlink -f {path}", env) == f"{device}\n"
        assert shell(f"cat {device}/tile0/gt0/freq0/max_freq {device}/device", env) == (
            "2850\n0xe20b\n"
        )
        assert shell(f"cat {device}/tile0/physical_vram_size_bytes", env) == "0x40000000\n"
        assert shell("readlink -f /dev/dri/by-path/pci-0000:03:00.0-render", env) == (
            "/dev/dri/renderD128\n"
        )
        name = shell("cat /sys/kernel/debug/dri/0/name", env)
        assert name == "xe dev=0000:03:00.0 unique=0000:03:00.0\n"
        assert "IDX[XE_CACHE_WB] = 2" in shell(
            "cat /sys/kernel/debug/dri/128/gt0/pat_sw_config", env
        )
        assert shell("cd /dev/dri && cd ../../sys && pwd", env) == "/sys\n"
        assert shell("cd /sys/class/drm/card0 && pwd -P", env) == f"{device}/drm/card0\n"
        assert shell("stat -c %F /dev/dri/../null", env) == "character special file\n"


def test_directories_above_list_the_tree() -> None:
    script = "ls /dev /sys/class; find /dev /sys/class /sys/bus -maxdepth 1 -name d* -o -name pci"
    with mock_run.environment() as variables:
        env = {**os.environ, **variables}
        listed = shell(f"set -f; {script}", env).split()
        for name in ("dri", "drm", "/dev/dri", "/sys/class/drm", "/sys/bus/pci"):
            assert listed.count(name) == 1, name
        nodes = shell("find /sys/class/drm/ /dev/dri -name 'renderD*'", env).split()
        assert nodes == ["/sys/class/drm/renderD128", "/dev/dri/renderD128"]
        again = "import os; print(*(os.listdir(p).count(n) for p, n in [('/dev', 'dri')] * 40))"
        assert shell(f'{sys.executable} -c "{again}"', env).split() == ["1"] * 40


def test_the_tree_goes_with_the_environment() -> None:
    with mock_run.environment() as variables:
        root = Path(variables["ZE_IPC_MOCK_ROOT"])
        assert stat.S_ISREG((root / "dev/dri/renderD128").stat().st_mode)
        assert root.stat().st_mode & 0o055 == 0o055
    assert not root.parent.exists()


def test_what_cannot_be() -> None:
    with pytest.raises(InvalidArgument), mock_run.environment(devices=9):
        pass
    with pytest.raises(InvalidArgument), mock_run.environment(profile="dg2"):
        pass
    with pytest.raises(ValueError, match="devices"):
        mock_tree.build_tree(Path("/nowhere"), mock_tree.PLATFORMS["bmg"], 0)
