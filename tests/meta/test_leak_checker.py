"""The leak check of tests/conftest.py is red on every kind of leak, and green without one."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ze_ipc import leaks
from ze_ipc.fds import Fd

TESTS = Path(__file__).resolve().parents[1]

WARNINGS = ["-W", "error::ResourceWarning", "-W", "error::pytest.PytestUnraisableExceptionWarning"]

CASES = """
import mmap, os, pathlib, socket, subprocess, sys, threading
import pytest
from ze_ipc import leaks

kept = []
leaks.SETTLE_SECONDS = 0.3

def test_clean():
    with open("/dev/null"):
        assert True

def test_fd():
    kept.append(os.open("/dev/null", os.O_RDONLY))

def test_fd_of_same_number():
    number = kept[0]
    os.dup2(os.open("/dev/zero", os.O_RDONLY), number)

def test_thread():
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()

def test_mapping():
    number = os.memfd_create("object")
    os.ftruncate(number, 4096)
    kept.append(mmap.mmap(number, 4096))
    os.close(number)

def test_child():
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_dead_child():
    if (pid := os.fork()) == 0:
        os._exit(0)

def test_socket_file():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.path.join(os.environ["ZE_IPC_DIR"], "broker.sock"))

def test_mock_object(monkeypatch, tmp_path):
    directory = tmp_path / f"ze-ipc-mock-{os.getuid()}" / f"{os.getpid()}-1"
    directory.mkdir(parents=True)
    (directory / "bo").write_bytes(b"x")

def test_owner_in_a_cycle():
    from ze_ipc.fds import Fd
    cycle = [Fd(os.open("/dev/null", os.O_RDONLY))]
    cycle.append(cycle)

def test_owner_collected():
    from ze_ipc.fds import Fd
    Fd(os.open("/dev/null", os.O_RDONLY))

def test_failed_already():
    kept.append(os.open("/dev/null", os.O_RDONLY))
    assert not kept

def test_clean_again():
    assert kept
"""

KINDS = {
    "test_fd": "fd ",
    "test_fd_of_same_number": "fd ",
    "test_thread": "thread ",
    "test_mapping": "memory mapping ",
    "test_child": "child process ",
    "test_dead_child": "child process ",
    "test_socket_file": "socket file ",
    "test_mock_object": "mock object ",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ET.Element]:
    """Each case's element of a JUnit report."""
    directory = tmp_path_factory.mktemp("leaky")
    (directory / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (directory / "test_cases.py").write_text(CASES)
    report = directory / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WARNINGS]
    command += ["--basetemp", str(directory / "tmp"), "--rootdir", str(directory)]
    command += ["--junitxml", str(report), str(directory / "test_cases.py")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["ZE_IPC_MOCK_DIR"] = str(directory / "tmp" / "test_mock_object0")
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60
    )
    assert report.exists(), done.stdout + done.stderr
    return {str(case.get("name")): case for case in ET.parse(report).iter("testcase")}


def _texts(outcomes: dict[str, ET.Element], name: str) -> list[tuple[str, str]]:
    return [(e.tag, f"{e.get('message')} {e.text}") for e in outcomes[name]]


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_each_kind_of_leak_is_red(outcomes: dict[str, ET.Element], name: str, kind: str) -> None:
    ((tag, text),) = _texts(outcomes, name)
    assert tag == "error"
    assert "left behind" in text
    assert kind in text


@pytest.mark.parametrize("name", ["test_owner_collected", "test_owner_in_a_cycle"])
def test_an_owner_that_is_collected_open_is_red(outcomes: dict[str, ET.Element], name: str) -> None:
    """By pytest itself if it is collected during the test, else by the collection after it."""
    texts = _texts(outcomes, name)
    assert texts
    assert all(tag in ("failure", "error") for tag, _ in texts)
    assert any("collected open" in text for _, text in texts), texts


def test_the_collection_names_what_it_had_to_close() -> None:
    cycle: list[object] = [Fd(os.open("/dev/null", os.O_RDONLY))]
    cycle.append(cycle)
    del cycle
    (line,) = leaks.collect()
    assert line.startswith("ResourceWarning")
    assert leaks.collect() == []


def test_tests_without_a_leak_are_green(outcomes: dict[str, ET.Element]) -> None:
    assert _texts(outcomes, "test_clean") == []
    assert _texts(outcomes, "test_clean_again") == []


def test_a_failed_test_is_reported_once(outcomes: dict[str, ET.Element]) -> None:
    assert [tag for tag, _ in _texts(outcomes, "test_failed_already")] == ["failure"]


def test_only_the_library_s_own_descriptor_is_nobody_s() -> None:
    assert leaks.PROCESS_WIDE_FD.search("/usr/lib/x86_64-linux-gnu/libffi.so.8.5.0")
    assert leaks.PROCESS_WIDE_FD.search("/site-packages/cffi.libs/libffi-a1b2c3d4.so.8.1.2")
    assert not leaks.PROCESS_WIDE_FD.search("/tmp/libffi.so.8/data")
    assert not leaks.PROCESS_WIDE_FD.search("/usr/lib/libcuda.so.1")
