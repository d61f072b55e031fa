"""pidfd_getfd forbidden: the error says by what, and the broker's own way works all the same."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
import time

import pytest

from helpers.broker_child import TESTS
from helpers.broker_fakes import FakeExport
from ze_ipc import host, security, transport_pidfd
from ze_ipc.broker import Broker
from ze_ipc.errors import (
    ExporterGone,
    InvalidArgument,
    KernelError,
    OutOfHostMemory,
    TransportDenied,
    UnsupportedFeature,
    ZeIpcError,
)
from ze_ipc.transport import connect

CODE = """
import ctypes, errno, struct, sys, time
from helpers.broker_fakes import open_range
from ze_ipc.errors import TransportDenied
from ze_ipc.handle import HandleFields

def forbid(number, code):
    # if (nr == number) return ERRNO(code); return ALLOW
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | code),
             (0x06, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, header, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER

handle = HandleFields.unpack(bytes.fromhex(sys.argv[1]))
forbid(int(sys.argv[2]), int(sys.argv[3]))
try:
    open_range(handle, transport="pidfd")
except TransportDenied as error:
    print(error.errno, error.values["syscall"], error.values["seccomp"], bool(error.hint))
print(len(open_range(handle, transport="broker")[1]))
"""

PIDFD_OPEN, PIDFD_GETFD = 434, 438


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
@pytest.mark.parametrize(
    ("number", "name"), [(PIDFD_OPEN, "pidfd_open"), (PIDFD_GETFD, "pidfd_getfd")]
)
def test_by_seccomp(number: int, name: str, code: int) -> None:
    with Broker() as broker:
        handle = broker.handle_fields(*broker.register(FakeExport(3)))
        child = subprocess.run(
            [sys.executable, "-c", CODE, handle.pack().hex(), str(number), str(code)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))
                ),
            },
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    assert child.stdout.split("\n")[:2] == [f"{code} {name} 2 True", "3"]


@pytest.mark.parametrize(
    ("code", "seccomp", "yama", "cls"),
    [
        (errno.EPERM, 0, 1, TransportDenied),
        (errno.EPERM, 0, 2, TransportDenied),
        (errno.EPERM, 0, None, TransportDenied),
        (errno.EACCES, 2, 0, TransportDenied),
        (errno.ENOSYS, 2, None, TransportDenied),
        (errno.ENOSYS, 0, None, UnsupportedFeature),
        (errno.ESRCH, 0, None, ExporterGone),
        (errno.EBADF, 0, None, ExporterGone),
        (errno.ENOMEM, 0, None, OutOfHostMemory),
        (errno.EIO, 0, None, KernelError),
    ],
)
def test_error_of_the_syscall(
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    seccomp: int,
    yama: int | None,
    cls: type[ZeIpcError],
) -> None:
    def fail(pidfd: int, number: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(transport_pidfd, "pidfd_getfd", fail)
    monkeypatch.setattr(transport_pidfd, "seccomp_mode", lambda: seccomp)
    monkeypatch.setattr(transport_pidfd, "yama_scope", lambda: yama)
    with Broker() as broker:
        handle = broker.handle_fields(*broker.register(FakeExport()))
        with pytest.raises(cls) as caught:
            connect(handle, time.monotonic() + 5, transport="pidfd")
    error = caught.value
    assert type(error) is cls
    if isinstance(error, TransportDenied):
        assert error.errno == code
        assert error.hint
        assert (error.values["seccomp"], error.values["yama"]) == (
            seccomp,
            "none" if yama is None else yama,
        )


@pytest.mark.parametrize(
    ("code", "seccomp", "yama", "found"),
    [
        (0, 0, None, None),
        (0, 2, 0, None),
        (0, 0, 1, "yama 1"),
        (errno.EPERM, 2, 1, "seccomp"),
        (errno.ENOSYS, 0, None, "kernel"),
    ],
)
def test_obstacle(
    monkeypatch: pytest.MonkeyPatch, code: int, seccomp: int, yama: int | None, found: str | None
) -> None:
    def fail(pidfd: int, number: int) -> int:
        raise OSError(code, os.strerror(code))

    if code:
        monkeypatch.setattr(transport_pidfd, "pidfd_getfd", fail)
    monkeypatch.setattr(transport_pidfd, "seccomp_mode", lambda: seccomp)
    monkeypatch.setattr(transport_pidfd, "yama_scope", lambda: yama)
    assert transport_pidfd.obstacle() == found


def test_wrong_fd_is_not_taken_for_the_doorbell() -> None:
    """The pid of a handle may be another process by now, the number another file."""
    with Broker() as broker, Broker() as other:
        handle = broker.handle_fields(*broker.register(FakeExport()))
        assert handle.doorbell is not None
        for number in (0, other.address.doorbell, broker._listener._listening.fileno(), 10**6):
            wrong = dataclasses.replace(handle, doorbell=number)
            with pytest.raises(ExporterGone):
                connect(wrong, time.monotonic() + 5, transport="pidfd")
        with pytest.raises(UnsupportedFeature):
            connect(
                dataclasses.replace(handle, doorbell=None), time.monotonic() + 5, transport="pidfd"
            )


@pytest.fixture
def prctl(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Yama 1, and the processes that were permitted one after another."""
    calls: list[int] = []
    monkeypatch.setattr(security, "yama_scope", lambda: 1)
    monkeypatch.setattr(security, "_set_ptracer", calls.append)
    return calls


def test_allow_ptracer_restores(prctl: list[int]) -> None:
    with security.allow_ptracer(10):
        with (
            security.allow_ptracer(security.ANY_PTRACER),
            pytest.raises(KeyError),
            security.allow_ptracer(10),
        ):
            raise KeyError
        assert prctl == [10, -1, 10, -1, 10]
    assert prctl[-1] == 0


@pytest.mark.parametrize("pid", [0, -2])
def test_allow_ptracer_of_nobody(prctl: list[int], pid: int) -> None:
    with pytest.raises(InvalidArgument), security.allow_ptracer(pid):
        pytest.fail("permitted")
    assert prctl == []


def test_allow_ptracer_that_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "yama_scope", lambda: 1)
    monkeypatch.setattr(security, "_PR_SET_PTRACER", 0x7FFFFFFF)
    with pytest.raises(KernelError), security.allow_ptracer(os.getpid()):
        pytest.fail("permitted")
    assert security._granted == []


def test_allow_ptracer_on_this_machine() -> None:
    """With Yama the kernel takes it, without it there is nothing to do; either way it passes."""
    with security.allow_ptracer(os.getpid()):
        assert security._granted == ([os.getpid()] if host.yama_scope() is not None else [])
    assert security._granted == []
