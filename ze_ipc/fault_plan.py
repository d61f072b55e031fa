"""Faults for tests: the mock's ioctls that shall fail or be late, written down before they do."""

from __future__ import annotations

import errno as errors
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ze_ipc.errors import InvalidArgument
from ze_ipc.mock import EVERY, MockDevice

if TYPE_CHECKING:
    from ze_ipc.device import Device

_ENTRY = re.compile(r"(?P<ioctl>\w+):(?P<nth>\d+|\*)(?:=(?P<errno>\w+)|~(?P<microseconds>\d+))")
_HINT = "write IOCTL:NTH=ERRNO or IOCTL:NTH~MICROSECONDS, such as VM_BIND:2=ENOSPC; NTH may be *"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """What shall go wrong on one mock device of this process; the fixture clears it.

    An ioctl is named as in the kernel's header, with or without ``DRM_IOCTL_`` and ``XE_``:
    ``VM_BIND``, ``GEM_CREATE``, ``PRIME_HANDLE_TO_FD``. Counting starts when an entry is made.
    """

    index: int = 0
    """Which mock device."""

    def fail(self, ioctl: str, nth: int = 1, errno: int | str = "ENOMEM") -> FaultPlan:
        """The ``nth`` call from now fails with ``errno`` (a number or its name) before it does
        anything; 0: every call. InvalidArgument for an ioctl that the mock has not.
        """
        self._device.fail(ioctl, nth, _number(errno))
        return self

    def delay(self, ioctl: str, nth: int = 1, seconds: float = 0.1) -> FaultPlan:
        """The ``nth`` call from now waits before it does anything; 0: every call."""
        self._device.delay(ioctl, nth, seconds)
        return self

    def plan(self, text: str) -> FaultPlan:
        """Several at once, as the variable ``ZE_IPC_MOCK_FAULTS`` has them:
        ``"GEM_CREATE:3=ENOMEM, VM_BIND:1~500, VM_BIND:*=ENOBUFS"``.
        """
        entries = [word for word in re.split(r"[,\s]+", text) if word]
        parsed = [_ENTRY.fullmatch(word) for word in entries]
        for word, match in zip(entries, parsed, strict=True):
            if match is None:
                raise InvalidArgument("no fault", call="FaultPlan.plan", hint=_HINT, entry=word)
        for match in filter(None, parsed):
            nth = EVERY if match["nth"] == "*" else int(match["nth"])
            if match["errno"]:
                self.fail(match["ioctl"], nth, match["errno"])
            else:
                self.delay(match["ioctl"], nth, int(match["microseconds"]) / 1e6)
        return self

    def clear(self) -> None:
        """Forget what has not happened yet."""
        self._device.clear_faults()

    def calls(self, ioctl: str) -> int:
        """How often the device's ioctl was called so far, failed calls included."""
        name = ioctl.upper().removeprefix("DRM_IOCTL_")
        counts = self._device.counts()
        return counts.get(name, counts.get(f"XE_{name}", 0))

    def on(self, device: Device | int) -> FaultPlan:
        """The plan of another mock device: one that is open, or its number."""
        if not isinstance(device, int):
            node = device.render_node
            if not node.startswith("mock:"):
                raise InvalidArgument(
                    "only a mock device of this process has faults",
                    call="FaultPlan.on",
                    hint="open it with open_device('mock')",
                    render_node=node,
                )
            device = int(node.removeprefix("mock:"))
        return FaultPlan(device)

    @property
    def _device(self) -> MockDevice:
        return MockDevice.attached(self.index)


def _number(error: int | str) -> int:
    number = getattr(errors, error, 0) if isinstance(error, str) else error
    if not isinstance(number, int) or not 0 < number < 4096:
        raise InvalidArgument(
            "no errno", call="FaultPlan.fail", hint="pass a name such as 'ENOSPC'", errno=error
        )
    return number
