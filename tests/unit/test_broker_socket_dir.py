"""Which directory it is, which are refused, and what a clean-up may remove."""

from __future__ import annotations

import os
import secrets
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ze_ipc.errors import AccessDenied, KernelError
from ze_ipc.socket_dir import SocketDir, candidate_dirs, exporter_dir, socket_name

FALLBACK = Path(f"/tmp/ze_ipc-{os.geteuid()}")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[SocketDir]:
    with SocketDir(tmp_path / "sockets", create=True) as directory:
        yield directory


def test_configured_directory_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("ZE_IPC_DIR", "/somewhere/else")
    assert candidate_dirs() == [Path("/somewhere/else")]


def test_runtime_directory_then_tmp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ZE_IPC_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert candidate_dirs() == [tmp_path / "ze_ipc", FALLBACK]
    with exporter_dir() as directory:
        assert directory.path == tmp_path / "ze_ipc"


@pytest.mark.parametrize("runtime", ["", "/nowhere", "/proc/self/exe"])
def test_useless_runtime_directory(monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    monkeypatch.setenv("ZE_IPC_DIR", "")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    assert candidate_dirs() == [FALLBACK]


def test_runtime_directory_of_somebody_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ZE_IPC_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert str(tmp_path / "ze_ipc") not in map(str, candidate_dirs())


def test_made_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        SocketDir(tmp_path / "new", create=True).close()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_not_made_for_an_importer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SocketDir(tmp_path / "new", create=False)
    assert not (tmp_path / "new").exists()


def test_parent_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(KernelError):
        SocketDir(tmp_path / "no" / "parent", create=True)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o720])
def test_writable_by_others(tmp_path: Path, mode: int, create: bool) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(AccessDenied) as caught:
        SocketDir(tmp_path, create=create)
    assert caught.value.hint
    tmp_path.chmod(mode | stat.S_ISVTX)
    SocketDir(tmp_path, create=create).close()


@pytest.mark.parametrize("create", [False, True])
def test_of_another_owner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, create: bool) -> None:
    real = os.fstat

    def fstat(number: int) -> os.stat_result:
        values = list(real(number))
        values[stat.ST_UID] = os.geteuid() + 4242
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(AccessDenied):
        SocketDir(tmp_path, create=create)


@pytest.mark.parametrize("create", [False, True])
def test_symbolic_link_or_file(tmp_path: Path, create: bool) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").touch()
    for name in ("link", "dangling", "file"):
        with pytest.raises(AccessDenied):
            SocketDir(tmp_path / name, create=create)
    assert not (tmp_path / "nowhere").exists()


def test_long_path_and_moved_directory(tmp_path: Path) -> None:
    path = tmp_path.joinpath("d" * 200)
    with SocketDir(path, create=True) as directory:
        path.rename(tmp_path / "moved")
        with directory.listen(bytes(8), mode=0o600, backlog=1):
            assert (tmp_path / "moved" / socket_name(bytes(8))).is_socket()
        directory.unlink(socket_name(bytes(8)))


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_mode_of_the_socket(directory: SocketDir, mode: int) -> None:
    old = os.umask(0)
    try:
        directory.listen(bytes(8), mode=mode, backlog=1).close()
    finally:
        os.umask(old)
    path = directory.path / socket_name(bytes(8))
    assert stat.S_IMODE(path.stat().st_mode) == mode
    directory.set_mode(path.name, 0o640)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in directory.path.iterdir()] == [path.name]


def test_name_that_is_taken(directory: SocketDir) -> None:
    (directory.path / f".{bytes(8).hex()}.new").touch()
    with pytest.raises(KernelError):
        directory.listen(bytes(8), mode=0o600, backlog=1)


def test_directory_that_is_gone(directory: SocketDir) -> None:
    directory.path.rmdir()
    with pytest.raises(KernelError):
        directory.listen(bytes(8), mode=0o600, backlog=1)
    assert directory.remove_stale() == 0


def test_clean_up(directory: SocketDir) -> None:
    dead, alive, unborn, long_dead, listening = (secrets.token_bytes(8) for _ in range(5))
    path = directory.path
    directory.listen(dead, mode=0o600, backlog=1).close()
    (path / "0123456789abcdef.sock").touch()
    (path / "fedcba9876543210.sock").symlink_to(socket_name(dead))
    directory.listen(bytes(8), mode=0o600, backlog=1).close()
    (path / socket_name(bytes(8))).rename(path / "another's.sock")
    with (
        directory.listen(alive, mode=0o600, backlog=0),
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as starting,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as crashed,
    ):
        starting.bind(directory.address(f".{unborn.hex()}.new"))
        crashed.bind(directory.address(f".{long_dead.hex()}.new"))
        os.utime(path / f".{long_dead.hex()}.new", (0, 0))
        before = {entry.name for entry in path.iterdir()}
        assert directory.remove_stale() == 2
        removed = before - {entry.name for entry in path.iterdir()}
        assert removed == {socket_name(dead), f".{long_dead.hex()}.new"}
        # Its backlog is full now: that is busy, not dead.
        assert directory.remove_stale() == 0
    assert listening


def test_clean_up_leaves_what_is_of_others(
    directory: SocketDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.listen(bytes(8), mode=0o600, backlog=1).close()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: directory.path.stat().st_uid + 1)
        assert directory.remove_stale() == 0
    assert directory.remove_stale() == 1


def test_close_is_idempotent(tmp_path: Path) -> None:
    directory = SocketDir(tmp_path, create=False)
    directory.close()
    directory.close()
    assert directory.closed
    assert repr(directory)
