"""Names, uuids, errors and command tables that need no device."""

import errno
import resource
from pathlib import Path

import pytest

from ze_ipc._xe import lib
from ze_ipc.errors import (
    DeviceLost,
    DeviceNotVisible,
    FdLimit,
    KernelError,
    OpenTimeout,
    OutOfDeviceMemory,
    OutOfHostMemory,
    PeerAccessError,
    UnsupportedFeature,
    ZeIpcError,
)
from ze_ipc.xe import nodes, open_backend
from ze_ipc.xe.backend import device_uuid
from ze_ipc.xe.copy import commands_of
from ze_ipc.xe.errors import kernel_error
from ze_ipc.xe.names import device_name
from ze_ipc.xe.query import Facts, MemoryRegion

SYSTEM = MemoryRegion(False, 0, 4096, 16 << 30, 0)
VRAM = MemoryRegion(True, 1, 4096, 8 << 30, 8 << 30)


def facts(*regions: MemoryRegion) -> Facts:
    return Facts(0xE20B, 0, 48, 4096, regions, (), ())


def test_uuid_is_what_level_zero_derives_from_pci() -> None:
    uuid = device_uuid(0xE20B, 0x0004, "0001:03:1f.7")
    assert uuid.hex() == "8680" + "0be2" + "0400" + "0100" + "03" + "1f" + "07" + "00000000" + "00"


def test_uuid_without_an_address_still_has_sixteen_bytes() -> None:
    assert len(device_uuid(0x64A0, 0, "")) == 16


def test_unknown_devices_are_named_by_their_id() -> None:
    assert device_name(0xE20B) == "Intel Arc B580 Graphics"
    assert device_name(0x1234) == "Intel GPU 8086:1234"


@pytest.mark.parametrize(
    ("number", "on_device", "index", "cls"),
    [
        (errno.ENOMEM, True, None, OutOfDeviceMemory),
        (errno.ENOSPC, True, 3, OutOfDeviceMemory),
        (errno.ENOMEM, False, None, OutOfHostMemory),
        (errno.EMFILE, False, 7, FdLimit),
        (errno.ENFILE, False, None, FdLimit),
        (errno.ECANCELED, False, None, DeviceLost),
        (errno.EIO, True, None, DeviceLost),
        (errno.ENODEV, False, None, DeviceLost),
        (errno.ETIME, False, None, OpenTimeout),
        (errno.EOPNOTSUPP, False, 2, PeerAccessError),
        (errno.EOPNOTSUPP, False, None, KernelError),
        (errno.EINVAL, False, 2, KernelError),
    ],
)
def test_one_class_a_cause(
    number: int, on_device: bool, index: int | None, cls: type[ZeIpcError]
) -> None:
    error = kernel_error(-number, "DRM_IOCTL_XE_VM_BIND", on_device=on_device, object_index=index)
    assert type(error) is cls
    assert error.call == "DRM_IOCTL_XE_VM_BIND"
    assert error.object_index == index
    if isinstance(error, KernelError):
        assert error.errno == number


def test_fd_limit_says_what_the_limits_are() -> None:
    error = kernel_error(-errno.EMFILE, "DRM_IOCTL_PRIME_HANDLE_TO_FD")
    assert isinstance(error, FdLimit)
    assert (error.soft, error.hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
    assert error.need >= 1


@pytest.mark.parametrize(
    ("graphics", "kind"),
    [
        ((20, 1), lib.XE_BLIT_MEM),
        ((30, 0), lib.XE_BLIT_MEM),
        ((12, 60), lib.XE_BLIT_MEM),
        ((12, 71), lib.XE_BLIT_XY),
        ((12, 55), lib.XE_BLIT_XY),
        ((12, 0), lib.XE_BLIT_XY),
    ],
)
def test_copy_commands_by_platform(graphics: tuple[int, int], kind: int) -> None:
    commands = commands_of(facts(SYSTEM, VRAM), graphics)
    assert commands.kind == kind
    assert not commands.integrated
    assert commands_of(facts(SYSTEM), graphics).integrated


def test_facts_find_their_memory() -> None:
    assert facts(SYSTEM, VRAM).vram is VRAM
    assert facts(SYSTEM).vram is None
    assert facts(SYSTEM, VRAM).system is SYSTEM
    assert (SYSTEM.placement, VRAM.placement) == (1, 2)


def test_a_node_that_is_not_there_is_not_visible() -> None:
    with pytest.raises(DeviceNotVisible):
        open_backend("/dev/dri/renderD191-not-there")


def test_a_node_that_is_no_drm_device_is_refused() -> None:
    with pytest.raises((KernelError, UnsupportedFeature)):
        open_backend("/dev/null")


def test_a_search_that_finds_nothing_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_DRI", tmp_path)
    assert nodes.find_nodes() == []
    with pytest.raises(DeviceNotVisible):
        open_backend()


def test_the_search_says_what_it_looked_at_and_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "by-path").mkdir()
    (tmp_path / "renderD128").touch()
    (tmp_path / "renderD130").touch()
    link = tmp_path / "by-path/pci-0000:03:00.0-render"
    link.symlink_to("../renderD130")
    monkeypatch.setattr(nodes, "_DRI", tmp_path)
    seen = nodes.look()
    assert [one.path[-3:] for one in seen] == ["128", "130"]
    assert all(one.problem for one in seen)
    with pytest.raises(DeviceNotVisible, match="renderD130"):
        open_backend()
