"""Ranges that a C library maps through the loader, in the process that exports them."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import ze_ipc
from helpers import libraries, native_way, ranges
from ze_ipc import errors
from ze_ipc.level_zero.table import open_table
from ze_ipc.peer_process import Peer

PAGE = 65536
COUNT = 5


@dataclass(frozen=True)
class Mapper:
    """mapper.c; sizes are bytes."""

    library: ctypes.CDLL

    def map(self, count: int = COUNT, offset: int = 0, device: int = 0, room: int = 0) -> int:
        """A range of objects, each filled with its number; its address. ``room``: pages more."""
        address = self.library.mapper_map(device, count, PAGE, offset, (count + room) * PAGE)
        assert address
        for index in range(count if device == 0 else 0):
            self.call("fill", ctypes.c_uint64(address + index * PAGE), index + 1, PAGE)
        return int(address)

    def call(self, name: str, *arguments: object) -> None:
        assert getattr(self.library, f"mapper_{name}")(*arguments) == 0

    def unmap(self, address: int) -> None:
        self.call("unmap", ctypes.c_uint64(address))

    def read(self, address: int, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        self.call("read", ctypes.c_uint64(address), out, ctypes.c_size_t(size))
        return out.raw


def dma_bufs() -> int:
    """How many descriptors of memory this process has."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(os.readlink(link))  # noqa: PTH115
    return sum(link.startswith("/dmabuf") for link in links)


def numbered(count: int = COUNT) -> bytes:
    return b"".join(bytes([index + 1]) * PAGE for index in range(count))


@pytest.fixture(scope="session")
def mapper_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = libraries.mapper(tmp_path_factory.mktemp("mapper") / "libmapper.so")
    library = ctypes.CDLL(str(path))
    for name in ("map", "allocate"):
        getattr(library, f"mapper_{name}").restype = ctypes.c_uint64
    library.mapper_map.argtypes = [ctypes.c_int, ctypes.c_uint32, *[ctypes.c_size_t] * 3]
    library.mapper_fill.argtypes = [ctypes.c_uint64, ctypes.c_uint8, ctypes.c_size_t]
    library.mapper_protect.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
    for name in ("drop", "descriptor"):
        getattr(library, f"mapper_{name}").argtypes = [ctypes.c_uint64, ctypes.c_uint32]
    library.mapper_free.argtypes = library.mapper_unmap.argtypes = [ctypes.c_uint64]
    library.mapper_allocate.argtypes = library.mapper_churn.argtypes = [ctypes.c_size_t]
    return library


@pytest.fixture
def mapper(driver: None, mapper_library: ctypes.CDLL) -> Iterator[Mapper]:
    made = Mapper(mapper_library)
    made.call("open", open_table().library.encode())
    yield made
    made.call("close")


@pytest.mark.parametrize("offset", [0, 2 * PAGE])
@pytest.mark.parametrize(("start", "size"), [(0, COUNT * PAGE), (PAGE + 17, 2 * PAGE + 3)])
def test_what_a_c_library_maps_is_shared(
    device: ze_ipc.Device, peer: Peer, mapper: Mapper, offset: int, start: int, size: int
) -> None:
    with ze_ipc.observe():
        address = mapper.map(offset=offset)
        with device.get_ipc_handle(address + start, size) as handle:
            assert handle.objects == (start + size - 1) // PAGE - start // PAGE + 1
            _, opened = peer.call(ranges.open_view, bytes(handle))
            assert opened == size
            assert peer.call(ranges.read_view) == numbered()[start : start + size]
            peer.call(ranges.write_view, size - 10, b"from there")
            assert mapper.read(address + start + size - 10, 10) == b"from there"
            peer.call(ranges.close_view)
        mapper.unmap(address)


def test_unknown_is_not_guessed(device: ze_ipc.Device, peer: Peer, mapper: Mapper) -> None:
    before = mapper.map()
    with pytest.raises(errors.AddressNotFound) as caught:
        device.get_ipc_handle(before, PAGE)
    assert "observe()" in caught.value.hint
    with ze_ipc.observe():
        with pytest.raises(errors.AddressNotFound) as caught:
            device.get_ipc_handle(before, PAGE)
        assert caught.value.address == before
        assert "observe()" in caught.value.hint
        after = mapper.map()
        with device.get_ipc_handle(after, PAGE):
            pass
        mapper.unmap(before)  # what it knows nothing of changes nothing
        with device.get_ipc_handle(after, PAGE) as handle:
            peer.call(ranges.open_view, bytes(handle))
            assert peer.call(ranges.read_view) == numbered(1)
            peer.call(ranges.close_view)
    with pytest.raises(errors.AddressNotFound):
        device.get_ipc_handle(after, PAGE)
    with ze_ipc.observe(), pytest.raises(errors.AddressNotFound):  # it begins anew
        device.get_ipc_handle(after, PAGE)
    mapper.unmap(after)


def test_holes_and_allocations(device: ze_ipc.Device, mapper: Mapper) -> None:
    with ze_ipc.observe() as outer, ze_ipc.observe():
        address = mapper.map(room=2)
        with pytest.raises(errors.AddressNotFound) as caught:
            device.get_ipc_handle(address, (COUNT + 2) * PAGE)
        assert caught.value.address == address + COUNT * PAGE
        mapper.call("drop", address, 2)
        with pytest.raises(errors.AddressNotFound) as caught:
            device.get_ipc_handle(address + 100, COUNT * PAGE - 100)
        assert caught.value.address == address + 2 * PAGE
        assert caught.value.end == address + 3 * PAGE
        usm = mapper.library.mapper_allocate(3 * PAGE)
        with pytest.raises(errors.InvalidArgument):
            device.get_ipc_handle(usm + 5, PAGE)
        mapper.call("free", usm)
        with pytest.raises(errors.AddressNotFound):
            device.get_ipc_handle(usm + 5, PAGE)
        mapper.unmap(address)
        with pytest.raises(errors.AddressNotFound):
            device.get_ipc_handle(address, PAGE)
        outer.close()
        again = mapper.map()  # the inner one still looks
        device.get_ipc_handle(again, PAGE).close()
        mapper.unmap(again)


def test_a_handle_outlives_what_its_owner_destroys(
    device: ze_ipc.Device, peer: Peer, mapper: Mapper
) -> None:
    with ze_ipc.observe():
        address = mapper.map()
        with device.get_ipc_handle(address, COUNT * PAGE) as handle:
            mapper.unmap(address)
            other = mapper.map(COUNT + 1)  # perhaps with the same numbers of the driver's
            peer.call(ranges.open_view, bytes(handle))
            assert peer.call(ranges.read_view) == numbered()
            peer.call(ranges.close_view)
        mapper.unmap(other)


def test_access_attributes_are_followed(device: ze_ipc.Device, peer: Peer, mapper: Mapper) -> None:
    if device.ipc_path == "native":
        return  # a driver's handle does not say
    with ze_ipc.observe():
        address = mapper.map()
        for index in range(COUNT):
            mapper.call("protect", address + index * PAGE, PAGE)
        with device.get_ipc_handle(address, COUNT * PAGE) as handle:
            peer.call(ranges.open_view, bytes(handle))
            assert peer.call(ranges.facts_of_view)["read_only"]
            assert peer.call(ranges.read_view) == numbered()
            peer.call(ranges.close_view)
        mapper.unmap(address)


def test_a_descriptor_that_its_owner_uses_is_not_closed(
    device: ze_ipc.Device, peer: Peer, mapper: Mapper
) -> None:
    """Drivers keep one for an object, and we have it closed again unless its owner asked for it."""
    if device.ipc_path == "native":
        return  # the test driver has none
    with ze_ipc.observe():
        address = mapper.map(3)
        early = mapper.library.mapper_descriptor(address, 0)
        if early < 0:  # this loader does not know the function, so that nobody calls it
            mapper.unmap(address)
            return
        inodes = [os.fstat(early).st_ino]
        with device.get_ipc_handle(address, 3 * PAGE) as handle:
            late = mapper.library.mapper_descriptor(address, 1)
            inodes.append(os.fstat(late).st_ino)
            before = dma_bufs()
            peer.call(ranges.open_view, bytes(handle))
            assert peer.call(ranges.read_view) == numbered(3)
            peer.call(ranges.close_view)
        assert [os.fstat(fd).st_ino for fd in (early, late)] == inodes
        deadline = time.monotonic() + 10  # a thread of the broker may be at its last step
        while dma_bufs() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert dma_bufs() == before
        mapper.unmap(address)
        for fd in (early, late):
            os.close(fd)  # this driver does not


def test_memory_of_another_device_is_said(device: ze_ipc.Device, mapper: Mapper) -> None:
    with ze_ipc.observe():
        address = mapper.map(device=1)
        with pytest.raises(errors.UnsupportedFeature):
            device.get_ipc_handle(address, PAGE)
        with (
            ze_ipc.open_device("level_zero", 1) as its_own,
            its_own.get_ipc_handle(address, PAGE) as handle,
        ):
            assert handle.objects == 1
        mapper.unmap(address)


def test_two_threads_map_while_we_export(device: ze_ipc.Device, peer: Peer, mapper: Mapper) -> None:
    with ze_ipc.observe():
        mapper.call("churn", PAGE)
        try:
            address = mapper.map()
            for turn in range(10):
                start = turn * 999
                with device.get_ipc_handle(address + start, 3 * PAGE) as handle:
                    peer.call(ranges.open_view, bytes(handle))
                    assert peer.call(ranges.read_view) == numbered()[start : start + 3 * PAGE]
                    peer.call(ranges.close_view)
        finally:
            mapper.call("calm")
        mapper.unmap(address)


def test_a_loader_that_is_too_old_says_so(driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 1.15.7 it has its tracing layer from its start, or not at all."""
    monkeypatch.setenv("ZE_ENABLE_TRACING_LAYER", "0")
    at_run_time = hasattr(ctypes.CDLL(open_table().library), "zelEnableTracingLayer")
    with Peer() as other:
        refusal, hint = other.call(native_way.observe_refusal)
    if at_run_time:
        assert refusal == "nothing"
    else:
        assert refusal == "UnsupportedFeature"
        assert "ZE_ENABLE_TRACING_LAYER=1" in hint


def test_our_own_ranges_are_as_before(device: ze_ipc.Device, peer: Peer, mapper: Mapper) -> None:
    with ze_ipc.observe(), device.reserve(2 * PAGE) as reservation:
        with device.physical_memory(PAGE) as memory:
            reservation.map(memory, at=0)
        device.write(reservation.ptr, b"own")
        with device.get_ipc_handle(reservation.ptr, PAGE) as handle:
            peer.call(ranges.open_view, bytes(handle))
            assert peer.call(ranges.read_view, 0, 3) == b"own"
            peer.call(ranges.close_view)
        with pytest.raises(errors.AddressNotFound) as caught:
            device.get_ipc_handle(reservation.ptr, 2 * PAGE)
        assert caught.value.address == reservation.ptr + PAGE
        with device.allocate(PAGE) as usm, pytest.raises(errors.InvalidArgument):
            device.get_ipc_handle(usm.ptr, 1)
