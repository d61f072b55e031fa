"""joblib's own worker processes (loky), and futures over them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

import ze_ipc
from helpers import mp_child
from ze_ipc.interop import joblib as interop

PAGE = 4096


@pytest.fixture(scope="module", autouse=True)
def workers() -> Iterator[None]:
    """Started once, and ended with all that loky keeps."""
    interop.register()
    Parallel(n_jobs=2)(delayed(abs)(number) for number in range(4))
    yield
    get_reusable_executor().shutdown(wait=True)


def test_arguments_of_workers(xe_mock: ze_ipc.Device) -> None:
    count = 4
    with xe_mock.reserve(count * PAGE) as reservation:
        for at in range(0, count * PAGE, PAGE):
            with xe_mock.physical_memory(PAGE) as memory:
                reservation.map(memory, at=at)
        tasks = (
            delayed(mp_child.write)(reservation, at * PAGE + 7, b"worker %d" % at)
            for at in range(count)
        )
        Parallel(n_jobs=2)(tasks)
        for at in range(count):
            assert xe_mock.read(reservation.ptr + at * PAGE + 7, 8) == b"worker %d" % at
        with (
            xe_mock.get_ipc_handle(reservation.ptr, PAGE) as handle,
            xe_mock.open_ipc_handle(handle) as view,
        ):
            found = Parallel(n_jobs=2)([delayed(mp_child.read)(view)] * 2)
        assert found == [("ImportedRange", xe_mock.read(reservation.ptr, PAGE))] * 2
