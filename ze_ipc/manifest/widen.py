"""Extents for a device with larger pages than the exporter's."""

from __future__ import annotations

from dataclasses import replace

from ze_ipc.errors import UnsupportedAlignment
from ze_ipc.manifest.model import VA_PHASE_SIZE, Manifest


def widen(manifest: Manifest, page_size: int) -> Manifest:
    """The same window in whole pages of ``page_size`` bytes, a multiple of the manifest's own.

    The first extent begins earlier in its object and the last one ends later; nothing can be done
    for the seams between, which must lie on such pages. Raises UnsupportedAlignment.
    """
    if manifest.page_size % page_size == 0:
        return manifest
    last = manifest.extent_count - 1
    offsets, sizes = manifest.offsets[:], manifest.sizes[:]
    head = offsets[0] % page_size
    offsets[0] -= head
    sizes[0] += head
    sizes[last] += -(offsets[last] + sizes[last]) % page_size
    for index, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        whole = manifest.object_sizes[manifest.object_indices[index]]
        if offset % page_size or size % page_size or offset + size > whole:
            raise UnsupportedAlignment(
                "the exporter's pages are smaller than this device's, and a mapping in the window "
                "begins or ends within one",
                call="open_ipc_handle",
                object_index=int(manifest.object_indices[index]),
                page_size=page_size,
                hint="map whole pages of that size in the exporter, or open it by backend xe",
            )
    return replace(
        manifest,
        page_size=page_size,
        window_offset=manifest.window_offset + head,
        va_phase=(manifest.va_phase - head) % VA_PHASE_SIZE // page_size * page_size,
        offsets=offsets,
        sizes=sizes,
    )
