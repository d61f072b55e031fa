"""Types of array elements, by the names that NumPy and PyTorch give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ze_ipc.errors import InvalidArgument

_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
"""DLDataTypeCode."""


@dataclass(frozen=True, slots=True)
class DType:
    """One type of elements, little-endian."""

    name: str
    code: int
    """DLDataTypeCode."""
    size: int
    """Bytes of an element."""
    format: str
    """Of the buffer protocol; empty where it has none."""
    typestr: str
    """Of NumPy's array interface; empty where it has none."""


_ROWS = (
    ("int8", _INT, 1, "b", "|i1"),
    ("int16", _INT, 2, "h", "<i2"),
    ("int32", _INT, 4, "i", "<i4"),
    ("int64", _INT, 8, "q", "<i8"),
    ("uint8", _UINT, 1, "B", "|u1"),
    ("uint16", _UINT, 2, "H", "<u2"),
    ("uint32", _UINT, 4, "I", "<u4"),
    ("uint64", _UINT, 8, "Q", "<u8"),
    ("float16", _FLOAT, 2, "e", "<f2"),
    ("float32", _FLOAT, 4, "f", "<f4"),
    ("float64", _FLOAT, 8, "d", "<f8"),
    ("bfloat16", _BFLOAT, 2, "", ""),
    ("complex64", _COMPLEX, 8, "Zf", "<c8"),
    ("complex128", _COMPLEX, 16, "Zd", "<c16"),
    ("bool", _BOOL, 1, "?", "|b1"),
)
DTYPES = {row[0]: DType(*row) for row in _ROWS}
_BY_TYPESTR = {dtype.typestr: dtype for dtype in DTYPES.values() if dtype.typestr}
_BY_PYTHON = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def dtype_of(call: str, wanted: Any) -> DType:
    """The type that a name, a type string, a NumPy or PyTorch dtype or a Python type stands for."""
    if isinstance(wanted, DType):
        return wanted
    if isinstance(wanted, str):
        name = wanted
    elif isinstance(wanted, type):
        name = _BY_PYTHON.get(wanted, wanted.__name__)
    elif isinstance(getattr(wanted, "str", None), str):  # numpy.dtype
        name = wanted.str
    else:
        name = str(wanted)
    name = name.removeprefix("torch.")
    found = DTYPES.get(name) or _BY_TYPESTR.get(name)
    if found is None:
        raise InvalidArgument(
            f"no array can have elements of {wanted!r}",
            call=call,
            hint=f"pass one of {', '.join(DTYPES)}, or view the bytes as uint8",
        )
    return found
