"""Opening a device: a render node of the kernel's xe driver, or the mock device in this process."""

from __future__ import annotations

from ze_ipc._xe import ffi, lib
from ze_ipc.errors import InvalidArgument, UnsupportedFeature
from ze_ipc.xe.backend import XeBackend
from ze_ipc.xe.device import Device
from ze_ipc.xe.errors import kernel_error
from ze_ipc.xe.nodes import RenderNode, driver_name, is_mock_node, pci_address, require_node
from ze_ipc.xe.query import Facts, query


def open_backend(node: RenderNode | str | None = None) -> XeBackend:
    """Open a render node (or its path); None: the first that the xe driver serves."""
    if node is None:
        node = require_node()
    path = node if isinstance(node, str) else node.path
    device = Device(lib.xe_kernel_ops(), path)
    try:
        driver = driver_name(device)
        if driver != "xe":
            raise UnsupportedFeature(
                f"{path} is served by the driver {driver!r}, not by xe",
                hint="bind the GPU to the xe driver (kernel 6.12 or newer)",
            )
        address = pci_address(path) if isinstance(node, str) else node.pci_address
        return XeBackend(device, query(device), address, is_mock=is_mock_node(path))
    except BaseException:
        device.close()
        raise


def open_mock(
    index: int = 0,
    *,
    profile: str | None = None,
    vram_size: int = 0,
    system_size: int = 0,
    max_bind_ops: int = 0,
    no_peer: bool = False,
) -> XeBackend:
    """Open mock device ``index`` in this process; what is 0 or None takes the mock's default.

    A device keeps the configuration of its first open: another one is InvalidArgument. Two
    processes that open the same index with the same profile share one device.
    """
    from ze_ipc._mock import ffi as mock_ffi
    from ze_ipc._mock import lib as mock_lib

    if profile or vram_size or system_size or max_bind_ops or no_peer:
        name = mock_ffi.new("char[]", profile.encode()) if profile else mock_ffi.NULL
        config = mock_ffi.new(
            "struct xe_mock_config *",
            {
                "profile": name,
                "vram_size": vram_size,
                "system_size": system_size,
                "max_bind_ops": max_bind_ops,
                "no_peer": no_peer,
            },
        )
        rc = mock_lib.xe_mock_configure(index, config)
        if rc < 0:
            raise InvalidArgument(
                "that mock device cannot be configured so",
                index=index,
                profile=profile,
                errno=-rc,
                hint="configure a mock device before its first open, or take another index",
            ) from kernel_error(rc, "xe_mock_configure")
    # Two cffi modules: a pointer crosses as a number.
    ops = ffi.cast("const struct xe_ops *", int(mock_ffi.cast("uintptr_t", mock_lib.xe_mock_ops())))
    device = Device(ops, f"mock:{index}")
    try:
        facts = query(device)
        return XeBackend(device, facts, _mock_address(facts, index), is_mock=True)
    except BaseException:
        device.close()
        raise


def _mock_address(facts: Facts, index: int) -> str:
    """The mock's place on its pretended PCI bus: where mock_tree puts it, so that a device has one
    UUID however it is reached.
    """
    return f"0000:{3 + index:02x}:00.0" if facts.vram else f"0000:00:{2 + index:02x}.0"
