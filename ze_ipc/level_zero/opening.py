"""Opening a device of a Level Zero driver."""

from __future__ import annotations

import contextlib

from ze_ipc.errors import ZeIpcError
from ze_ipc.level_zero.backend import LevelZeroBackend
from ze_ipc.level_zero.drivers import GpuDevice, find_devices, find_drivers, no_device
from ze_ipc.level_zero.ipc_path import decide
from ze_ipc.level_zero.table import Table, open_table
from ze_ipc.xe.nodes import find_nodes, is_mock_node


def open_backend(device: int | str | bytes = 0) -> LevelZeroBackend:
    """Open a device by its place in the list, its PCI address, render node or UUID."""
    table = open_table()
    found = [gpu for driver in find_drivers(table) for gpu in find_devices(table, driver)]
    nodes = _render_nodes()
    for index, gpu in enumerate(found):
        node = nodes.get(gpu.pci_address, "")
        if device in (index, gpu.pci_address, gpu.uuid) or (node and device == node):
            return _open(table, gpu, node)
    raise no_device(device, found)


def _open(table: Table, gpu: GpuDevice, node: str) -> LevelZeroBackend:
    path = decide(table, gpu.driver.extensions)
    return LevelZeroBackend(table, gpu, path, node, mock=bool(node) and is_mock_node(node))


def _render_nodes() -> dict[str, str]:
    """Paths by PCI address, of the nodes that can be opened."""
    with contextlib.suppress(ZeIpcError, OSError):
        return {node.pci_address: node.path for node in find_nodes()}
    return {}
