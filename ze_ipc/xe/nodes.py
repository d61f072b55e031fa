"""Finding the render nodes that the xe driver serves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.errors import DeviceNotVisible, ZeIpcError
from ze_ipc.xe.device import Device

_DRI = Path("/dev/dri")
_FIRST, _LAST = 128, 191
"""The numbers of render nodes, when /dev/dri cannot be listed."""
_MAJOR = 226


@dataclass(frozen=True, slots=True)
class RenderNode:
    """A render node of the xe driver."""

    path: str
    pci_address: str
    """``dddd:bb:dd.f``, or empty where the system does not say."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What the search saw: for the error, and for diagnosis."""

    path: str
    driver: str
    """The driver's name, or empty when the node could not be opened."""
    problem: str
    """Why it could not be used, or empty."""


def find_nodes() -> list[RenderNode]:
    """Every usable xe render node, by number; empty where there is none."""
    return [node for node, _ in _search() if node is not None]


def look() -> list[Looked]:
    """What is there, usable or not."""
    return [seen for _, seen in _search()]


def require_node() -> RenderNode:
    """The first usable xe render node, or an error that says what was looked at."""
    seen: list[Looked] = []
    for node, one in _search():
        if node is not None:
            return node
        seen.append(one)
    if not seen:
        raise DeviceNotVisible(
            f"there is no render node in {_DRI}",
            hint="give the container /dev/dri, or use the mock device",
        )
    raise DeviceNotVisible(
        "no render node is served by the xe driver: "
        + ", ".join(f"{one.path} ({one.problem})" for one in seen),
        hint="load the xe driver for the GPU and join the group render, or use the mock device",
    )


def _search() -> Iterator[tuple[RenderNode | None, Looked]]:
    for path, address in _candidates():
        try:
            driver = _driver_of(path)
        except ZeIpcError as error:
            yield None, Looked(path, "", error.cause)
            continue
        if driver == "xe":
            yield RenderNode(path, address or pci_address(path)), Looked(path, driver, "")
        else:
            yield None, Looked(path, driver, f"driver {driver}")


def _candidates() -> list[tuple[str, str]]:
    """(path, PCI address if the link's name has it), by number.

    Plain os calls: each is one libc function, which the mock's preload library stands in for.
    """
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(_DRI / "by-path"):  # noqa: PTH208
            if name.startswith("pci-") and name.endswith("-render"):
                target = os.path.realpath(_DRI / "by-path" / name)
                found[target] = name.removeprefix("pci-").removesuffix("-render")
    for number in range(_FIRST, _LAST + 1):
        path = str(_DRI / f"renderD{number}")
        if path not in found and os.path.exists(path):  # noqa: PTH110
            found[path] = ""
    return sorted(found.items(), key=lambda item: (len(item[0]), item[0]))


def _driver_of(path: str) -> str:
    device = Device(lib.xe_kernel_ops(), path)
    try:
        return driver_name(device)
    finally:
        device.close()


def driver_name(device: Device) -> str:
    """The name of the kernel driver behind an open node."""
    name = ffi.new("char[]", 32)
    arg = ffi.new("struct drm_version *", {"name_len": 31, "name": name})
    device.ioctl(lib.DRM_IOCTL_VERSION, arg, "DRM_IOCTL_VERSION")
    text: Any = ffi.string(name)
    return str(text.decode(errors="replace"))


def pci_address(path: str) -> str:
    """``dddd:bb:dd.f`` of a render node, or empty where the system does not say."""
    try:
        rdev = os.stat(path).st_rdev  # noqa: PTH116
        link = os.readlink(f"/sys/dev/char/{_MAJOR}:{os.minor(rdev)}")  # noqa: PTH115
    except OSError:
        return ""
    # .../0000:03:00.0/drm/renderD128
    parts = link.split("/")
    return parts[-3] if len(parts) >= 3 and parts[-2] == "drm" else ""


def is_mock_node(path: str) -> bool:
    """Whether a render node is the mock's: under libxe_mock.so its sysfs directory says so."""
    try:
        rdev = os.stat(path).st_rdev  # noqa: PTH116
    except OSError:
        return False
    return os.path.exists(f"/sys/dev/char/{_MAJOR}:{os.minor(rdev)}/device/ze_ipc_mock")  # noqa: PTH110
