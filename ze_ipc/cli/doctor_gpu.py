"""What there is of GPUs: render nodes, the Level Zero loader and drivers, the way that is taken."""

from __future__ import annotations

import grp
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ze_ipc import loader, xe
from ze_ipc.cli.doctor_check import Check
from ze_ipc.errors import ZeIpcError
from ze_ipc.level_zero import drivers, ipc_path, table
from ze_ipc.loader import LibraryReport
from ze_ipc.xe.nodes import Looked

INSTALL = "install the distribution's packages (Debian: libze1, libze-intel-gpu1)"


@dataclass(frozen=True, slots=True)
class Libraries:
    """The loader and the drivers that it would open."""

    loader: LibraryReport
    drivers: tuple[LibraryReport, ...]

    @property
    def load(self) -> bool:
        """Whether Level Zero can be started."""
        return self.loader.loads and any(driver.loads for driver in self.drivers)


def libraries() -> Libraries:
    """Look at the files; nothing is loaded."""
    return Libraries(
        loader.first_found(loader.loader_candidates(), table.entries()),
        tuple(loader.inspect(name) for name in loader.driver_candidates()),
    )


def render_nodes() -> Iterator[Check]:
    """One a node."""
    nodes = xe.look()
    if not nodes:
        yield Check(
            "render nodes",
            "warning",
            "there is no /dev/dri/renderD*",
            "give the container /dev/dri, load the xe driver; without a GPU the mock is used",
        )
    for node in nodes:
        if node.problem:
            yield Check("render nodes", "warning", f"{node.path}: {node.problem}", _node_fix(node))
        else:
            yield Check("render nodes", "ok", f"{node.path}: kernel driver {node.driver}")


def _node_fix(node: Looked) -> str:
    """The one thing: the driver, or the group that the node belongs to."""
    if node.driver:
        return "load the xe driver for this GPU"
    try:
        owner = Path(node.path).stat().st_gid
    except OSError:
        return "give the container the node and the right to open it (docker run --device /dev/dri)"
    if owner in {os.getegid(), *os.getgroups()}:
        return f"the group that may open it is ours: chmod g+rw {node.path}, or allow the device"
    try:
        group = grp.getgrgid(owner).gr_name
    except KeyError:
        return f"give this process the group {owner} (docker run --group-add {owner})"
    return f"add this user to the group {group} (usermod -aG {group} USER) and log in again"


def level_zero(found: Libraries) -> Iterator[Check]:
    """Loader and drivers as files."""
    yield _library("Level Zero loader", found.loader)
    # Of several names that the loader tries, one that is there is enough.
    there = [driver for driver in found.drivers if driver.path] or list(found.drivers[:1])
    for driver in there:
        yield _library("Level Zero driver", driver)


def _library(name: str, report: LibraryReport) -> Check:
    what = " ".join(filter(None, (report.path or report.name, report.version)))
    if report.problem:
        fix = INSTALL
        if report.missing_versions:
            fix = "install the one that was built for this distribution, not a newer one's"
        return Check(name, "warning", f"{what}: {report.problem}", fix)
    if report.missing_entries:
        missing = ", ".join(f"{n} (since {v})" for n, v in report.missing_entries.items())
        fix = "none needed where the driver has them; else install a newer loader"
        return Check(name, "note", f"{what}: lacks {missing}", fix)
    return Check(name, "ok", what)


def ways(found: Libraries) -> Iterator[Check]:
    """Start Level Zero where it can be, and say of each device which way its ranges take."""
    if not found.load:
        yield Check(
            "way of sharing",
            "note",
            "Level Zero cannot be started here, so backend level_zero is not used",
            "see the loader and the driver above; backend xe needs neither",
        )
        return
    try:
        entries = table.open_table()
        for driver in drivers.find_drivers(entries):
            path = ipc_path.decide(entries, driver.extensions)
            for device in drivers.find_devices(entries, driver):
                yield Check(
                    "way of sharing",
                    "warning" if path.way == "unsupported" else "ok",
                    f"{device.name} ({device.pci_address}, specification {driver.api_version}): "
                    f"{path.way}, {path.reason}",
                    "" if path.way != "unsupported" else "install a newer loader and driver",
                )
    except ZeIpcError as error:
        yield Check("way of sharing", "warning", str(error), error.hint)
