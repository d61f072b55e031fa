"""Processes that reserve, map, export, open, copy, unmap, put, die and restart in any order, held
against a model of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import ze_ipc
from stress.actions import PAGE
from stress.nest import Chick, Nest
from stress.settings import LONG, times

PROCESSES = 3
PAGES = 6
"""Of a reservation and of an object, at most."""


@dataclass(slots=True, repr=False)
class Place:
    """A page of a range: a page of an object, or a hole."""

    memory: bytearray
    offset: int
    read_only: bool


@dataclass(slots=True, repr=False)
class Target:
    """A reservation, or an imported view: pages, of which a view shows a part."""

    name: str
    places: list[Place | None]
    lead: int
    size: int
    is_view: bool

    def window(self, offset: int, size: int) -> list[Place | None]:
        """The pages that some bytes of it touch."""
        first = (self.lead + offset) // PAGE
        return self.places[first : (self.lead + offset + size - 1) // PAGE + 1]

    def parts(self, offset: int, size: int) -> list[tuple[Place, int, int]]:
        """(page, begin in the object, length) for bytes that are all mapped."""
        found = []
        at, end = self.lead + offset, self.lead + offset + size
        while at < end:
            place = self.places[at // PAGE]
            assert place is not None
            length = min(end, (at // PAGE + 1) * PAGE) - at
            found.append((place, place.offset + at % PAGE, length))
            at += length
        return found

    def bytes(self, offset: int, size: int) -> bytes:
        return b"".join(
            bytes(place.memory[begin : begin + length])
            for place, begin, length in self.parts(offset, size)
        )

    def store(self, offset: int, data: bytes) -> None:
        at = 0
        for place, begin, length in self.parts(offset, len(data)):
            place.memory[begin : begin + length] = data[at : at + length]
            at += length


@dataclass(slots=True, repr=False)
class Sent:
    """A handle that somebody exported."""

    name: str
    data: bytes
    owner: Process
    places: list[Place | None]
    lead: int
    size: int
    put: bool = False


@dataclass(slots=True, repr=False)
class Process:
    """A process as the model knows it."""

    chick: Chick
    targets: list[Target] = field(default_factory=list)
    memories: dict[str, bytearray] = field(default_factory=dict)
    alive: bool = True


class Sharing(RuleBasedStateMachine):
    """Every rule does one thing in one process and in the model."""

    nest: Nest

    def __init__(self) -> None:
        super().__init__()
        self._names = 0
        self._sent: list[Sent] = []
        self._processes = [self._hatch() for _ in range(PROCESSES)]

    def teardown(self) -> None:
        for process in self._processes:
            for target in process.targets:
                self._compare(process, target)
        for process in self._processes:
            process.chick.end()

    @rule(slot=st.integers(0, PROCESSES - 1), pages=st.integers(1, PAGES), full=st.booleans())
    def reserve(self, slot: int, pages: int, full: bool) -> None:
        process, name = self._processes[slot], self._name("range")
        process.chick.call("reserve", name, pages)
        target = Target(name, [None] * pages, 0, pages * PAGE, is_view=False)
        process.targets.append(target)
        if full:
            memory = self._name("memory")
            content = process.memories[memory] = bytearray(pages * PAGE)
            process.chick.call("map_pages", name, 0, memory, pages, 0, pages, "rw")
            target.places = [Place(content, page * PAGE, False) for page in range(pages)]

    @precondition(lambda self: self._any_range())
    @rule(data=st.data())
    def map(self, data: st.DataObject) -> None:
        process, target = self._draw_range(data)
        holes = [index for index, place in enumerate(target.places) if place is None]
        if not holes:
            return
        at = data.draw(st.sampled_from(holes))
        room = 1
        while at + room < len(target.places) and target.places[at + room] is None:
            room += 1
        names = [*process.memories, self._name("memory")]
        memory = data.draw(st.sampled_from(names))
        size = data.draw(st.integers(1, PAGES))
        content = process.memories.setdefault(memory, bytearray(size * PAGE))
        whole = len(content) // PAGE
        offset = data.draw(st.integers(0, whole - 1))
        pages = data.draw(st.integers(1, min(room, whole - offset)))
        access = data.draw(st.sampled_from(["rw", "rw", "rw", "ro"]))
        process.chick.call("map_pages", target.name, at, memory, whole, offset, pages, access)
        for page in range(pages):
            target.places[at + page] = Place(content, (offset + page) * PAGE, access == "ro")

    @precondition(lambda self: self._any_range())
    @rule(data=st.data())
    def unmap(self, data: st.DataObject) -> None:
        process, target = self._draw_range(data)
        at = data.draw(st.integers(0, len(target.places) - 1))
        pages = data.draw(st.integers(1, len(target.places) - at))
        process.chick.call("unmap_pages", target.name, at, pages)
        target.places[at : at + pages] = [None] * pages

    @precondition(lambda self: self._any_range())
    @rule(data=st.data())
    def export(self, data: st.DataObject) -> None:
        process, target = self._draw_any(data)
        offset, size = self._draw_window(data, target)
        window, name = target.window(offset, size), self._name("handle")
        lead = (target.lead + offset) % PAGE
        call = (process.chick.call, "export", name, target.name, offset, size)
        if None in window:
            with pytest.raises(ze_ipc.AddressNotFound):
                call[0](*call[1:])
            return
        raw = call[0](*call[1:])
        self._sent.append(Sent(name, raw, process, window, lead, size))

    @precondition(lambda self: self._sent)
    @rule(data=st.data(), slot=st.integers(0, PROCESSES - 1))
    def open(self, data: st.DataObject, slot: int) -> None:
        sent, process = data.draw(st.sampled_from(self._sent)), self._processes[slot]
        name = self._name("view")
        if not sent.owner.alive:
            with pytest.raises(ze_ipc.ExporterGone):
                process.chick.call("open_view", name, sent.data)
            return
        if sent.put:
            with pytest.raises(ze_ipc.HandleRevoked):
                process.chick.call("open_view", name, sent.data)
            return
        assert process.chick.call("open_view", name, sent.data) == sent.size
        view = Target(name, list(sent.places), sent.lead, sent.size, is_view=True)
        process.targets.append(view)
        self._compare(process, view)

    @precondition(lambda self: any(not sent.put and sent.owner.alive for sent in self._sent))
    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        living = [sent for sent in self._sent if not sent.put and sent.owner.alive]
        sent = data.draw(st.sampled_from(living))
        sent.owner.chick.call("close", sent.name)
        sent.put = True

    @precondition(lambda self: self._any())
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        process, target = self._draw_any(data)
        process.chick.call("close", target.name)
        process.targets.remove(target)

    @precondition(lambda self: self._any())
    @rule(data=st.data(), content=st.binary(min_size=1, max_size=64))
    def write(self, data: st.DataObject, content: bytes) -> None:
        process, target = self._draw_any(data)
        offset, size = self._draw_window(data, target)
        content = (content * (size // len(content) + 1))[: min(size, 3 * PAGE)]
        self._change(process, target, offset, content, "write", target.name, offset, content)

    @precondition(lambda self: self._any())
    @rule(data=st.data(), value=st.integers(0, 255))
    def fill(self, data: st.DataObject, value: int) -> None:
        process, target = self._draw_any(data)
        offset, size = self._draw_window(data, target)
        content = bytes([value]) * size
        self._change(process, target, offset, content, "fill", target.name, offset, value, size)

    @precondition(lambda self: self._any())
    @rule(data=st.data())
    def copy(self, data: st.DataObject) -> None:
        process, source = self._draw_any(data)
        target = data.draw(st.sampled_from(process.targets))
        offset, size = self._draw_window(data, source)
        size = min(size, target.size)
        at = data.draw(st.integers(0, target.size - size))
        there, here = target.window(at, size), source.window(offset, size)
        if None in here:
            return
        # What overlaps itself has no defined result.
        theirs = {(id(p.memory), p.offset) for p in there if p}
        if theirs & {(id(p.memory), p.offset) for p in here if p}:
            return
        content = source.bytes(offset, size)
        names = target.name, at, source.name, offset, size
        self._change(process, target, at, content, "copy", *names)

    @precondition(lambda self: self._any())
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        process, target = self._draw_any(data)
        offset, size = self._draw_window(data, target)
        if None in target.window(offset, size):
            with pytest.raises(ze_ipc.AddressNotFound):
                process.chick.call("read", target.name, offset, size)
            return
        assert process.chick.call("read", target.name, offset, size) == target.bytes(offset, size)

    @precondition(lambda self: self._any())
    @rule(slot=st.integers(0, PROCESSES - 1), chance=st.integers(0, 5))
    def die(self, slot: int, chance: int) -> None:
        if chance:
            return
        process = self._processes[slot]
        process.chick.kill()
        process.alive = False
        self._processes[slot] = self._hatch()

    @precondition(lambda self: self._any())
    @rule(slot=st.integers(0, PROCESSES - 1), chance=st.integers(0, 5))
    def restart(self, slot: int, chance: int) -> None:
        if chance:
            return
        process = self._processes[slot]
        process.chick.end()
        process.alive = False
        self._processes[slot] = self._hatch()

    # What the rules have in common.

    def _change(
        self, process: Process, target: Target, offset: int, content: bytes, *call: Any
    ) -> None:
        window = target.window(offset, len(content))
        if None in window:
            with pytest.raises(ze_ipc.AddressNotFound):
                process.chick.call(*call)
        elif any(place.read_only for place in window if place):
            with pytest.raises(ze_ipc.InvalidArgument):
                process.chick.call(*call)
        else:
            process.chick.call(*call)
            target.store(offset, content)

    def _compare(self, process: Process, target: Target) -> None:
        for index, place in enumerate(target.places):
            if place is not None:
                begin = max(0, index * PAGE - target.lead)
                size = min((index + 1) * PAGE - target.lead, target.size) - begin
                found = process.chick.call("read", target.name, begin, size)
                assert found == target.bytes(begin, size)

    def _hatch(self) -> Process:
        process = Process(self.nest.hatch())
        process.chick.call("begin")
        return process

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def _any_range(self) -> bool:
        return any(not t.is_view for process in self._processes for t in process.targets)

    def _any(self) -> bool:
        return any(process.targets for process in self._processes)

    def _draw_any(self, data: st.DataObject) -> tuple[Process, Target]:
        pairs = [(p, t) for p in self._processes for t in p.targets]
        index = data.draw(st.integers(0, len(pairs) - 1))
        return pairs[index]

    def _draw_range(self, data: st.DataObject) -> tuple[Process, Target]:
        pairs = [(p, t) for p in self._processes for t in p.targets if not t.is_view]
        index = data.draw(st.integers(0, len(pairs) - 1))
        return pairs[index]

    def _draw_window(self, data: st.DataObject, target: Target) -> tuple[int, int]:
        offset = data.draw(st.integers(0, target.size - 1))
        return offset, data.draw(st.integers(1, target.size - offset))


@pytest.mark.timeout(3600)
def test_any_order() -> None:
    with Nest() as Sharing.nest:
        from hypothesis.stateful import run_state_machine_as_test

        run_state_machine_as_test(
            Sharing,
            settings=settings(
                max_examples=times(12, 1000),
                stateful_step_count=times(40, 80),
                deadline=None,
                derandomize=True,
                phases=[*Phase] if LONG else [Phase.generate],
                suppress_health_check=list(HealthCheck),
                database=None,
            ),
        )
