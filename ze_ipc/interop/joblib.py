"""Ranges as arguments of joblib's loky workers.

``register()`` once in the process that calls ``Parallel``: imported ranges and reservations then go
to workers as through multiprocessing (interop.multiprocessing), and arrive as ImportedRange. What a
worker returns is for its own ``register()`` to teach, or better a handle: ``bytes(handle)``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from ze_ipc.imported_range import ImportedRange
from ze_ipc.pickling import reduce
from ze_ipc.reservation import Reservation


def register() -> None:
    """Teach the loky of joblib, and the loky package where it is installed, our ranges."""
    names = ["joblib.externals.loky"]
    if find_spec("loky") is not None:
        names.append("loky")
    for name in names:
        reduction = import_module(f"{name}.backend.reduction")
        for kind in (ImportedRange, Reservation):
            reduction.register(kind, reduce)
