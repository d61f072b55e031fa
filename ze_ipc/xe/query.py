"""What a device says about itself: regions, configuration, GTs and engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.xe.device import Device

PAGE = 4096


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """A place where memory objects can live."""

    is_vram: bool
    instance: int
    """Its placement bit is ``1 << instance``."""
    min_page_size: int
    """Bytes: objects here and their mappings are multiples of it."""
    total_size: int
    """Bytes."""
    cpu_visible_size: int
    """Bytes of VRAM that the CPU can reach; 0 for system memory, which it reaches anyway."""

    @property
    def placement(self) -> int:
        return 1 << self.instance


@dataclass(frozen=True, slots=True)
class Gt:
    """A graphics tile part."""

    is_media: bool
    gt_id: int
    near: int
    """Mask of region instances that are close to it."""
    ip_version: tuple[int, int]
    """(major, minor) of the graphics IP; (0, 0) before Meteor Lake, which does not report it."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that a queue can be made for."""

    engine_class: int
    instance: int
    gt_id: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the queries answered."""

    device_id: int
    revision: int
    va_bits: int
    page_size: int
    """Bytes: the alignment that every object and mapping on this device fits."""
    regions: tuple[MemoryRegion, ...]
    gts: tuple[Gt, ...]
    engines: tuple[Engine, ...]

    @property
    def system(self) -> MemoryRegion:
        return next(region for region in self.regions if not region.is_vram)

    @property
    def vram(self) -> MemoryRegion | None:
        """The device memory of the first tile, or None on an integrated device."""
        return next((region for region in self.regions if region.is_vram), None)

    @property
    def graphics(self) -> tuple[int, int]:
        """Version of the graphics IP, or (0, 0)."""
        return next((gt.ip_version for gt in self.gts if not gt.is_media), (0, 0))


def _query(device: Device, number: int, ctype: str, call: str) -> Any:
    """Ask how long the answer is, then for the answer; returns (struct, buffer that holds it)."""
    arg = ffi.new("struct drm_xe_device_query *", {"query": number})
    device.ioctl(lib.DRM_IOCTL_XE_DEVICE_QUERY, arg, call)
    # Zeroed and never shorter than the fixed part, so that reading it is safe whatever came.
    data = ffi.new("char[]", max(arg.size, ffi.sizeof(ctype)) + 8)
    arg.data = int(ffi.cast("uintptr_t", data))
    device.ioctl(lib.DRM_IOCTL_XE_DEVICE_QUERY, arg, call)
    return ffi.cast(ctype + " *", data), data


def query(device: Device) -> Facts:
    """Ask everything the backend needs."""
    config, keep_config = _query(
        device, lib.DRM_XE_DEVICE_QUERY_CONFIG, "struct drm_xe_query_config", "XE_QUERY_CONFIG"
    )
    identity = config.info[lib.DRM_XE_QUERY_CONFIG_REV_AND_DEVICE_ID]
    alignment = config.info[lib.DRM_XE_QUERY_CONFIG_MIN_ALIGNMENT]
    va_bits = config.info[lib.DRM_XE_QUERY_CONFIG_VA_BITS]
    regions = _regions(device)
    page_size = max(PAGE, alignment, *(region.min_page_size for region in regions))
    del keep_config
    return Facts(
        device_id=identity & 0xFFFF,
        revision=(identity >> 16) & 0xFFFF,
        va_bits=va_bits,
        page_size=page_size,
        regions=regions,
        gts=_gts(device),
        engines=_engines(device),
    )


def _regions(device: Device) -> tuple[MemoryRegion, ...]:
    answer, keep = _query(
        device,
        lib.DRM_XE_DEVICE_QUERY_MEM_REGIONS,
        "struct drm_xe_query_mem_regions",
        "XE_QUERY_MEM_REGIONS",
    )
    rows = [answer.mem_regions[i] for i in range(answer.num_mem_regions)]
    regions = tuple(
        MemoryRegion(
            is_vram=row.mem_class == lib.DRM_XE_MEM_REGION_CLASS_VRAM,
            instance=row.instance,
            min_page_size=row.min_page_size,
            total_size=row.total_size,
            cpu_visible_size=row.cpu_visible_size,
        )
        for row in rows
    )
    del keep
    return regions


def _gts(device: Device) -> tuple[Gt, ...]:
    answer, keep = _query(
        device, lib.DRM_XE_DEVICE_QUERY_GT_LIST, "struct drm_xe_query_gt_list", "XE_QUERY_GT_LIST"
    )
    rows = [answer.gt_list[i] for i in range(answer.num_gt)]
    gts = tuple(
        Gt(
            is_media=row.type == lib.DRM_XE_QUERY_GT_TYPE_MEDIA,
            gt_id=row.gt_id,
            near=row.near_mem_regions,
            ip_version=(row.ip_ver_major, row.ip_ver_minor),
        )
        for row in rows
    )
    del keep
    return gts


def _engines(device: Device) -> tuple[Engine, ...]:
    answer, keep = _query(
        device, lib.DRM_XE_DEVICE_QUERY_ENGINES, "struct drm_xe_query_engines", "XE_QUERY_ENGINES"
    )
    rows = [answer.engines[i].instance for i in range(answer.num_engines)]
    engines = tuple(Engine(row.engine_class, row.engine_instance, row.gt_id) for row in rows)
    del keep
    return engines
