"""Mock devices for programs in the root: preload library, tree and environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from real_stack.root import Root

TREE = "/mnt/ze-ipc-mock/tree"
LIBRARY = "/mnt/ze-ipc-mock/lib"


@dataclass(frozen=True, slots=True)
class MockDevices:
    """What `Root.run` needs so that a program finds mock devices."""

    root: Root
    env: Mapping[str, str]


@contextmanager
def mock_devices(root: Root, devices: int, profile: str, vram: int) -> Iterator[MockDevices]:
    """Mock devices of this checkout's ze_ipc (which must be installed), for runs in the block.

    VRAM is bytes a device.
    """
    from ze_ipc import mock_run

    with mock_run.environment(devices, profile, vram) as variables:
        library = Path(variables["LD_PRELOAD"].split(":", 1)[0])
        tree = Path(variables["ZE_IPC_MOCK_ROOT"])
        inside = root.with_binds((tree, TREE), (library.parent, LIBRARY))
        paths = {"LD_PRELOAD": f"{LIBRARY}/{library.name}", "ZE_IPC_MOCK_ROOT": TREE}
        yield MockDevices(inside, {**variables, **paths})
