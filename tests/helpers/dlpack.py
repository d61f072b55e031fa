"""What is in a DLPack capsule, read by ctypes as a consumer would."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]

_USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Plain(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("owner", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


@dataclass
class Taken:
    """A tensor that was taken out of its capsule: delete() must be called."""

    version: tuple[int, int] | None
    flags: int
    data: int
    device: tuple[int, int]
    dtype: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    byte_offset: int
    _managed: int
    _deleter: int

    def delete(self) -> None:
        """Call the deleter as C does, without the interpreter's lock."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._deleter)(self._managed)

    def first_bytes(self, size: int) -> bytes:
        return ctypes.string_at(self.data, size)


def take(capsule: Any) -> Taken:
    """Consume a capsule."""
    name = _name(capsule)
    assert name in _USED, name
    pointer = _pointer(capsule, name)
    version, flags = None, 0
    if name == b"dltensor":
        plain = _Plain.from_address(pointer)
        tensor, deleter = plain.tensor, plain.deleter
    else:
        versioned = _Versioned.from_address(pointer)
        tensor, deleter = versioned.tensor, versioned.deleter
        version, flags = (versioned.major, versioned.minor), versioned.flags
    # The names are static in C; ctypes keeps these alive as constants of this module.
    assert _rename(capsule, _USED[name]) == 0
    return Taken(
        version,
        flags,
        tensor.data or 0,
        (tensor.device_type, tensor.device_id),
        (tensor.code, tensor.bits, tensor.lanes),
        tuple(tensor.shape[: tensor.ndim]),
        tuple(tensor.strides[: tensor.ndim]),
        tensor.byte_offset,
        pointer,
        deleter,
    )
