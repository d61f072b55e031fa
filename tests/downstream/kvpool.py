"""A pool of fixed-size pages that grows object by object and is shared by one handle."""

from __future__ import annotations

import ze_ipc

PAGE = 64 << 10


class Pool:
    """Room for ``pages`` pages of GPU memory at one address; grow() backs more of them."""

    def __init__(self, device: ze_ipc.Device, pages: int) -> None:
        self._device = device
        self._range = device.reserve(pages * PAGE)
        self.pages = 0

    def grow(self) -> int:
        """One page more; its address."""
        with self._device.physical_memory(PAGE) as memory:
            self._range.map(memory, at=self.pages * PAGE)
        self.pages += 1
        return self._range.ptr + (self.pages - 1) * PAGE

    def share(self) -> ze_ipc.RangeHandle:
        """A handle of all pages that there are."""
        return self._device.get_ipc_handle(self._range.ptr, self.pages * PAGE)

    def close(self) -> None:
        self._range.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
