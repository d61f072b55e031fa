"""Fixtures for projects that build on ze_ipc; active wherever ze_ipc is installed beside pytest.

Nothing of the package is imported before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.fault_plan import FaultPlan
    from ze_ipc.open_device import BackendName
    from ze_ipc.peer_process import Peer

BACKENDS = ("mock", "xe", "level_zero")

_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which backend tests run on that do not care."""
    group = parser.getgroup("ze_ipc", "GPU memory shared between processes (ze_ipc)")
    group.addoption(
        "--ze-ipc-backend",
        choices=BACKENDS,
        help="backend of the fixture ze_ipc_device (default: the ini option ze_ipc_backend, mock)",
    )
    parser.addini("ze_ipc_backend", "backend of the fixture ze_ipc_device", default="mock")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a wrong ini option at once, not in the first test."""
    config.addinivalue_line(
        "markers",
        "ze_ipc_backend(name): the backend that this test needs of ze_ipc_device, whatever the"
        " option says: 'mock', 'xe' or 'level_zero'",
    )
    chosen = config.getini("ze_ipc_backend")
    if chosen not in BACKENDS:
        raise pytest.UsageError(f"ze_ipc_backend = {chosen!r} is none of {', '.join(BACKENDS)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which tests failed: ``no_leaks`` does not ask those."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture
def ze_ipc_backend(request: pytest.FixtureRequest) -> BackendName:
    """The backend of this test: its marker ``ze_ipc_backend``, else the option, else the ini."""
    marker = request.node.get_closest_marker("ze_ipc_backend")
    chosen = marker.args[0] if marker is not None and marker.args else None
    if marker is not None and chosen not in BACKENDS:
        pytest.fail(f"the marker ze_ipc_backend needs one of {', '.join(BACKENDS)}", pytrace=False)
    option = request.config.getoption("--ze-ipc-backend")
    return cast("BackendName", chosen or option or request.config.getini("ze_ipc_backend"))


@pytest.fixture
def ze_ipc_device(ze_ipc_backend: BackendName, _ze_ipc_before: None) -> Iterator[Device]:
    """An open device of the chosen backend; a missing GPU is an error, never a silent skip."""
    from ze_ipc.open_device import open_device

    with open_device(ze_ipc_backend) as device:
        yield device


@pytest.fixture
def xe_mocks(_ze_ipc_before: None) -> Iterator[Callable[[int], list[Device]]]:
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
def xe_mock_faults() -> Iterator[FaultPlan]:
    """What shall go wrong on the first mock device: ``.fail("VM_BIND", nth=2, errno="ENOSPC")``,
    ``.delay(...)``, ``.plan("GEM_CREATE:1=ENOMEM")``; ``.on(device)`` for another one.
    """
    from ze_ipc import mock
    from ze_ipc.fault_plan import FaultPlan

    yield FaultPlan()
    mock.clear_all_faults()


@pytest.fixture
def ze_ipc_peer(_ze_ipc_before: None) -> Iterator[Callable[[], Peer]]:
    """Call it for another process: ``peer.call(function, *arguments, timeout=30.0)`` runs a
    module-level ``function(state, *arguments)`` there, ``state`` being a dict that lives there.
    """
    from ze_ipc.peer_process import Peer

    with ExitStack() as started:
        yield lambda: started.enter_context(Peer())


@pytest.fixture
def no_leaks(_ze_ipc_before: None) -> None:
    """Fail the test unless it gave everything back: fds, threads, child processes, mappings of
    device memory, socket files, and the handles, VMs and objects of mock devices.

    ``usefixtures = no_leaks`` in the ini file asks it of every test. A test that has failed already
    is not asked: its traceback keeps its objects alive.
    """


@pytest.fixture
def _ze_ipc_before(request: pytest.FixtureRequest) -> Iterator[Literal[None]]:
    """What is held before the other fixtures here take anything; asked again after they ended."""
    if "no_leaks" not in request.fixturenames:
        yield None
        return
    from ze_ipc import leaks

    before = leaks.take()
    yield None
    if not request.node.stash.get(_FAILED, False) and (left := leaks.left_behind(before)):
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)
