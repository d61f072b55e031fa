"""What an open device says of itself; nothing here changes while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ze_ipc.owner import Owner

if TYPE_CHECKING:
    from ze_ipc.backend import Backend, Way


class DeviceFacts(Owner):
    """The properties of a device, read from its backend."""

    _backend: Backend

    @property
    def backend(self) -> str:
        """``"level_zero"`` or ``"xe"``."""
        return self._backend.name

    @property
    def ipc_path(self) -> Way:
        """How ranges reach other processes: ``"native"`` by the driver's own range extension,
        ``"emulated"`` by objects that travel one by one, ``"unsupported"``.
        """
        return self._backend.ipc_path.way

    @property
    def ipc_path_reason(self) -> str:
        """Why it is that way, in one sentence."""
        return self._backend.ipc_path.reason

    @property
    def is_mock(self) -> bool:
        """Whether no real GPU is behind it, however the mock was reached."""
        return self._backend.info.is_mock

    @property
    def name(self) -> str:
        """The device's name in words."""
        return self._backend.info.name

    @property
    def uuid(self) -> bytes:
        """16 bytes; the same in every process and backend of this machine."""
        return self._backend.info.uuid

    @property
    def pci_address(self) -> str:
        """``dddd:bb:dd.f``."""
        return self._backend.info.pci_address

    @property
    def render_node(self) -> str:
        """The node that was opened, such as ``/dev/dri/renderD128``."""
        return self._backend.info.render_node

    @property
    def page_size(self) -> int:
        """Bytes: what sizes and offsets of mappings must be multiples of."""
        return self._backend.info.page_size

    @property
    def memory_size(self) -> int:
        """Bytes of device-local memory; 0 on an integrated device."""
        return self._backend.info.device_memory
