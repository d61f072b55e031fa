"""Which of three ways a driver's ranges go to other processes, and why."""

from __future__ import annotations

from collections.abc import Mapping

from ze_ipc.backend import IpcPath
from ze_ipc.level_zero.table import Table

RANGE_EXTENSION = "ZE_extension_ipc_phys_mem_handle_range"

_NATIVE = ("MemGetIpcHandleWithProperties", "MemOpenIpcHandle", "MemCloseIpcHandle")
_EMULATED = ("PhysicalMemGetProperties", "PhysicalMemCreate", "VirtualMemMap")


def decide(table: Table, extensions: Mapping[str, int]) -> IpcPath:
    """Choose by what the driver advertises and what can be called."""
    if RANGE_EXTENSION in extensions:
        lacks = _lacking(table, _NATIVE)
        if not lacks:
            return IpcPath("native", f"the driver has {RANGE_EXTENSION}")
        why = f"the driver has {RANGE_EXTENSION}, but the loader lacks {lacks}"
    else:
        why = f"the driver has no {RANGE_EXTENSION}"
    lacks = _lacking(table, _EMULATED)
    if lacks:
        return IpcPath(
            "unsupported",
            f"{why}, and loader or driver lack {lacks}: the objects of a range cannot leave this "
            "process one by one (Intel's driver 26.27 has it)",
        )
    how = "objects travel as dma-bufs from zePhysicalMemGetProperties to zePhysicalMemCreate"
    return IpcPath("emulated", f"{why}: {how}")


def _lacking(table: Table, names: tuple[str, ...]) -> str:
    missing = table.missing()
    return ", ".join(
        f"ze{name} (since {missing['ze' + name]})" for name in names if not table.has(name)
    )
