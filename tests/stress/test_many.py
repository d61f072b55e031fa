"""Many threads, many importers, many turns: right bytes, and resources that stay flat."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import ze_ipc
from stress.actions import content
from stress.nest import Chick, Nest
from stress.settings import times

pytestmark = pytest.mark.timeout(3600)

OBJECTS = 3
GROWTH = 3 << 20
"""Bytes of resident memory that allocators may keep, whatever the number of turns."""


@pytest.fixture
def nest() -> Iterator[Nest]:
    with Nest() as nest:
        yield nest


@pytest.fixture
def exporter(nest: Nest) -> Iterator[Chick]:
    with nest.hatch() as chick:
        chick.call("begin")
        chick.call("make_range", OBJECTS)
        yield chick


def assert_flat(chick: Chick, was: tuple[int, int, int]) -> None:
    """The same descriptors, threads and memory, once what the last open began has ended."""
    deadline = time.monotonic() + 20
    while True:
        now = chick.call("usage")
        flat = now[0] <= was[0] and now[1] <= was[1] and now[2] <= was[2] + GROWTH
        if flat or time.monotonic() > deadline:
            assert flat, f"(descriptors, threads, bytes): {was} -> {now}"
            return
        time.sleep(0.05)


def test_open_and_close_again_and_again(nest: Nest, exporter: Chick) -> None:
    handle = exporter.call("export_range")
    with nest.hatch() as importer:
        importer.call("begin")
        importer.call("open_and_close", handle, 300, content(OBJECTS))
        before = exporter.call("usage"), importer.call("usage")
        turns = times(2000, 100_000)
        for _ in range(turns // 500):
            importer.call("open_and_close", handle, 500, content(OBJECTS))
        for chick, was in zip((exporter, importer), before, strict=True):
            assert_flat(chick, was)


def test_many_importers_of_one_export(nest: Nest, exporter: Chick) -> None:
    handle, count = exporter.call("export_range"), times(40, 1000)
    fds = exporter.call("usage")[0]
    importers = []
    for _ in range(count):
        importers.append(nest.hatch())
        importers[-1].start("begin")
    for importer in importers:
        importer.result()
        importer.start("open_view", "view", handle)
    for importer in importers:
        assert importer.result() == len(content(OBJECTS))
    # Each is listed when its last word has come.
    deadline, wanted = time.monotonic() + 60, {importer.pid for importer in importers}
    while (listed := set(exporter.call("importers"))) != wanted:
        assert time.monotonic() < deadline, listed ^ wanted
        time.sleep(0.02)
    # One descriptor for each of some importers, however many there are.
    assert exporter.call("usage")[0] <= fds + 64
    for importer in importers[::2]:
        importer.kill()
    for importer in importers[1::2]:
        assert importer.call("read", "view", 0, len(content(OBJECTS))) == content(OBJECTS)
    exporter.call("close", "handle")
    for importer in importers[1::2]:
        importer.end()


def test_threads_that_export_and_open_while_ioctls_are_late(nest: Nest, exporter: Chick) -> None:
    for ioctl in ("PRIME_HANDLE_TO_FD", "PRIME_FD_TO_HANDLE", "XE_VM_BIND", "GEM_CLOSE"):
        exporter.call("delay", ioctl, 0.0003)
    turns = times(8, 1000)
    exporter.start("race", 16, turns, OBJECTS)
    handles = 0
    with nest.hatch() as other:
        other.call("begin")
        assert exporter.result() == 16 * turns
        # What the race has left behind serves on.
        handle = exporter.call("export_range")
        for _ in range(3):
            handles += other.call("open_view", f"view{handles}", handle) > 0
        assert other.call("read", "view1", 0, 100) == content(OBJECTS)[:100]
        exporter.call("close", "handle")
        with pytest.raises(ze_ipc.HandleRevoked):
            other.call("open_view", "late", handle)
