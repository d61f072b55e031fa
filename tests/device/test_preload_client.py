"""A plain C program on the preload library: every way a descriptor comes to be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ze_ipc import mock_run

HERE = Path(__file__).parent
UAPI = HERE.parents[1] / "ioctl"
LIMIT = 60.0

VERBS = [
    "basics",
    "dups",
    "reopen",
    "pass",
    "exec",
    "forks",
    "share",
    "close_all",
    "vforks",
    "threads",
    "storm",
    "userptr",
    "walk",
    "fdinfo",
    "nothing",
]


def compile_c(sources: list[str], output: Path, *flags: str) -> Path:
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{UAPI}"]
    command += [*flags, "-o", str(output), *(str(HERE / source) for source in sources), "-pthread"]
    subprocess.run(command, check=True, timeout=LIMIT)
    return output


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(
        ["preload_client.c", "preload_stress.c"], tmp_path_factory.mktemp("preload") / "client"
    )


@pytest.fixture(scope="module", params=["bmg", "lnl"])
def on_mock(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    with mock_run.environment(devices=2, profile=request.param) as variables:
        yield {**os.environ, **variables}


def run(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@pytest.mark.parametrize("verb", VERBS)
def test_client(client: Path, on_mock: dict[str, str], verb: str) -> None:
    result = run([str(client), verb], on_mock)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("verb", ["basics", "share", "close_all", "threads"])
def test_under_a_low_limit(client: Path, on_mock: dict[str, str], verb: str) -> None:
    result = run(["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", str(client), verb], on_mock)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_an_unknown_ioctl_is_named_once(client: Path, on_mock: dict[str, str]) -> None:
    result = run([str(client), "unknown"], on_mock)
    assert result.returncode == 0
    assert len(result.stderr.splitlines()) == 1
    assert "64f0" in result.stderr


def test_client_fails_without_the_library(client: Path) -> None:
    if Path("/dev/dri/renderD128").exists():
        pytest.skip("this machine has a GPU")
    assert run([str(client), "basics"], dict(os.environ)).returncode == 1


def test_runs_leave_no_store_behind(client: Path, on_mock: dict[str, str], tmp_path: Path) -> None:
    env = {**on_mock, "ZE_IPC_MOCK_DIR": str(tmp_path)}
    assert run([str(client), "share"], env).returncode == 0
    assert [path for path in tmp_path.rglob("*") if path.name.startswith("xe-bo.")] == []


def test_before_the_constructor(on_mock: dict[str, str], tmp_path: Path) -> None:
    early = compile_c(["preload_early.c"], tmp_path / "early.so", "-shared", "-fPIC")
    env = {**on_mock, "LD_PRELOAD": f"{on_mock['LD_PRELOAD']}:{early}"}
    result = run(["/bin/true"], env)
    assert (result.returncode, result.stdout, result.stderr) == (0, "early 0 xe 0 1\n", "")
