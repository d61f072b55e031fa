"""Choosing a device: a real GPU where there is one, else the mock, never silently."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Literal

from ze_ipc import level_zero, xe
from ze_ipc.device import Device
from ze_ipc.errors import DeviceNotVisible, InvalidArgument, ZeIpcError
from ze_ipc.xe.nodes import find_nodes, require_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from ze_ipc.backend import Backend, DeviceInfo

MAX_DEVICES = 64
"""Render nodes a kernel numbers."""

log = logging.getLogger("ze_ipc")

BackendName = Literal["level_zero", "xe", "mock"]
Selector = int | str | bytes
"""A device by its place in the list, its PCI address (``dddd:bb:dd.f``), its render node or its
16-byte UUID.
"""


def open_device(backend: BackendName | None = None, device: Selector = 0) -> Device:
    """Open a GPU.

    ``backend`` "level_zero", "xe" or "mock" insists on one; None takes ``ZE_IPC_BACKEND``, and
    without it a real GPU
    if there is one, else the mock, which is logged at WARNING. ``device`` says which. What was
    chosen is visible in
    ``backend`` and ``is_mock`` of the result. Raises DeviceNotVisible when there is no such device.
    """
    if path := os.environ.get("ZE_IPC_TRACE"):
        from ze_ipc import trace

        trace.start(path)
        return trace.opened(_open(backend, device))
    return _open(backend, device)


def _open(backend: BackendName | None, device: Selector) -> Device:
    wanted = backend or os.environ.get("ZE_IPC_BACKEND") or "auto"
    if wanted == "auto":
        return Device(_first_that_opens(device))
    opener = OPENERS.get(wanted)
    if opener is None:
        raise InvalidArgument(
            f"there is no backend {wanted!r}",
            call="open_device",
            hint="pass "
            + ", ".join(repr(name) for name in OPENERS)
            + ' or None (ZE_IPC_BACKEND: also "auto")',
        )
    chosen = opener(device)
    log.info("opened %s through %s", chosen.info.render_node, chosen.name)
    return Device(chosen)


def _open_xe(device: Selector) -> Backend:
    if isinstance(device, str) and device.startswith("/"):
        return xe.open_backend(device)
    nodes = find_nodes() or [require_node()]
    if isinstance(device, int) and 0 <= device < len(nodes):
        return xe.open_backend(nodes[device])
    for node in nodes:
        if device == node.pci_address:
            return xe.open_backend(node)
        if isinstance(device, bytes):
            opened = xe.open_backend(node)
            if opened.info.uuid == device:
                return opened
            opened.close()
    raise DeviceNotVisible(
        f"there is no device {device!r}",
        call="open_device",
        hint="choose one of those that ze-ipc devices lists",
        visible=", ".join(f"{node.path} ({node.pci_address})" for node in nodes),
    )


def _open_mock(device: Selector) -> Backend:
    return xe.open_mock(_mock_index(device))


def _mock_index(device: Selector) -> int:
    if isinstance(device, int):
        return device
    raise InvalidArgument(
        "a mock device is chosen by its number",
        call="open_device",
        hint="pass device=0, 1, ...",
        device=device,
    )


def _open_level_zero(device: Selector) -> Backend:
    return level_zero.open_backend(device)


OPENERS: dict[str, Callable[[Selector], Backend]] = {
    "xe": _open_xe,
    "level_zero": _open_level_zero,
    "mock": _open_mock,
}
"""One row a backend; None of open_device tries the real ones in this order: xe first, for it has
none of the restrictions of a driver that lacks the range extension.
"""


def _first_that_opens(device: Selector) -> Backend:
    reasons = []
    for name, opener in OPENERS.items():
        if name == "mock":
            continue
        try:
            chosen = opener(device)
        except ZeIpcError as error:
            reasons.append(f"{name}: {error}")
            continue
        log.info("opened %s through %s", chosen.info.render_node, name)
        return chosen
    log.warning("no Intel GPU can be opened (%s); using the mock device", "; ".join(reasons))
    return _open_mock(device)


def list_devices(backend: BackendName | None = None) -> list[tuple[str, DeviceInfo | ZeIpcError]]:
    """(backend, what was found or why nothing was) for every device of the backends, the mock's
    first one included.
    """
    found: list[tuple[str, DeviceInfo | ZeIpcError]] = []
    for name, opener in OPENERS.items():
        if backend not in (None, name):
            continue
        try:
            for index in range(MAX_DEVICES if name != "mock" else 1):
                chosen = opener(index)
                found.append((name, chosen.info))
                chosen.close()
        except ZeIpcError as error:
            if not any(known == name for known, _ in found):
                found.append((name, error))
    return found
