"""What a device says of itself to a listing: which it is, and all its mappings."""

from __future__ import annotations

import weakref
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ze_ipc.broker_listing import Describe
    from ze_ipc.device import Device

MAX_ROWS = 100_000
"""Mappings told at most, the lowest ones; the answer says how many there are."""


def describer(device: Device) -> Describe:
    """What a broker may call at any time; the device is collected all the same."""
    known = weakref.ref(device)

    def describe(mappings: bool) -> dict[str, Any]:
        device = known()
        if device is None or device.closed:
            return {}
        said = _facts(device)
        return said | {"table": _table(device)} if mappings else said

    return describe


def _facts(device: Device) -> dict[str, Any]:
    return {
        "device": device.name,
        "pci_address": device.pci_address,
        "uuid": device.uuid.hex(),
        "backend": device.backend,
        "mock": device.is_mock,
        "page_size": device.page_size,
    }


def _table(device: Device) -> dict[str, Any]:
    with device._lock:
        table = device._table
        count = len(table)
        rows = table.everything().rows(0, MAX_ROWS)
        reservations = [(row.start, row.size) for row in table.reservations()]
        usm = [(row.start, row.size) for row in table.usm_in(0, 1 << 64)]
        imports = [(row.start, row.size) for row in table.imports()]
        distinct = array("Q", dict.fromkeys(rows.objects))
        sizes = device._backend.object_sizes(distinct)
    return {
        "mapping_count": count,
        "reservations": reservations,
        "usm": usm,
        "imports": imports,
        "object_sizes": [[obj, size] for obj, size in zip(distinct, sizes, strict=True)],
        "starts": rows.starts.tolist(),
        "ends": rows.ends.tolist(),
        "objects": rows.objects.tolist(),
        "offsets": rows.offsets.tolist(),
        "access": rows.access.tolist(),
    }
