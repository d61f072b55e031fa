"""The heap of GPU addresses against a model: a set of taken units."""

import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ze_ipc.errors import InvalidArgument, OutOfDeviceMemory
from ze_ipc.xe.va import VaHeap

START, END = 3, 67
"""Small and odd, so that full heaps, holes of every size and unaligned edges are common."""


class HeapMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.heap = VaHeap(START, END)
        self.taken: dict[int, int] = {}
        self.lent: list[tuple[int, int]] = []

    def free(self) -> set[int]:
        used = {unit for start, size in self.taken.items() for unit in range(start, start + size)}
        for start, end in self.lent:
            used |= set(range(start, end))
        return set(range(START, END)) - used

    @rule(size=st.integers(1, 40), alignment=st.sampled_from([1, 2, 3, 8, 16]), data=st.data())
    def reserve(self, size: int, alignment: int, data: st.DataObject) -> None:
        phase = data.draw(st.integers(0, alignment - 1))
        free = self.free()
        fits = [
            start
            for start in range(START, END)
            if start % alignment == phase and free.issuperset(range(start, start + size))
        ]
        if not fits:
            with pytest.raises(OutOfDeviceMemory):
                self.heap.reserve(size, alignment, phase)
            return
        address = self.heap.reserve(size, alignment, phase)
        assert address in fits
        self.taken[address] = size

    @rule(address=st.integers(0, END + 2), size=st.integers(1, 20))
    def reserve_at(self, address: int, size: int) -> None:
        if self.free().issuperset(range(address, address + size)):
            self.heap.reserve_at(address, size)
            self.taken[address] = size
        else:
            with pytest.raises(InvalidArgument):
                self.heap.reserve_at(address, size)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(sorted(self.taken)))
        self.heap.release(address, self.taken.pop(address))

    @rule(address=st.integers(0, END + 2), size=st.integers(1, 20))
    def release_what_is_not_reserved(self, address: int, size: int) -> None:
        if self.taken.get(address) != size:
            with pytest.raises(InvalidArgument):
                self.heap.release(address, size)

    @rule()
    def lend(self) -> None:
        free = self.free()
        ground = self.heap.lend()
        assert free.issuperset(range(*ground))
        if ground == (0, 0):
            # There may be holes as large, but none as large at the top.
            assert END - 1 not in free or len(free) < (END - START) // 8 or self.taken or self.lent
        else:
            self.lent.append(ground)

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        ground = self.lent.pop(data.draw(st.integers(0, len(self.lent) - 1)))
        address = data.draw(st.integers(*ground))
        size = data.draw(st.integers(0, ground[1] - address))
        self.heap.settle(ground, address, size)
        if size:
            self.taken[address] = size

    @invariant()
    def everything_can_be_had_again(self) -> None:
        if not self.taken and not self.lent:
            assert self.heap.reserve(END - START) == START
            self.heap.release(START, END - START)


TestHeap = HeapMachine.TestCase
TestHeap.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_ground_is_taken_from_its_front_and_put_back_there() -> None:
    heap = VaHeap(1 << 21, 1 << 47)
    ground = heap.lend()
    heap.settle(ground, ground[0], 4096)
    again = heap.lend()
    assert again == (ground[0] + 4096, ground[1])
    heap.settle(again, 0, 0)
    heap.release(ground[0], 4096)
    assert heap.lend() == ground


def test_ground_that_is_asked_for_by_address_is_given() -> None:
    heap = VaHeap(1 << 21, 1 << 47)
    ground = heap.lend()
    heap.settle(ground, 0, 0)
    heap.reserve_at(ground[0] + 4096, 4096)
    assert heap.lend() != ground


@pytest.mark.parametrize("start", [0, -1, 10])
def test_a_heap_without_room_or_with_address_zero_is_refused(start: int) -> None:
    with pytest.raises(InvalidArgument):
        VaHeap(start, 10)


@pytest.mark.parametrize(
    ("size", "alignment", "phase"), [(0, 1, 0), (1, 0, 0), (1, 4, 4), (1, 4, -1)]
)
def test_senseless_requests_are_refused(size: int, alignment: int, phase: int) -> None:
    with pytest.raises(InvalidArgument):
        VaHeap(1, 100).reserve(size, alignment, phase)


def test_cost_does_not_grow_with_the_number_of_holes() -> None:
    heap = VaHeap(1 << 21, 1 << 47)
    small = [heap.reserve(4096, 4096) for _ in range(20_000)]
    for address in small[::2]:
        heap.release(address, 4096)

    def best(count: int) -> float:
        rounds = []
        for _ in range(3):
            begun = time.perf_counter()
            got = [heap.reserve(2 << 20, 2 << 20) for _ in range(count)]
            for address in got:
                heap.release(address, 2 << 20)
            rounds.append(time.perf_counter() - begun)
        return min(rounds) / count

    # 10,000 holes that are too small lie below: looking through them takes milliseconds.
    assert best(200) < 300e-6
