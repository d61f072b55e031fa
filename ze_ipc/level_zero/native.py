"""Ranges by the driver's own extension: its handles, unchanged, and its imports."""

from __future__ import annotations

from array import array
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.backend import HandleType
from ze_ipc.level_zero.context import Context, pointer
from ze_ipc.level_zero.mappings import AddressSpace
from ze_ipc.level_zero.objects import Objects

_TYPE_FLAGS: dict[HandleType, int] = {
    "default": lib.ZE_IPC_MEM_HANDLE_TYPE_FLAG_DEFAULT,
    "fabric": lib.ZE_IPC_MEM_HANDLE_TYPE_FLAG_FABRIC_ACCESSIBLE,
}


class NativeRanges:
    """ZE_extension_ipc_phys_mem_handle_range of one device; implements
    ``ze_ipc.backend.NativeRanges``.
    """

    def __init__(self, context: Context, space: AddressSpace, objects: Objects) -> None:
        self._context = context
        self._space = space
        self._objects = objects
        self._contexts: dict[bytes, int] = {}
        """Of handles of other code's mappings."""

    def export(self, ptr: int, size: int, context: int, handle_type: HandleType | None) -> bytes:
        """The driver's handle of ``[ptr, ptr + size)``, 64 bytes."""
        # First in the chain: drivers that do not know it then refuse, rather than export another
        # window than was asked for.
        desc = ffi.new("ze_ipc_phys_mem_handle_range_ext_desc_t *")
        desc.stype = lib.ZE_STRUCTURE_TYPE_IPC_PHYS_MEM_HANDLE_RANGE_EXT_DESC
        desc.size = size
        kind = ffi.new("ze_ipc_mem_handle_type_ext_desc_t *")
        if handle_type is not None:
            kind.stype = lib.ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC
            kind.typeFlags = _TYPE_FLAGS[handle_type]
            desc.pNext = kind
        handle = ffi.new("ze_ipc_mem_handle_t *")
        entry = "zeMemGetIpcHandleWithProperties"
        with self._context:
            self._context.table.call(
                entry.removeprefix("ze"),
                self._context.handle_for(entry, context),
                pointer(ptr),
                desc,
                handle,
                address=ptr,
                size=size,
            )
        data = bytes(ffi.buffer(handle))
        if context:
            self._contexts[data] = context
        return data

    def put(self, data: bytes) -> None:
        """Give the driver's handle back; a driver without zeMemPutIpcHandle needs it not."""
        with self._context:
            if self._context.table.has("MemPutIpcHandle"):
                of = self._contexts.pop(data, 0)
                context = self._context.handle_for("zeMemPutIpcHandle", of)
                self._context.table.call("MemPutIpcHandle", context, _handle(data)[0])

    def open(self, data: bytes) -> tuple[int, int, int]:
        """(address, bytes, object) of what a handle names; the object stands for all of it."""
        table, context = self._context.table, self._context.handle
        out, base, size = ffi.new("void **"), ffi.new("void **"), ffi.new("size_t *")
        with self._context:
            gpu = self._context.gpu.handle
            table.call("MemOpenIpcHandle", context, gpu, _handle(data)[0], 0, out)
            try:
                # A range handle is self-describing: the address is that of the exporter's ptr.
                table.call("MemGetAddressRange", context, out[0], base, size)
                address = int(ffi.cast("uintptr_t", out[0]))
                start = int(ffi.cast("uintptr_t", base[0]))
                length = size[0] - (address - start)
                obj = self._objects.adopt(length)
            except BaseException:
                table.result("MemCloseIpcHandle", context, out[0])
                raise
        self._objects.retain(array("Q", [obj]))
        self._space.add_import(address, length, obj)
        return address, length, obj


def _handle(data: bytes) -> Any:
    handle = ffi.new("ze_ipc_mem_handle_t *")
    ffi.buffer(handle)[:] = data
    return handle
