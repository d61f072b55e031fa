"""Fixtures for projects that build on ze_ipc; active wherever ze_ipc is installed beside pytest.

Nothing of the package is imported before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.peer_process import Peer


@pytest.fixture
def xe_mocks() -> Iterator[Callable[[int], list[Device]]]:
    """Call it with a number: that many different open mock devices, closed after the test."""
    from ze_ipc.open_device import open_device

    with ExitStack() as opened:
        yield lambda count: [
            opened.enter_context(open_device("mock", index)) for index in range(count)
        ]


@pytest.fixture
def xe_mock(xe_mocks: Callable[[int], list[Device]]) -> Device:
    """An open mock device."""
    return xe_mocks(1)[0]


@pytest.fixture
def ze_ipc_peer() -> Iterator[Callable[[], Peer]]:
    """Call it for another process: ``peer.call(function, *arguments, timeout=30.0)`` runs a
    module-level ``function(state, *arguments)`` there, ``state`` being a dict that lives there.
    """
    from ze_ipc.peer_process import Peer

    with ExitStack() as started:
        yield lambda: started.enter_context(Peer())
