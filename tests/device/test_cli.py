"""The program as people run it: text, JSON, exit codes; and what the README shows."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ze_ipc

ROOT = Path(__file__).resolve().parents[2]
PAGE = 4096


def run(*arguments: str, fds: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if fds is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (fds, fds))

    return subprocess.run(
        [sys.executable, "-m", "ze_ipc", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        cwd="/",
        env={**os.environ, "ZE_IPC_BACKEND": "mock", **env},
        preexec_fn=limit,
        check=False,
    )


def report(*arguments: str, **options: Any) -> dict[str, Any]:
    done = run(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("objects", [1, 7, 5000])
def test_demo_proves_every_byte(objects: int) -> None:
    result = report("demo", "--objects", str(objects), fds=256)
    assert result["verified"] is True
    assert result["backend"] == "xe"
    assert result["mock"] is True
    assert result["objects"] == objects
    assert result["bytes"] == objects * 65536
    assert result["gpu_bytes"] == result["bytes"]
    assert result["checked"] == "every byte"
    assert re.fullmatch(r"[0-9a-f]{128}", result["handle"])
    assert result["export_us"] > 0
    assert result["open_us"] > 0


def test_demo_of_a_sparse_range_checks_stamps() -> None:
    result = report("demo", "--objects", "400", "--object-size", "2M")
    assert result["verified"] is True
    assert "both ends" in result["checked"]
    assert result["gpu_bytes"] > 0


def test_demo_in_words() -> None:
    done = run("demo", "--objects", "3")
    assert done.returncode == 0, done.stderr
    assert "verified" in done.stdout


def test_demo_says_so_when_the_bytes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    from ze_ipc.cli import demo

    honest = demo._import_elsewhere

    def lying(*arguments: Any) -> dict[str, Any]:
        return {**honest(*arguments), "difference": 4096}

    monkeypatch.setattr(demo, "_import_elsewhere", lying)
    with ze_ipc.open_device("mock") as device:
        result = demo.share(device, 3, 65536, lambda name, total: lambda done: None)
    assert result["verified"] is False
    assert result["first_difference_there"] == 4096


def test_devices() -> None:
    result = report("devices")
    (mock,) = [device for device in result["devices"] if device["mock"]]
    assert mock["backend"] == "mock"
    assert mock["memory"] > 0
    assert "mock" in run("devices").stdout


def test_inspect_follows_the_life_of_a_handle(xe_mock: ze_ipc.Device) -> None:
    with xe_mock.reserve(PAGE) as reservation, xe_mock.physical_memory(PAGE) as memory:
        reservation.map(memory, at=0)
        with xe_mock.get_ipc_handle(reservation.ptr, PAGE) as handle:
            result = report("inspect", handle.hex())
            assert result["can_open"] is True
            assert result["this_host"] is True
            assert result["exporter_pid"] == os.getpid()
        done = run("inspect", handle.hex(), "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["can_open"] is False
        damaged = bytes(handle)[:40] + b"\xee" + bytes(handle)[41:]
        done = run("inspect", damaged.hex(), "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["valid"] is False


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["demo", "--objects", "0"],
        ["demo", "--objects", "many"],
        ["demo", "--object-size", "big"],
        ["demo", "--backend", "cuda"],
        ["inspect", "00"],
        ["mock"],
        ["mock", "run", "--profile", "dg2", "--", "true"],
    ],
)
def test_usage_errors_exit_with_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "usage" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--backend", "xe"],
        ["demo", "--object-size", "1000"],
        ["demo", "--objects", "3", "--object-size", "1T"[:-1] + "000000G"],
        ["mock", "run"],
        ["mock", "run", "--root", "/nonexistent", "--", "true"],
        ["mock", "run", "--", "/nonexistent/program"],
    ],
)
def test_failures_exit_with_1_and_a_line_that_helps(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("ze-ipc: ")
    assert "Traceback" not in done.stderr


def test_a_wrong_logging_level_is_named() -> None:
    done = run("devices", ZE_IPC_LOG="LOUD")
    assert done.returncode != 0
    assert "ZE_IPC_LOG" in done.stderr


def test_mock_run_gives_a_program_the_node() -> None:
    done = run("mock", "run", "--devices", "2", "--", "ls", "/dev/dri")
    assert done.returncode == 0, done.stderr
    assert {"renderD128", "renderD129"} <= set(done.stdout.split())
    assert run("mock", "run", "--", "sh", "-c", "exit 7").returncode == 7


def test_mock_env_prints_what_it_sets(tmp_path: Path) -> None:
    result = report("mock", "env", "--directory", str(tmp_path / "tree"))
    assert "libxe_mock.so" in result["environment"]["LD_PRELOAD"]
    done = subprocess.run(
        ["ls", "/dev/dri"],
        env={**os.environ, **result["environment"]},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert "renderD128" in done.stdout


def test_the_readmes_example_runs_as_it_stands(tmp_path: Path) -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "share.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ZE_IPC_BACKEND": "mock"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "across an object's end" in done.stdout


def test_the_readmes_fixtures_work_in_another_project(tmp_path: Path) -> None:
    (code,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "test_sharing.py").write_text("import ze_ipc\n\n" + code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
