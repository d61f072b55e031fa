"""Every type of the cffi module is complete: cffi looks at a struct only when it is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ze_ipc import _xe

DECLARATIONS = Path(__file__).resolve().parents[2] / "ioctl/xe_uapi.cdef"
TEXT = DECLARATIONS.read_text()
STRUCTS = re.findall(r"^struct (\w+) \{", TEXT, re.MULTILINE)
CONSTANTS = re.findall(r"^#define (\w+) (\S+)$", TEXT, re.MULTILINE)
# _IOC: where a number carries the size of its argument.
SIZED = {
    "DRM_IOCTL_VERSION": "drm_version",
    "DRM_IOCTL_GEM_CLOSE": "drm_gem_close",
    "DRM_IOCTL_PRIME_HANDLE_TO_FD": "drm_prime_handle",
    "DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT": "drm_syncobj_timeline_wait",
    "DRM_IOCTL_XE_DEVICE_QUERY": "drm_xe_device_query",
    "DRM_IOCTL_XE_GEM_CREATE": "drm_xe_gem_create",
    "DRM_IOCTL_XE_GEM_MMAP_OFFSET": "drm_xe_gem_mmap_offset",
    "DRM_IOCTL_XE_VM_CREATE": "drm_xe_vm_create",
    "DRM_IOCTL_XE_VM_DESTROY": "drm_xe_vm_destroy",
    "DRM_IOCTL_XE_VM_BIND": "drm_xe_vm_bind",
    "DRM_IOCTL_XE_EXEC": "drm_xe_exec",
    "DRM_IOCTL_XE_EXEC_QUEUE_CREATE": "drm_xe_exec_queue_create",
    "DRM_IOCTL_XE_WAIT_USER_FENCE": "drm_xe_wait_user_fence",
    "DRM_IOCTL_XE_MADVISE": "drm_xe_madvise",
    "DRM_IOCTL_XE_VM_GET_PROPERTY": "drm_xe_vm_get_property",
    "DMA_BUF_IOCTL_SYNC": "dma_buf_sync",
    "SYNC_IOC_FILE_INFO": "sync_file_info",
}


def test_the_file_was_read() -> None:
    assert len(STRUCTS) > 50
    assert len(CONSTANTS) > 200


@pytest.mark.parametrize("name", STRUCTS)
def test_struct_has_a_size(name: str) -> None:
    kind = _xe.ffi.typeof(f"struct {name}")
    assert _xe.ffi.sizeof(kind) > 0
    assert kind.fields


def test_every_type_the_module_lists_is_complete() -> None:
    typedefs, structs, unions = _xe.ffi.list_types()
    kinds = [_xe.ffi.typeof(name) for name in typedefs]
    kinds += [_xe.ffi.typeof(f"struct {name}") for name in structs]
    kinds += [_xe.ffi.typeof(f"union {name}") for name in unions]
    # Python holds these by pointer only.
    opaque = [
        _xe.ffi.typeof(name) for name in ("struct xe_device", "struct xe_fence", "struct desk")
    ]
    sizes = [
        _xe.ffi.sizeof(kind)
        for kind in kinds
        if kind.kind not in {"function", "void"} and kind not in opaque
    ]
    assert len(sizes) >= len(STRUCTS)
    assert all(sizes)


def test_constants_are_what_the_file_says() -> None:
    found = {name: getattr(_xe.lib, name) for name, _ in CONSTANTS}
    assert found == {name: int(value, 0) for name, value in CONSTANTS}


@pytest.mark.parametrize(("ioctl", "struct"), SIZED.items())
def test_ioctl_number_carries_the_size_of_its_struct(ioctl: str, struct: str) -> None:
    number = getattr(_xe.lib, ioctl)
    assert (number >> 16) & 0x3FFF == _xe.ffi.sizeof(f"struct {struct}")
