"""Share GPU virtual-address ranges of many physical memory objects between processes, through one
64-byte handle.

What is named here is imported when it is first used: ``import ze_ipc`` alone costs nothing, so that
a pytest plugin and a program's start do not pay for a GPU they may never open.
"""

import logging as _logging
import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ze_ipc.device import Device, OpenCheck
    from ze_ipc.dmabufs import DmaBuf
    from ze_ipc.errors import (
        AccessDenied,
        AddressNotFound,
        Closed,
        DeviceLost,
        DeviceNotVisible,
        DriverError,
        ExporterGone,
        FdLimit,
        ForkedProcess,
        HandleObjectInUse,
        HandleRevoked,
        InvalidArgument,
        InvalidHandle,
        InvalidNullPointer,
        InvalidSize,
        KernelError,
        OpenTimeout,
        OutOfDeviceMemory,
        OutOfHostMemory,
        PeerAccessError,
        Result,
        TransportDenied,
        UnsupportedAlignment,
        UnsupportedFeature,
        UnsupportedSize,
        WrongHost,
        ZeIpcError,
    )
    from ze_ipc.imported_range import ImportedRange
    from ze_ipc.importer import Importer, ImporterEvent
    from ze_ipc.manifest import Exposure
    from ze_ipc.observation import Observation, observe
    from ze_ipc.open_device import list_devices, open_device
    from ze_ipc.physical_memory import PhysicalMemory
    from ze_ipc.policy import Policy
    from ze_ipc.range_handle import RangeHandle
    from ze_ipc.reservation import Reservation
    from ze_ipc.usm import UsmAllocation

__version__ = "0.1.0"

_NAMES = {
    "device": ("Device", "OpenCheck"),
    "dmabufs": ("DmaBuf",),
    "errors": (
        "AccessDenied",
        "AddressNotFound",
        "Closed",
        "DeviceLost",
        "DeviceNotVisible",
        "DriverError",
        "ExporterGone",
        "FdLimit",
        "ForkedProcess",
        "HandleObjectInUse",
        "HandleRevoked",
        "InvalidArgument",
        "InvalidHandle",
        "InvalidNullPointer",
        "InvalidSize",
        "KernelError",
        "OpenTimeout",
        "OutOfDeviceMemory",
        "OutOfHostMemory",
        "PeerAccessError",
        "Result",
        "TransportDenied",
        "UnsupportedAlignment",
        "UnsupportedFeature",
        "UnsupportedSize",
        "WrongHost",
        "ZeIpcError",
    ),
    "imported_range": ("ImportedRange",),
    "importer": ("Importer", "ImporterEvent"),
    "manifest": ("Exposure",),
    "observation": ("Observation", "observe"),
    "open_device": ("list_devices", "open_device"),
    "physical_memory": ("PhysicalMemory",),
    "policy": ("Policy",),
    "range_handle": ("RangeHandle",),
    "reservation": ("Reservation",),
    "usm": ("UsmAllocation",),
}
"""The public names by the module that has them."""
_MODULES = frozenset({"errors", "mock", "security"})
"""Modules that may be used as attributes without being imported first."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _import_module(f"{__name__}.{name}")
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})


class _Package(_ModuleType):
    """Keeps an imported module from hiding the function of its name: ``open_device``."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOME or not isinstance(value, _ModuleType):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """By its name: pickles of functions in programs (cloudpickle) carry what they use."""
        return _import_module, (__name__,)


_sys.modules[__name__].__class__ = _Package


_logging.getLogger(__name__).addHandler(_logging.NullHandler())

__all__ = [
    "AccessDenied",
    "AddressNotFound",
    "Closed",
    "Device",
    "DeviceLost",
    "DeviceNotVisible",
    "DmaBuf",
    "DriverError",
    "ExporterGone",
    "Exposure",
    "FdLimit",
    "ForkedProcess",
    "HandleObjectInUse",
    "HandleRevoked",
    "ImportedRange",
    "Importer",
    "ImporterEvent",
    "InvalidArgument",
    "InvalidHandle",
    "InvalidNullPointer",
    "InvalidSize",
    "KernelError",
    "Observation",
    "OpenCheck",
    "OpenTimeout",
    "OutOfDeviceMemory",
    "OutOfHostMemory",
    "PeerAccessError",
    "PhysicalMemory",
    "Policy",
    "RangeHandle",
    "Reservation",
    "Result",
    "TransportDenied",
    "UnsupportedAlignment",
    "UnsupportedFeature",
    "UnsupportedSize",
    "UsmAllocation",
    "WrongHost",
    "ZeIpcError",
    "list_devices",
    "observe",
    "open_device",
]
