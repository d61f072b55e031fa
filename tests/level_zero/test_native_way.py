"""A driver that has the range extension: its handles go through loader and layers unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import ze_ipc
from helpers import native_way, ranges
from ze_ipc import loader
from ze_ipc.peer_process import Peer

PAGE = 4096

THROUGH: dict[str, dict[str, str]] = {
    "alone": {},
    "loader": {},
    "intercept": {"ZE_ENABLE_LOADER_INTERCEPT": "1"},
    "validation": {"ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"},
    "tracing": {"ZE_ENABLE_TRACING_LAYER": "1"},
}
"""What is between us and the driver: nothing, or the system's loader and its layers."""


@pytest.fixture(scope="session")
def has_loader() -> bool:
    """Whether this system has a loader; where it must have one, none is a failure."""
    found = loader.first_found(loader.LOADERS)
    if "level_zero" in os.environ.get("ZE_IPC_TEST_REQUIRE", ""):
        assert found.loads, found.problem
    return found.loads


@pytest.fixture(params=THROUGH)
def through(
    request: pytest.FixtureRequest,
    library: Path,
    has_loader: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Sets what processes inherit."""
    name = str(request.param)
    if name == "alone":
        monkeypatch.setenv("ZEL_LIBRARY_PATH", str(library.parent))
        return name
    if not has_loader:
        pytest.skip("no Level Zero loader on this system")
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", str(library))
    for variable, value in THROUGH[name].items():
        monkeypatch.setenv(variable, value)
    return name


@pytest.fixture
def process(through: str) -> Iterator[Callable[[], Peer]]:
    """Starts processes with an open device."""
    with ExitStack() as undo:

        def start() -> Peer:
            peer = undo.enter_context(Peer())
            peer.call(ranges.open_device, 0, "level_zero")
            undo.callback(_close, peer)
            return peer

        yield start


def _close(peer: Peer) -> None:
    with suppress(BrokenPipeError):  # a test may have killed it
        peer.call(ranges.close_all)


def test_the_drivers_handle_travels(process: Callable[[], Peer]) -> None:
    exporter, importer = process(), process()
    assert exporter.call(native_way.describe)["way"] == "native"
    for start, size in ((0, 4 * PAGE), (PAGE, PAGE), (100, 3 * PAGE), (4095, 2)):
        handle, data = exporter.call(native_way.export_offsets, PAGE, start, size)
        assert handle[:5] == b"range"
        ptr, opened = importer.call(ranges.open_view, handle)
        assert (opened, ptr % PAGE) == (size, start % PAGE)
        assert importer.call(ranges.read_view) == data
        assert importer.call(native_way.transport) == "native"
        assert importer.call(ranges.address_range, size // 2) == (True, size)
        importer.call(ranges.write_view, size - 1, b"!")
        assert exporter.call(native_way.read_exported, start + size - 1, 1) == b"!"
        exporter.call(ranges.put_handle)
        assert importer.call(native_way.refusal, handle) == "InvalidArgument"
        importer.call(ranges.close_view)
        exporter.call(native_way.drop_exported)
    handle, _ = exporter.call(native_way.export_offsets, PAGE, 0, PAGE)
    importer.call(ranges.open_view, handle)
    importer.call(ranges.write_view, 0, b"!")
    exporter.kill()
    assert importer.call(ranges.read_view, 0, 1) == b"!"


def test_the_drivers_own_refusals(process: Callable[[], Peer]) -> None:
    assert process().call(native_way.driver_refusals, PAGE) == {
        "hole": "AddressNotFound",
        "size": "InvalidSize",
        "null": "InvalidNullPointer",
        "usm": "InvalidArgument",
        "good": "nothing",
    }


def test_a_range_that_the_driver_cannot_hold(
    process: Callable[[], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZE_TEST_MAX_PARTS", "3")
    exporter = process()
    assert exporter.call(native_way.export_refusal, PAGE, 3)[0] == "nothing"
    assert exporter.call(native_way.export_refusal, PAGE, 4)[0] == "UnsupportedSize"


def test_without_the_extension_it_is_said_what_is_missing(
    process: Callable[[], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZE_TEST_NO_RANGE", "1")
    exporter = process()
    described = exporter.call(native_way.describe)
    assert described["way"] == "unsupported"
    assert "zePhysicalMemGetProperties" in described["reason"]
    name, text = exporter.call(native_way.export_refusal, PAGE, 1)
    assert name == "UnsupportedFeature", text
    assert described["reason"] in text


def test_objects_of_several_tiles_are_mapped_whole(
    process: Callable[[], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert process().call(native_way.offset_refusal, PAGE) == ("nothing", "")
    monkeypatch.setenv("ZE_TEST_TILES", "2")
    refused = process().call(native_way.offset_refusal, PAGE)
    assert refused == ("UnsupportedFeature", "zeVirtualMemMap")


def test_a_handle_type_is_chained_behind_the_range(process: Callable[[], Peer]) -> None:
    exporter = process()
    types = {}
    for name in (None, "default"):
        handle = exporter.call(native_way.export_typed, PAGE, name)
        types[name] = int.from_bytes(handle[16:20], "little")  # where this driver writes it down
    assert types == {None: 0, "default": 1}
    refused = exporter.call(native_way.export_typed, PAGE, "fabric")
    assert refused == ze_ipc.Result.UNSUPPORTED_ENUMERATION


def test_a_loader_that_cannot_trace_says_so(process: Callable[[], Peer], through: str) -> None:
    found = loader.first_found(loader.LOADERS, {"zelEnableTracingLayer": ""})
    at_start_only = bool(found.missing_entries) and through != "tracing"
    refusal, _ = process().call(native_way.observe_refusal)
    cannot = through == "alone" or at_start_only
    assert refusal == ("UnsupportedFeature" if cannot else "nothing")


def test_handles_of_the_two_ways_do_not_mix(process: Callable[[], Peer]) -> None:
    exporter = process()
    handle, _ = exporter.call(native_way.export_offsets, PAGE, 0, PAGE)
    with (
        ze_ipc.open_device("mock") as ours,
        ours.reserve(65536) as reservation,
        ours.physical_memory(65536) as memory,
    ):
        with pytest.raises(ze_ipc.InvalidHandle):
            ours.open_ipc_handle(handle)
        assert not ours.can_open(handle)
        reservation.map(memory, at=0)
        with ours.get_ipc_handle(reservation.ptr, 65536) as other:
            assert exporter.call(native_way.refusal, bytes(other)) != "nothing"
