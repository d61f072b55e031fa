"""Exporters and importers in containers that the tests make: namespaces, a filter like Docker's, no
ptrace at all; they share a directory for brokers and the mock's memory, and nothing else.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helpers import broker_probes, container_child, seccomp

SECONDS = 60


@pytest.fixture
def container() -> tuple[str, ...]:
    prefix = broker_probes.container_prefix()
    if prefix is None:
        pytest.skip("may not make namespaces")
    return prefix


@pytest.fixture
def filtered() -> tuple[str, ...]:
    if not broker_probes.may_filter():
        pytest.skip("may not filter system calls")
    return sys.executable, seccomp.__file__


def start(
    prefix: Sequence[str], directory: Path, *arguments: str, transport: str = "broker"
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, sys.executable, "-W", "ignore", container_child.__file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ZE_IPC_DIR": str(directory), "ZE_IPC_TRANSPORT": transport},
    )


def share(exporter: Sequence[str], importer: Sequence[str], directory: Path) -> tuple[int, int]:
    """Share a range from one to the other, both ways; the pids as they see themselves."""
    with start(exporter, directory) as exporting:
        assert exporting.stdout is not None
        assert exporting.stdin is not None
        try:
            handle, exporter_pid = exporting.stdout.readline().split()
            with start(importer, directory, handle, "imported") as importing:
                try:
                    seen, _ = importing.communicate(timeout=SECONDS)
                finally:
                    importing.kill()
            assert importing.returncode == 0
            exporting.stdin.write("\n")
            exporting.stdin.flush()
            assert exporting.stdout.readline() == "imported\n"
            assert exporting.wait(SECONDS) == 0
        finally:
            exporting.kill()
    first, importer_pid = seen.split()
    assert first == "exported"
    return int(exporter_pid), int(importer_pid)


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """Where all brokers listen."""
    with tempfile.TemporaryDirectory(prefix="zeipc-") as path:
        yield Path(path)


def test_two_containers(container: tuple[str, ...], shared_directory: Path) -> None:
    pids = share(container, container, shared_directory)
    # Each is the first process, or nearly so, of its own pid namespace.
    assert max(pids) < 50


def test_from_the_host_into_a_container(container: tuple[str, ...], shared_directory: Path) -> None:
    share((), container, shared_directory)


def test_from_a_container_to_the_host(container: tuple[str, ...], shared_directory: Path) -> None:
    share(container, (), shared_directory)


def test_dockers_filter(filtered: tuple[str, ...], shared_directory: Path) -> None:
    prefix = (*filtered, "docker")
    share(prefix, prefix, shared_directory)


def test_dockers_filter_stops_the_pidfd_way(
    filtered: tuple[str, ...], shared_directory: Path
) -> None:
    """So the filter is there, and the other way is named by its error."""
    with start((), shared_directory) as exporting:
        assert exporting.stdout is not None
        handle = exporting.stdout.readline().split()[0]
        command = (*filtered, "docker")
        with start(command, shared_directory, handle, "x", transport="pidfd") as importing:
            importing.communicate(timeout=SECONDS)
        assert importing.returncode != 0
        exporting.communicate("\n", timeout=SECONDS)


def test_nothing_asks_for_the_right_to_ptrace(
    filtered: tuple[str, ...], shared_directory: Path
) -> None:
    """Both sides would be killed: what Yama says (0 to 3) cannot matter."""
    prefix = (*filtered, "no-ptrace")
    share(prefix, prefix, shared_directory)


@pytest.mark.parametrize("name", ["ptrace", "pidfd_getfd"])
def test_the_filters_filter(filtered: tuple[str, ...], name: str) -> None:
    number = seccomp.PTRACE_LIKE[name]
    code = f"import ctypes; libc = ctypes.CDLL(None, use_errno=True); libc.syscall({number}, 0, 0);"
    code += "raise SystemExit(ctypes.get_errno())"

    def status(filter_name: str) -> int:
        command = [*filtered, filter_name, sys.executable, "-c", code]
        return subprocess.run(command, check=False, timeout=SECONDS).returncode

    assert status("docker") == errno.EPERM
    assert status("no-ptrace") == -31  # SIGSYS
