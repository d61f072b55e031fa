"""Share GPU virtual-address ranges of many physical memory objects between processes, through one
64-byte handle.
"""

import logging as _logging

from ze_ipc.device import Device, OpenCheck
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
from ze_ipc.open_device import list_devices, open_device
from ze_ipc.physical_memory import PhysicalMemory
from ze_ipc.range_handle import RangeHandle
from ze_ipc.reservation import Reservation
from ze_ipc.usm import UsmAllocation

__version__ = "0.1.0"

_logging.getLogger(__name__).addHandler(_logging.NullHandler())

__all__ = [
    "AccessDenied",
    "AddressNotFound",
    "Closed",
    "Device",
    "DeviceLost",
    "DeviceNotVisible",
    "DriverError",
    "ExporterGone",
    "FdLimit",
    "ForkedProcess",
    "HandleObjectInUse",
    "HandleRevoked",
    "ImportedRange",
    "InvalidArgument",
    "InvalidHandle",
    "InvalidNullPointer",
    "InvalidSize",
    "KernelError",
    "OpenCheck",
    "OpenTimeout",
    "OutOfDeviceMemory",
    "OutOfHostMemory",
    "PeerAccessError",
    "PhysicalMemory",
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
    "open_device",
]
