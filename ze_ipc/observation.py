"""Memory that other code of this process maps: PyTorch, SYCL, C."""

from __future__ import annotations

import atexit

from ze_ipc.level_zero import observing
from ze_ipc.owner import Owner

_open: set[Observation] = set()
"""Who switched it on and not off again; kept here, so that nobody else has to."""


class Observation(Owner):
    """Keeps an eye on Level Zero until close(); a context manager."""

    def __init__(self) -> None:
        observing.start()
        self._open(None)
        _open.add(self)

    def _release(self) -> None:
        _open.discard(self)
        observing.stop()

    def __repr__(self) -> str:
        return f"<Observation {'closed' if self.closed else 'open'}>"


def observe() -> Observation:
    """From now on ``get_ipc_handle`` of a ``level_zero`` device takes pointers to memory that other
    code of this process mapped through the loader: PyTorch, SYCL, C libraries.

    Reservations, physical memory, mappings and allocations are seen from this call on, until the
    result is closed or the process ends; call it before that code starts to map. What it cannot
    see is unknown, and AddressNotFound says so: what was mapped before, and calls that go past the
    loader. Physical memory that is destroyed while a handle of it is open stays alive, for one
    descriptor an object. Raises DeviceNotVisible without Level Zero, and UnsupportedFeature where
    the loader cannot trace: before 1.15.7 it needs ``ZE_ENABLE_TRACING_LAYER=1`` from its start.
    Costs well below a microsecond a call of Level Zero.
    """
    return Observation()


@atexit.register
def _close_all() -> None:
    for observation in list(_open):
        observation.close()
