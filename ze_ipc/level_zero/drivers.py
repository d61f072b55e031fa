"""Drivers and devices as the loader lists them, under ZE_AFFINITY_MASK."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.errors import DeviceNotVisible, Result
from ze_ipc.level_zero.errors import ze_error
from ze_ipc.level_zero.table import Table
from ze_ipc.loader import driver_candidates, find


@dataclass(frozen=True, slots=True)
class Driver:
    """One driver that serves GPUs."""

    handle: Any
    api_version: str
    """Of the specification, as the driver says."""
    driver_version: int
    extensions: dict[str, int]
    """Names and versions."""


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU of a driver."""

    handle: Any
    driver: Driver
    name: str
    uuid: bytes
    pci_address: str
    """``dddd:bb:dd.f``, or empty where the driver does not say."""
    memory: int
    """Bytes of device memory; 0 on an integrated device."""
    copy_group: int
    """Ordinal of the queue group that copies are sent to."""
    fill_pattern: int
    """Bytes of the longest pattern that a fill may have there."""
    tiles: int
    """Sub-devices, at least 1."""
    place: int = 0
    """Among the GPUs of its driver."""


def find_drivers(table: Table) -> list[Driver]:
    """Start Level Zero and list the drivers for GPUs; raises when there is none."""
    count = ffi.new("uint32_t *")
    kind = ffi.new("ze_init_driver_type_desc_t *")
    kind.stype = lib.ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC
    kind.flags = lib.ZE_INIT_DRIVER_TYPE_FLAG_GPU
    if table.has("InitDrivers"):
        _start(table.result("InitDrivers", count, ffi.NULL, kind), "zeInitDrivers")
        handles = ffi.new("ze_driver_handle_t[]", max(1, count[0]))
        table.call("InitDrivers", count, handles, kind)
    else:
        _start(table.result("Init", lib.ZE_INIT_FLAG_GPU_ONLY), "zeInit")
        table.call("DriverGet", count, ffi.NULL)
        handles = ffi.new("ze_driver_handle_t[]", max(1, count[0]))
        table.call("DriverGet", count, handles)
    paths = [str(path) for path in map(find, driver_candidates()) if path is not None]
    for path in paths:
        if table.missing():
            table.complete_from(path)
    table.trim(paths)
    return [_driver(table, handles[index]) for index in range(count[0])]


def _start(result: int, call: str) -> None:
    if result in (Result.UNINITIALIZED, Result.UNSUPPORTED_FEATURE, Result.DEPENDENCY_UNAVAILABLE):
        raise DeviceNotVisible(
            f"no Level Zero driver serves a GPU here ({Result(result).name})",
            call=call,
            hint="ze-ipc doctor says what is wrong with the driver",
            drivers=", ".join(driver_candidates()),
        )
    if result:
        raise ze_error(result, call)


def _driver(table: Table, handle: Any) -> Driver:
    version = ffi.new("uint32_t *")
    table.call("DriverGetApiVersion", handle, version)
    facts = ffi.new("ze_driver_properties_t *", {"stype": lib.ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES})
    table.call("DriverGetProperties", handle, facts)
    count = ffi.new("uint32_t *")
    table.call("DriverGetExtensionProperties", handle, count, ffi.NULL)
    rows = ffi.new("ze_driver_extension_properties_t[]", max(1, count[0]))
    table.call("DriverGetExtensionProperties", handle, count, rows)
    return Driver(
        handle=handle,
        api_version=f"{version[0] >> 16}.{version[0] & 0xFFFF}",
        driver_version=facts.driverVersion,
        extensions={
            ffi.string(rows[index].name).decode(errors="replace"): rows[index].version
            for index in range(count[0])
        },
    )


def find_devices(table: Table, driver: Driver) -> list[GpuDevice]:
    """The GPUs of a driver that this process may see."""
    count = ffi.new("uint32_t *")
    table.call("DeviceGet", driver.handle, count, ffi.NULL)
    handles = ffi.new("ze_device_handle_t[]", max(1, count[0]))
    table.call("DeviceGet", driver.handle, count, handles)
    found: list[GpuDevice] = []
    for index in range(count[0]):
        facts = ffi.new("ze_device_properties_t *")
        facts.stype = lib.ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES
        table.call("DeviceGetProperties", handles[index], facts)
        if facts.type == lib.ZE_DEVICE_TYPE_GPU:
            found.append(_device(table, driver, handles[index], facts, len(found)))
    return found


def no_device(device: object, found: list[GpuDevice]) -> DeviceNotVisible:
    """The error of a selector that no device fits (not raised)."""
    return DeviceNotVisible(
        f"Level Zero lists no device {device!r}",
        call="open_device",
        hint="choose one of those that ze-ipc devices lists, or widen ZE_AFFINITY_MASK",
        visible=", ".join(f"{one.name} ({one.pci_address})" for one in found) or "none",
        mask=os.environ.get("ZE_AFFINITY_MASK", "not set"),
    )


def _device(table: Table, driver: Driver, handle: Any, facts: Any, place: int) -> GpuDevice:
    group, pattern = _copy_group(table, handle)
    integrated = facts.flags & lib.ZE_DEVICE_PROPERTY_FLAG_INTEGRATED
    tiles = ffi.new("uint32_t *")
    table.call("DeviceGetSubDevices", handle, tiles, ffi.NULL)
    return GpuDevice(
        handle=handle,
        driver=driver,
        name=ffi.string(facts.name).decode(errors="replace"),
        uuid=bytes(facts.uuid.id),
        pci_address=_pci_address(table, handle),
        memory=0 if integrated else _memory(table, handle),
        copy_group=group,
        fill_pattern=pattern,
        tiles=max(1, tiles[0]),
        place=place,
    )


def _memory(table: Table, handle: Any) -> int:
    count = ffi.new("uint32_t *")
    table.call("DeviceGetMemoryProperties", handle, count, ffi.NULL)
    kind = lib.ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES
    rows = ffi.new("ze_device_memory_properties_t[]", [{"stype": kind}] * max(1, count[0]))
    table.call("DeviceGetMemoryProperties", handle, count, rows)
    return sum(rows[index].totalSize for index in range(count[0]))


def _pci_address(table: Table, handle: Any) -> str:
    facts = ffi.new(
        "ze_pci_ext_properties_t *", {"stype": lib.ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES}
    )
    if not table.has("DevicePciGetPropertiesExt"):
        return ""
    if table.result("DevicePciGetPropertiesExt", handle, facts):
        return ""
    at = facts.address
    return f"{at.domain:04x}:{at.bus:02x}:{at.device:02x}.{at.function:x}"


def _copy_group(table: Table, handle: Any) -> tuple[int, int]:
    """The group that only copies, so that no kernel is ever needed; else the first that copies."""
    count = ffi.new("uint32_t *")
    table.call("DeviceGetCommandQueueGroupProperties", handle, count, ffi.NULL)
    kind = lib.ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES
    rows = ffi.new("ze_command_queue_group_properties_t[]", [{"stype": kind}] * max(1, count[0]))
    table.call("DeviceGetCommandQueueGroupProperties", handle, count, rows)
    copying = [
        (bool(row.flags & lib.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE), index)
        for index, row in enumerate(rows[0 : count[0]])
        if row.flags & lib.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY
    ]
    if not copying:
        raise DeviceNotVisible("the device has no queue that copies", call="zeDeviceGet")
    _, index = min(copying)
    return index, int(rows[index].maxMemoryFillPatternSize)
