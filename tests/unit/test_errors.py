"""Every error class: its code, its bases, its values, and the way through pickle."""

from __future__ import annotations

import copy
import errno
import pickle

import pytest

from ze_ipc import errors
from ze_ipc.errors import Result, ZeIpcError

CLASSES = sorted(
    (c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, ZeIpcError)),
    key=lambda c: c.__name__,
)

SPEC_CODES = {
    "AddressNotFound": 0x78000021,
    "InvalidSize": 0x78000008,
    "UnsupportedSize": 0x78000009,
    "InvalidNullPointer": 0x78000007,
    "InvalidArgument": 0x78000004,
    "UnsupportedFeature": 0x78000003,
    "OutOfDeviceMemory": 0x70000003,
    "OutOfHostMemory": 0x70000002,
    "DeviceLost": 0x70000001,
}


@pytest.mark.parametrize(("name", "code"), SPEC_CODES.items())
def test_errors_of_the_specification_carry_its_code(name: str, code: int) -> None:
    error = getattr(errors, name)("x")
    assert error.result is Result(code)
    assert int(error.result) == code


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("InvalidHandle", ValueError),
        ("AccessDenied", PermissionError),
        ("TransportDenied", PermissionError),
        ("OpenTimeout", TimeoutError),
        ("KernelError", OSError),
    ],
)
def test_errors_that_are_also_builtin_ones(name: str, base: type[Exception]) -> None:
    with pytest.raises(base) as caught:
        raise getattr(errors, name)("x")
    assert isinstance(caught.value, ZeIpcError)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_survives_pickle_and_copy(cls: type[ZeIpcError]) -> None:
    error = cls("why", call="f", hint="do", address=0x1000, object_index=3, size=7, dst=b"\1\2")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is cls
        assert str(again) == str(error)
        assert (again.call, again.hint, again.address, again.object_index) == ("f", "do", 0x1000, 3)
        assert again.values == error.values
        assert again.result is error.result
        assert again.args == error.args


@pytest.mark.parametrize("cls", CLASSES)
def test_the_message_says_call_values_cause_and_hint(cls: type[ZeIpcError]) -> None:
    text = str(cls("why", call="a_call", hint="do this", address=0xABC000, size=77))
    for part in ("why", "a_call", "do this", "0xabc000", "77"):
        assert part in text


def test_kernel_error_is_an_os_error_with_the_ioctl() -> None:
    error = errors.KernelError(call="DRM_IOCTL_XE_VM_BIND", errno=-errno.ENOBUFS, object_index=2)
    again = pickle.loads(pickle.dumps(error))
    for e in (error, again):
        assert e.errno == errno.ENOBUFS
        assert e.call == "DRM_IOCTL_XE_VM_BIND"
        assert e.object_index == 2
        assert "ENOBUFS" in str(e)


def test_default_errnos() -> None:
    assert errors.AccessDenied().errno == errno.EACCES
    assert errors.TransportDenied().errno == errno.EPERM
    assert errors.OpenTimeout().errno == errno.ETIMEDOUT


def test_fd_limit_says_what_it_needs() -> None:
    error = pickle.loads(pickle.dumps(errors.FdLimit(need=300, soft=256, hard=256)))
    assert (error.need, error.soft, error.hard) == (300, 256, 256)


def test_an_unknown_result_is_unknown_and_keeps_its_number() -> None:
    error = errors.error_of_result(0x7FF00003, call="zeMemOpenIpcHandle")
    assert type(error) is errors.DriverError
    assert error.result is Result.UNKNOWN
    assert error.values["code"] == 0x7FF00003


@pytest.mark.parametrize(("code", "cls"), errors.CLASS_OF_RESULT.items())
def test_results_have_their_class(code: Result, cls: type[ZeIpcError]) -> None:
    error = errors.error_of_result(int(code), "cause", call="zeX", address=5)
    assert type(error) is cls
    assert error.result is code
    assert error.address == 5


def test_a_hole_has_both_ends() -> None:
    error = errors.AddressNotFound("hole", address=0x1000, end=0x3000)
    assert (error.address, error.end) == (0x1000, 0x3000)
    assert errors.AddressNotFound("x").end is None
