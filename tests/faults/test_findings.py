"""What the campaign has found and what was mended: these cases run every time."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.campaign import Campaign, Case, plan
from faults.scenes import Scene
from faults.table import name_of
from ze_ipc import fds, threads
from ze_ipc.broker import Broker
from ze_ipc.errors import KernelError, OutOfHostMemory
from ze_ipc.os_errors import error_of_os

FOUND = [
    # (side, transport, call, errno): every occurrence of the call.
    ("exporter", "broker", "unlinkat", errno.EROFS),  # close() went no further
    ("exporter", "broker", "epoll_ctl(1)", errno.ENOSPC),  # served and recorded by nobody
    ("exporter", "broker", "epoll_ctl(2)", errno.ENOMEM),  # a bare OSError out of close()
    ("exporter", "broker", "accept4", errno.EPERM),
    ("exporter", "broker", "write(2)", errno.EINTR),  # a close() that left the thread
    ("exporter", "broker", "read(2)", errno.EAGAIN),
    ("exporter", "broker", "clone3", errno.EAGAIN),  # the desk kept its device open
    ("exporter", "broker", "mmap", errno.EAGAIN),  # start() waited for ever
    ("exporter", "pidfd", "recvmsg", errno.ENOMEM),
    ("exporter", "pidfd", "getsockopt(17)", errno.ENOBUFS),
    ("importer", "pidfd", "getsockname", errno.ENOBUFS),  # a bare OSError
    ("importer", "broker", "newfstatat", errno.EIO),
    ("importer", "broker", "close", errno.EINTR),
    ("importer", "broker", "poll", errno.ENOMEM),  # an error without a hint
]


@pytest.mark.timeout(300)
def test_what_was_found_stays_mended() -> None:
    with Campaign(workers=2) as running:
        cases: list[Case] = []
        for side, transport in [
            (s, t) for s in ("exporter", "importer") for t in ("broker", "pidfd")
        ]:
            scene = Scene(side, transport, 3)  # type: ignore[arg-type]
            wanted = {found[2:] for found in FOUND if found[:2] == (side, transport)}
            cases += [
                case
                for case in plan(scene, running.trace(scene), every=True)
                if (name_of(case.plan.call), case.plan.error) in wanted
            ]
        assert len(cases) > len(FOUND)
        result = running.run(cases)
    assert result.wrong == []
    assert result.total > len(cases) / 2


def test_errors_of_system_calls_say_what_helps() -> None:
    for number in errno.errorcode:
        assert KernelError(errno=number).hint
        assert error_of_os(OSError(number, ""), "call").hint
    assert KernelError(errno=errno.EIO, hint="this").hint == "this"
    assert isinstance(error_of_os(OSError(errno.ENOMEM, ""), "call"), OutOfHostMemory)


def test_a_descriptor_is_closed_whatever_close_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    number = os.open("/dev/null", os.O_RDONLY)
    real = os.close

    def close(fd: int) -> None:
        real(fd)
        raise InterruptedError(errno.EINTR, "")

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", close)
        fds.Fd(number).close()
    assert not Path(f"/proc/self/fd/{number}").is_symlink()
    with pytest.raises(OSError, match="Bad file descriptor"):
        fds.close_fd(number)


def test_a_broker_that_cannot_remove_its_socket_closes_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dir").mkdir(mode=0o700)
    broker = Broker(directory=tmp_path / "dir")

    def unlink(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "")

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", unlink)
        broker.close()
    (left,) = (tmp_path / "dir").iterdir()
    with Broker(directory=tmp_path / "dir"):
        assert not left.exists()


def test_a_thread_that_never_begins_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "START_SECONDS", 0.05)
    ran: list[int] = []
    late: list[Callable[[], object]] = []

    def never(function: Callable[[], object], *_: object, **__: object) -> int:
        late.append(function)
        return 0

    name = next(n for n in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, n))
    thread = threads.DaemonThread(lambda: ran.append(1), "late")
    with monkeypatch.context() as patched:
        patched.setattr(threading, name, never)
        with pytest.raises(RuntimeError, match="new thread"):
            thread.start()
    assert thread not in threading.enumerate()
    # It comes after all: what it was to use has gone.
    thread.run()
    assert (ran, len(late)) == ([], 1)


def test_a_thread_that_begins_runs() -> None:
    ran = threading.Event()
    thread = threads.DaemonThread(ran.set, "prompt")
    thread.start()
    thread.join(30)
    assert ran.is_set()
