"""Runs any program with the mock device as its GPU, through the preload library.

Everything a run needs lives in one directory that is removed at its end. In a chroot that directory
is below the root's /tmp, so that the library and the tree are visible there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from ze_ipc import mock_chroot
from ze_ipc.errors import AccessDenied, InvalidArgument, KernelError, UnsupportedFeature
from ze_ipc.mock_tree import MAX_DEVICES, PLATFORMS, build_tree

LIBRARY = "libxe_mock.so"
_PREFIX = "ze-ipc-run-"
_STALE_SECONDS = 3600
"""A directory that is younger is left alone: it may not have been locked yet by who made it."""
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


def library() -> Path:
    """The preload library, installed beside the ``_mock`` extension module."""
    spec = importlib.util.find_spec("ze_ipc._mock")
    path = Path(spec.origin).with_name(LIBRARY) if spec and spec.origin else Path(LIBRARY)
    if not path.is_file():
        raise UnsupportedFeature(
            f"{LIBRARY} is not built",
            hint="install ze_ipc from a wheel, or build it: pip install .",
            path=str(path),
        )
    return path


def prepare(
    directory: Path,
    devices: int = 1,
    profile: str = "bmg",
    vram: int | None = None,
    root: str | os.PathLike[str] | None = None,
) -> dict[str, str]:
    """Fill an empty directory with a tree; the variables that give a program its mock GPUs.

    They hold as long as the directory does, which stays the caller's. ``vram`` is bytes a device
    (None: the profile's). With ``root`` the directory must be below it; the paths are those seen
    after a chroot to it.
    """
    if profile not in PLATFORMS:
        known = f"one of {', '.join(PLATFORMS)}"
        raise InvalidArgument("unknown profile", profile=profile, hint=known)
    if not 1 <= devices <= MAX_DEVICES:
        raise InvalidArgument("devices out of range", devices=devices, hint=f"1 to {MAX_DEVICES}")
    preload = library()
    top = Path("/") if root is None else Path(root).resolve()
    # Spaces and colons separate the names in LD_PRELOAD; nothing escapes them.
    if root is not None or {" ", ":"} & set(str(preload)):
        preload = Path(shutil.copy2(preload, directory / LIBRARY))
    tree = directory / "tree"
    tree.mkdir()
    build_tree(tree, PLATFORMS[profile], devices, vram)
    variables = {
        "LD_PRELOAD": _seen_from(top, preload),
        "ZE_IPC_MOCK_ROOT": _seen_from(top, tree),
        "ZE_IPC_MOCK_PROFILE": profile,
    }
    if vram is not None:
        variables["ZE_IPC_MOCK_VRAM"] = str(vram)
    if root is None and (before := os.environ.get("LD_PRELOAD")):
        variables["LD_PRELOAD"] += f":{before}"
    return variables


@contextlib.contextmanager
def environment(
    devices: int = 1,
    profile: str = "bmg",
    vram: int | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Iterator[dict[str, str]]:
    """What prepare() gives, in a directory that is removed at the end of the with block."""
    base = _base(root)
    _sweep(base)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory.chmod(0o755)  # programs that drop their privileges still need it
        yield prepare(directory, devices, profile, vram, root)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def run(
    command: Sequence[str],
    devices: int = 1,
    profile: str = "bmg",
    vram: int | None = None,
    root: str | os.PathLike[str] | None = None,
    env: dict[str, str] | None = None,
) -> int:
    """Run ``command`` with the mock as its GPU; its exit status, or 128 + N if signal N killed it.

    With ``root`` (needs CAP_SYS_CHROOT) it runs there, with /proc and a /dev/shm of its own where
    the root has none. ``env`` replaces os.environ as what the variables are added to. Signals sent
    to this process reach the command.
    """
    if not command:
        raise InvalidArgument("no command to run")
    if root is not None and not Path(root).is_dir():
        raise InvalidArgument(
            "the root is not a directory", root=os.fspath(root), hint="make it with debootstrap"
        )
    with environment(devices, profile, vram, root) as variables:
        variables = {**(os.environ if env is None else env), **variables}
        if root is None:
            return _run_here(list(command), variables)
        return _run_in_root(list(command), variables, os.fspath(root))


def _sweep(base: Path) -> None:
    """Remove what runs left behind that were killed: nobody holds the lock any more."""
    for directory in base.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            facts = os.fstat(lock)
            if facts.st_uid == os.geteuid() and time.time() - facts.st_mtime > _STALE_SECONDS:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _base(root: str | os.PathLike[str] | None) -> Path:
    """Where a run's directory goes: a memory file system, but the root's /tmp for a chroot."""
    if root is not None:
        base = Path(root).resolve() / "tmp"
        if not base.is_dir():
            raise InvalidArgument("the root has no /tmp", root=str(root), hint="mkdir ROOT/tmp")
        return base
    shm = Path("/dev/shm")
    return shm if os.access(shm, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def _seen_from(top: Path, path: Path) -> str:
    return "/" + str(path.relative_to(top))


def _run_here(command: list[str], variables: dict[str, str]) -> int:
    with _forwarding() as start:
        try:
            process = start(lambda: subprocess.Popen(command, env=variables))
        except OSError as error:
            raise _start_failure(error.errno or 0, command) from error
        return _status(process.wait())


def _run_in_root(command: list[str], variables: dict[str, str], root: str) -> int:
    """A helper process enters the root; what it could not do comes back through a pipe."""
    reading, writing = os.pipe()
    plan = {"root": root, "command": command, "environment": variables}
    with (
        open(reading, "rb") as report,  # noqa: PTH123
        tempfile.TemporaryFile() as file,
        _forwarding() as start,
    ):
        try:
            file.write(json.dumps(plan).encode())
            file.seek(0)
            descriptors = (file.fileno(), writing)
            # It runs without the variables: until the chroot, its paths are those of this side.
            helper = [sys.executable, "-I", "-S", mock_chroot.__file__, *map(str, descriptors)]
            process = start(lambda: subprocess.Popen(helper, pass_fds=descriptors))
        finally:
            os.close(writing)
        failure = report.read()
        status = _status(process.wait())
    if not failure:
        return status
    stage, number = json.loads(failure)
    if stage == "exec":
        raise _start_failure(number, command)
    if number == errno.EPERM:
        raise AccessDenied(
            "no permission for a chroot", call=stage, errno=number, hint="run it as root", root=root
        )
    raise KernelError("cannot enter the root", call=stage, errno=number, root=root)


def _start_failure(number: int, command: list[str]) -> Exception:
    if number == errno.ENOENT:
        return InvalidArgument(
            "no such command", command=command[0], hint="check its spelling and PATH"
        )
    return KernelError("cannot start the command", call="execve", errno=number, command=command[0])


def _status(code: int) -> int:
    return 128 - code if code < 0 else code


_Process = subprocess.Popen[bytes]


@contextlib.contextmanager
def _forwarding() -> Iterator[Callable[[Callable[[], _Process]], _Process]]:
    """Gives what starts the command. Signals are handed on to it, also those that come while it is
    being started; a terminal sends its own to both, then only survive them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda popen: popen()
        return
    started: list[_Process] = []
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if number in _TERMINAL and _in_foreground():
            return
        if started:
            started[0].send_signal(number)
        else:
            early.append(number)

    def start(popen: Callable[[], _Process]) -> _Process:
        started.append(popen())
        for number in early:
            started[0].send_signal(number)
        return started[0]

    before = {number: signal.signal(number, forward) for number in (*_FORWARDED, *_TERMINAL)}
    try:
        yield start
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
