"""The tests of the pool: no GPU needed, and every one of them proves that nothing is left."""

from __future__ import annotations

import pytest
from kvpool import PAGE, Pool

import ze_ipc


def read_pages(state, backend, handle):
    """Runs in another process: the first bytes of every page."""
    with ze_ipc.open_device(backend) as device, device.open_ipc_handle(handle) as view:
        return [device.read(view.ptr + at, 5) for at in range(0, view.size, PAGE)]


def test_another_process_sees_the_pages(ze_ipc_device, ze_ipc_backend, ze_ipc_peer):
    with Pool(ze_ipc_device, 8) as pool:
        for number in range(3):
            ze_ipc_device.write(pool.grow(), b"page%d" % number)
        with pool.share() as handle:
            assert ze_ipc_peer().call(read_pages, ze_ipc_backend, bytes(handle)) == [
                b"page0",
                b"page1",
                b"page2",
            ]


def test_a_pool_that_cannot_grow_stays_as_it_is(xe_mock, xe_mock_faults):
    with Pool(xe_mock, 8) as pool:
        pool.grow()
        xe_mock_faults.fail("VM_BIND", errno="ENOSPC")
        with pytest.raises(ze_ipc.OutOfDeviceMemory):
            pool.grow()
        assert pool.pages == 1
        pool.grow()
        assert pool.pages == 2


def test_a_slow_driver_is_waited_for(xe_mock, xe_mock_faults):
    xe_mock_faults.delay("GEM_CREATE", seconds=0.01)
    before = xe_mock_faults.calls("GEM_CREATE")
    with Pool(xe_mock, 8) as pool:
        pool.grow()
    assert xe_mock_faults.calls("GEM_CREATE") == before + 1


def test_each_gpu_has_a_pool(xe_mocks, xe_mock_faults):
    first, second = xe_mocks(2)
    with Pool(first, 2) as one, Pool(second, 2) as other:
        one.grow()
        xe_mock_faults.on(second).plan("GEM_CREATE:1=ENOMEM")
        with pytest.raises(ze_ipc.ZeIpcError):
            other.grow()
        one.grow()
    assert (one.pages, other.pages) == (2, 0)


@pytest.mark.ze_ipc_backend("mock")
def test_what_needs_the_mock_says_so(ze_ipc_device):
    assert ze_ipc_device.is_mock
