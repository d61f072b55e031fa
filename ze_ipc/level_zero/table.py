"""The functions of a Level Zero loader, by name, with their errors."""

from __future__ import annotations

import functools
import operator
import threading
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.errors import UnsupportedFeature
from ze_ipc.level_zero.errors import no_loader, ze_error
from ze_ipc.loader import loader_candidates

DDI_VERSION = 0x1000F
"""The tables that a driver is asked for when the loader is older than it: specification 1.15."""

_lock = threading.Lock()
_opened: dict[str, Table] = {}


class Table:
    """The entries of one loader; process-wide and never closed, as drivers keep threads."""

    def __init__(self, library: str) -> None:
        error = ffi.new("char[]", 512)
        self.pointer = ffi.new("struct ze_table *")
        self.library = library
        self.from_driver: tuple[str, ...] = ()
        """Entries that the loader lacks and the driver gave itself; they take raw handles."""
        if lib.ze_table_open(self.pointer, library.encode(), error, len(error)) < 0:
            raise OSError(ffi.string(error).decode(errors="replace"))

    def missing(self) -> dict[str, str]:
        """Entries that are nowhere, each with the version of the specification that brought it."""
        return {
            name: since
            for index, (name, since) in enumerate(entries().items())
            if lib.ze_table_address(self.pointer, index) == ffi.NULL
        }

    def has(self, name: str) -> bool:
        """Whether an entry, named without its ``ze``, can be called."""
        return bool(getattr(self.pointer, name))

    def call(self, name: str, *arguments: Any, **values: Any) -> None:
        """Call ``ze<name>``; raises the translated error."""
        result = self.result(name, *arguments)
        if result:
            raise ze_error(result, "ze" + name, **values)

    def result(self, name: str, *arguments: Any) -> int:
        """Call ``ze<name>``: its ze_result_t. UnsupportedFeature when there is no such entry."""
        function = getattr(self.pointer, name)
        if not function:
            since = self.missing()["ze" + name]
            raise UnsupportedFeature(
                "the loader and the driver lack this function",
                call="ze" + name,
                hint=f"install a loader and a driver of Level Zero {since} or newer",
                library=self.library,
            )
        return int(function(*arguments))

    def trim(self, drivers: list[str]) -> None:
        """Forget what the loader exports and no driver that it has loaded implements."""
        found = [lib.ze_driver_entries(driver.encode(), DDI_VERSION) for driver in drivers]
        loaded = [mask for mask in found if mask >= 0]
        if loaded:
            lib.ze_table_trim(self.pointer, functools.reduce(operator.or_, loaded))

    def complete_from(self, driver: str) -> bool:
        """Take what an old loader lacks from a driver that it has loaded; whether it is loaded."""
        before = self.missing()
        filled = lib.ze_table_from_driver(self.pointer, driver.encode(), DDI_VERSION)
        after = self.missing()
        found = tuple(name for name in before if name not in after)
        self.from_driver = (*self.from_driver, *found)
        return bool(filled >= 0)


def entries() -> dict[str, str]:
    """Every function that is used, with the version of the specification that brought it."""
    return {
        ffi.string(entry.name).decode(): f"{entry.since >> 16}.{entry.since & 0xFFFF}"
        for entry in (lib.ze_entries[index] for index in range(lib.ze_entry_count()))
    }


def open_table() -> Table:
    """The table of the first loader that opens; raises DeviceNotVisible with the linker's words."""
    tried = loader_candidates()
    reason = ""
    with _lock:
        for name in tried:
            if name not in _opened:
                try:
                    _opened[name] = Table(name)
                except OSError as error:
                    reason = reason or str(error)
                    continue
            return _opened[name]
    raise no_loader(tried, reason)
