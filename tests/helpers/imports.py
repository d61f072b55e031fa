"""Everything imported at once, for a process that forks: its children need not do it again."""

from __future__ import annotations

import gc
import importlib
import pkgutil

import ze_ipc

_LEFT_OUT = (
    "ze_ipc.cli",
    "ze_ipc.__main__",
    "ze_ipc.pytest_plugin",
    "ze_ipc.lib",
    "ze_ipc.interop",
)


def import_everything() -> None:
    """Import the package's modules, and keep the collector away from what is there now."""
    for module in pkgutil.walk_packages(ze_ipc.__path__, "ze_ipc."):
        if not module.name.startswith(_LEFT_OUT):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
