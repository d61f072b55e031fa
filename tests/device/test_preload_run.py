"""``mock_run.run``: a command's exit status, its signals, its root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ze_ipc import mock_run
from ze_ipc.errors import AccessDenied, InvalidArgument, KernelError, UnsupportedFeature

LIMIT = 60.0


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Runs outside a root make their directory here, and remove it."""
    base = tmp_path / "runs"
    base.mkdir()
    choose = mock_run._base
    monkeypatch.setattr(mock_run, "_base", lambda root: base if root is None else choose(root))
    yield
    assert list(base.iterdir()) == []


def test_directories_of_killed_runs_go(tmp_path: Path) -> None:
    base = tmp_path / "runs"
    long_ago = time.time() - 5000
    with mock_run.environment() as running:
        kept = Path(running["ZE_IPC_MOCK_ROOT"]).parent
        dead, new = base / "ze-ipc-run-dead", base / "ze-ipc-run-new"
        for directory in (dead, new):
            (directory / "tree").mkdir(parents=True)
        for directory in (dead, kept):
            os.utime(directory, (long_ago, long_ago))
        with mock_run.environment():
            assert set(base.iterdir()) >= {kept, new}
            assert not dead.exists()
    new.joinpath("tree").rmdir()
    new.rmdir()


def test_exit_status() -> None:
    assert mock_run.run(["sh", "-c", "exit 3"]) == 3
    assert mock_run.run(["sh", "-c", "kill -9 $$"]) == 128 + 9
    assert mock_run.run(["test", "-c", "/dev/dri/renderD128"]) == 0
    assert mock_run.run(["test", "-e", "/dev/dri/renderD129"]) == 1


def test_environment_is_passed_on() -> None:
    env = {"PATH": os.environ["PATH"], "A": "b"}
    command = ["sh", "-c", 'test "$A" = b && test "$ZE_IPC_MOCK_PROFILE" = lnl && test -z "$HOME"']
    assert mock_run.run(command, profile="lnl", env=env) == 0


def test_missing_things() -> None:
    with pytest.raises(InvalidArgument):
        mock_run.run([])
    with pytest.raises(InvalidArgument):
        mock_run.run(["/no/such/command"])
    with pytest.raises(InvalidArgument):
        mock_run.run(["true"], root="/no/such/root")
    with pytest.raises(KernelError) as failure:
        mock_run.run(["/etc/passwd"])
    assert failure.value.errno == 13


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mock_run, "LIBRARY", "libnone.so")
    with pytest.raises(UnsupportedFeature):
        mock_run.run(["true"])


def test_library_in_an_awkward_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "a b:c"
    place.mkdir()
    copy = Path(shutil.copy2(mock_run.library(), place))
    monkeypatch.setattr(mock_run, "library", lambda: copy)
    assert mock_run.run(["test", "-c", "/dev/dri/card0"]) == 0


def test_a_signal_while_the_command_starts_reaches_it() -> None:
    def popen() -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGUSR1)
        return subprocess.Popen(["sleep", "1000"])

    with mock_run._forwarding() as start:
        process = start(popen)
        try:
            assert process.wait(LIMIT) == -signal.SIGUSR1
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_reach_the_command(number: signal.Signals, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap 'exit 42' {number.name[3:]}; touch {ready}; while :; do sleep 0.05; done"
    code = (
        f"import sys; from ze_ipc import mock_run; sys.exit(mock_run.run(['sh', '-c', {script!r}]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=True,
        # A shell's background jobs ignore SIGINT, and hand that on.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + LIMIT
        while not ready.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(LIMIT) == 42
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def small_root(tmp_path: Path) -> Path:
    """A root with a shell and the libraries it needs, nothing else."""
    root = tmp_path / "root"
    for name in ("tmp", "proc", "dev/shm", "bin"):
        (root / name).mkdir(parents=True)
    programs = [shutil.which(name) for name in ("sh", "ls", "test", "cat", "stat")]
    wanted = {str(mock_run.library())}
    for program in filter(None, programs):
        shutil.copy2(program, root / "bin")
        wanted.add(program)
    for binary in wanted:
        listing = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
        for word in listing.split():
            if word.startswith("/"):
                target = root / word.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(word, target)
    return root


def test_in_a_root(small_root: Path) -> None:
    if os.geteuid() != 0:
        with pytest.raises(AccessDenied):
            mock_run.run(["sh", "-c", "exit 5"], root=small_root)
        return
    script = (
        "test -c /dev/dri/renderD129 && test ! -e /usr/share"
        " && ls /sys/class/drm/card1/device/vendor && stat -c %F /dev/dri/card0"
        " && test -d /proc/self && exit 5"
    )
    assert mock_run.run(["sh", "-c", script], devices=2, root=small_root) == 5
    with pytest.raises(InvalidArgument):
        mock_run.run(["no-such-command"], root=small_root)
    assert list((small_root / "tmp").iterdir()) == []
    assert not (small_root / "proc/self").exists()
