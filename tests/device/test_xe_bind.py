"""Binds on the mock: arrays, halving, all or nothing, and what an error names."""

from __future__ import annotations

import errno
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ze_ipc._mock import ffi as mock_ffi
from ze_ipc._mock import lib as mock
from ze_ipc._xe import lib
from ze_ipc.errors import (
    DeviceLost,
    InvalidArgument,
    KernelError,
    OpenTimeout,
    OutOfDeviceMemory,
    ZeIpcError,
)
from ze_ipc.xe import XeBackend, open_mock

PAGE = 4096
BIND = lib.DRM_IOCTL_XE_VM_BIND
INDEX, LIMITED = 0, 9
"""Mock devices: an ordinary one, and one that takes few operations in a bind."""
LIMIT = 16


@pytest.fixture
def backend() -> Iterator[XeBackend]:
    with open_mock(INDEX) as opened:
        yield opened
        mock.xe_mock_clear_faults(INDEX)


@pytest.fixture
def limited() -> Iterator[XeBackend]:
    with open_mock(LIMITED, max_bind_ops=LIMIT) as opened:
        yield opened
        mock.xe_mock_clear_faults(LIMITED)


def soon() -> float:
    return time.monotonic() + 20


def mappings(index: int = INDEX) -> int:
    stats = mock_ffi.new("struct xe_mock_stats *")
    assert mock.xe_mock_stats(index, stats) == 0
    return int(stats.mappings)


class Range:
    """``count`` objects of a page each, and a reservation for them."""

    def __init__(self, backend: XeBackend, count: int) -> None:
        self.backend, self.count = backend, count
        self.objects = backend.create_objects(PAGE, "host", count)
        self.address = backend.reserve(count * PAGE, None, PAGE, 0)

    def map(self, deadline: float | None = None) -> None:
        zeros, sizes = array("Q", bytes(8 * self.count)), array("Q", [PAGE] * self.count)
        self.backend.map_extents(
            self.address,
            self.objects,
            zeros,
            sizes,
            array("B", bytes(self.count)),
            deadline or soon(),
        )

    def give_back(self) -> None:
        self.backend.unreserve(self.address, self.count * PAGE)
        self.backend.release_objects(self.objects)

    def unmap(self) -> None:
        self.backend.unmap(self.address, self.count * PAGE, soon())


@pytest.fixture
def make_range() -> Iterator[Callable[[XeBackend, int], Range]]:
    made: list[Range] = []

    def make(backend: XeBackend, count: int) -> Range:
        made.append(Range(backend, count))
        return made[-1]

    yield make
    for one in made:
        if not one.backend.closed:
            one.unmap()
            one.give_back()


def test_an_array_is_one_ioctl(
    backend: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    block = make_range(backend, 5000)
    before = mock.xe_mock_count(INDEX, BIND)
    block.map()
    assert mock.xe_mock_count(INDEX, BIND) - before == 1
    assert mappings() == 5000


@pytest.mark.parametrize("count", [1, 2, LIMIT, LIMIT + 1, 100, 1000])
def test_an_array_too_long_is_halved_until_it_fits(
    limited: XeBackend, make_range: Callable[[XeBackend, int], Range], count: int
) -> None:
    block = make_range(limited, count)
    block.map()
    assert mappings(LIMITED) == count
    block.unmap()
    assert mappings(LIMITED) == 0


def test_the_length_that_passed_is_remembered(
    limited: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    first, second = make_range(limited, 100), make_range(limited, 100)
    counts = []
    for block in (first, second):
        before = mock.xe_mock_count(LIMITED, BIND)
        block.map()
        counts.append(mock.xe_mock_count(LIMITED, BIND) - before)
    # 100, 50 and 25 are refused once; 12 pass.
    assert counts == [3 + 9, 9]


def test_a_want_of_memory_does_not_make_arrays_short_for_ever(
    backend: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    block = make_range(backend, 10_000)
    for nth in range(1, 14):
        assert mock.xe_mock_fault(INDEX, BIND, nth, errno.ENOBUFS, 0) == 0
    before = mock.xe_mock_count(INDEX, BIND)
    block.map()
    block.unmap()
    mock.xe_mock_clear_faults(INDEX)
    # From single extents on, 64 arrays of each length.
    assert mock.xe_mock_count(INDEX, BIND) - before < 13 + 64 * 9
    before = mock.xe_mock_count(INDEX, BIND)
    block.map()
    assert mock.xe_mock_count(INDEX, BIND) - before < 80


def test_enobufs_down_to_single_extents(
    backend: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    block = make_range(backend, 8)
    for nth in (1, 2, 3):
        assert mock.xe_mock_fault(INDEX, BIND, nth, errno.ENOBUFS, 0) == 0
    before = mock.xe_mock_count(INDEX, BIND)
    block.map()
    # 8, 4 and 2 refused, then eight single ones.
    assert mock.xe_mock_count(INDEX, BIND) - before == 3 + 8
    assert mappings() == 8


def test_enobufs_for_a_single_extent_is_an_error(
    backend: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    block = make_range(backend, 4)
    assert mock.xe_mock_fault(INDEX, BIND, 0, errno.ENOBUFS, 0) == 0
    with pytest.raises(OutOfDeviceMemory):
        block.map()
    mock.xe_mock_clear_faults(INDEX)
    assert mappings() == 0


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize(
    ("number", "cls"),
    [
        (errno.ENOSPC, OutOfDeviceMemory),
        (errno.ENOMEM, OutOfDeviceMemory),
        (errno.EINVAL, KernelError),
        (errno.ENOENT, DeviceLost),
        (errno.EIO, DeviceLost),
    ],
)
def test_a_failure_of_the_kth_bind_leaves_nothing(
    limited: XeBackend,
    make_range: Callable[[XeBackend, int], Range],
    k: int,
    number: int,
    cls: type[ZeIpcError],
) -> None:
    # 100 extents: ENOBUFS at 100, 50 and 25, then nine arrays of at most 12.
    block = make_range(limited, 100)
    assert mock.xe_mock_fault(LIMITED, BIND, 3 + k, number, 0) == 0
    with pytest.raises(cls):
        block.map()
    mock.xe_mock_clear_faults(LIMITED)
    assert mappings(LIMITED) == 0
    block.map()
    assert mappings(LIMITED) == 100


@pytest.mark.parametrize("bad", [0, 1, 2, 3, 6])
def test_the_failing_extent_is_found(
    backend: XeBackend, make_range: Callable[[XeBackend, int], Range], bad: int
) -> None:
    block = make_range(backend, 7)
    offsets = array("Q", bytes(8 * 7))
    # Beyond its object's end: the kernel refuses this one, and says only that it refuses.
    offsets[bad] = PAGE
    with pytest.raises(KernelError) as caught:
        backend.map_extents(
            block.address,
            block.objects,
            offsets,
            array("Q", [PAGE] * 7),
            array("B", bytes(7)),
            soon(),
        )
    assert (caught.value.errno, caught.value.object_index) == (errno.EINVAL, bad)
    assert mappings() == 0


def test_an_object_that_is_not_held_is_refused_before_the_kernel_is_asked(
    backend: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    block = make_range(backend, 3)
    objects = block.objects[:]
    objects[1] = 999
    before = mock.xe_mock_count(INDEX, BIND)
    with pytest.raises(KernelError):
        backend.map_extents(
            block.address,
            objects,
            array("Q", bytes(24)),
            array("Q", [PAGE] * 3),
            array("B", bytes(3)),
            soon(),
        )
    assert mock.xe_mock_count(INDEX, BIND) - before <= 2
    assert mappings() == 0


def test_an_unmap_of_too_many_mappings_is_cut(
    limited: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    block = make_range(limited, 40 * LIMIT)
    block.map()
    limited.unmap(block.address, 40 * LIMIT * PAGE, soon())
    assert mappings(LIMITED) == 0


def test_an_unmap_splits_what_reaches_beyond(backend: XeBackend) -> None:
    obj = backend.create_objects(4 * PAGE, "host", 1)
    address = backend.reserve(4 * PAGE, None, PAGE, 0)
    columns = array("Q", [0]), array("Q", [4 * PAGE]), array("B", [0])
    backend.map_extents(address, obj, *columns, soon())
    backend.unmap(address + PAGE, PAGE, soon())
    assert mappings() == 2
    backend.unmap(address, 4 * PAGE, soon())
    assert mappings() == 0
    backend.unreserve(address, 4 * PAGE)
    backend.release_objects(obj)


def test_an_unmap_of_a_hole_is_nothing(backend: XeBackend) -> None:
    address = backend.reserve(PAGE, None, PAGE, 0)
    backend.unmap(address, PAGE, soon())
    backend.unreserve(address, PAGE)


def test_mappings_outlive_the_references_of_their_objects(
    backend: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    block = make_range(backend, 4)
    block.map()
    backend.retain_objects(block.objects)
    backend.release_objects(block.objects)
    backend.release_objects(block.objects)
    assert backend.live_objects == 0
    assert mappings() == 4
    block.unmap()
    block.objects = backend.create_objects(PAGE, "host", 4)


def test_a_deadline_that_has_passed_still_takes_a_bind_that_is_done(
    backend: XeBackend, make_range: Callable[[XeBackend, int], Range]
) -> None:
    block = make_range(backend, 2)
    try:
        block.map(deadline=time.monotonic() - 1)
    except OpenTimeout:
        assert mappings() == 0
    else:
        assert mappings() == 2


def test_addresses_that_a_given_up_bind_may_still_take_are_not_handed_out_again(
    backend: XeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock's binds are never that late: what a kernel would say is put into its mouth."""
    block = Range(backend, 2)
    monkeypatch.setattr(backend._space, "_map", lambda *_: (-errno.ETIME, True))
    monkeypatch.setattr(backend._space, "_unmap", lambda *_: -errno.EBUSY)
    with pytest.raises(OpenTimeout) as caught:
        block.map()
    assert isinstance(caught.value.__cause__, KernelError)
    block.give_back()
    with pytest.raises(InvalidArgument):
        backend.reserve(PAGE, block.address, PAGE, 0)
    assert backend.reserve(PAGE, None, PAGE, 0) >= block.address + 2 * PAGE


def test_an_interrupt_in_the_middle_of_a_bind_undoes_it(
    backend: XeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = Range(backend, 4)
    whole = backend._space._map
    calls = iter([-errno.ENOBUFS, 0])

    def interrupted(*args: Any) -> tuple[int, bool]:
        rc = next(calls, None)
        if rc is None:
            raise KeyboardInterrupt
        return whole(*args) if rc == 0 else (rc, False)

    monkeypatch.setattr(backend._space, "_map", interrupted)
    with pytest.raises(KeyboardInterrupt):
        block.map()
    assert mappings() == 0
    block.give_back()


def test_binds_from_many_threads(backend: XeBackend) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(30):
                block = Range(backend, 20)
                block.map()
                block.unmap()
                block.give_back()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert mappings() == 0
    assert backend.live_objects == 0
