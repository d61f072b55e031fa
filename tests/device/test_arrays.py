"""Ranges as arrays: NumPy and the buffer protocol see the range's own memory, wherever it is."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

import ze_ipc
from ze_ipc.dtype import DTYPES

PAGE = 4096
OBJECTS = 12
SIZE = OBJECTS * PAGE


@pytest.fixture
def device(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


@pytest.fixture
def reservation(device: ze_ipc.Device) -> Iterator[ze_ipc.Reservation]:
    """Twelve objects, each byte with a value that tells its place."""
    with device.reserve(SIZE) as reservation:
        for index in range(OBJECTS):
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=index * PAGE)
        device.write(reservation.ptr, pattern().tobytes())
        yield reservation


def pattern() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 255, SIZE, dtype=np.uint8)


@pytest.fixture
def view(device: ze_ipc.Device, reservation: ze_ipc.Reservation) -> Iterator[ze_ipc.ImportedRange]:
    with (
        device.get_ipc_handle(reservation.ptr, SIZE) as handle,
        device.open_ipc_handle(handle) as view,
    ):
        yield view


@pytest.fixture
def read_only(device: ze_ipc.Device) -> Iterator[ze_ipc.ImportedRange]:
    with device.reserve(2 * PAGE) as reservation, device.physical_memory(2 * PAGE) as memory:
        reservation.map(memory, at=0, size=PAGE)
        reservation.map(memory, at=PAGE, offset=PAGE, access="ro")
        device.write(reservation.ptr, b"first")
        with (
            device.get_ipc_handle(reservation.ptr, 2 * PAGE) as handle,
            device.open_ipc_handle(handle) as view,
        ):
            yield view


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.typestr])
def test_every_type_is_numpys(view: ze_ipc.ImportedRange, name: str) -> None:
    wanted = pattern()
    if name == "bool":
        wanted &= 1
        view.device.write(view.ptr, wanted.tobytes())
    wanted = wanted.view(name)
    for spelling in (name, np.dtype(name), getattr(np, name, bool), np.dtype(name).str):
        array = view.array(spelling)
        assert (array.dtype, array.itemsize) == (name, wanted.itemsize)
        seen = np.asarray(array)
        assert seen.dtype == wanted.dtype
        assert seen.tobytes() == wanted.tobytes()
    assert np.from_dlpack(array).tobytes() == wanted.tobytes()
    assert np.from_dlpack(array).dtype == wanted.dtype


def test_python_types() -> None:
    from ze_ipc.dtype import dtype_of

    for kind, name in {bool: "bool", int: "int64", float: "float64", complex: "complex128"}.items():
        assert dtype_of("", kind).name == name
    for wanted in ("float128", ">f4", "<U4", object, np.dtype("datetime64[s]"), None):
        with pytest.raises(ze_ipc.InvalidArgument):
            dtype_of("", wanted)


@pytest.mark.parametrize("take", [np.asarray, np.from_dlpack])
def test_writes_go_through_all_objects(view, reservation, take) -> None:  # type: ignore[no-untyped-def]
    seen = take(view.array("float32", (OBJECTS * 4, 256)))
    seen[:] = np.arange(seen.size, dtype=np.float32).reshape(seen.shape)
    assert view.device.read(reservation.ptr, SIZE) == seen.tobytes()
    assert (np.asarray(reservation.array("float32")) == np.arange(seen.size)).all()


def test_bytes_of_a_view_are_an_array(view: ze_ipc.ImportedRange) -> None:
    for seen in (np.asarray(view), np.from_dlpack(view), np.frombuffer(view, np.uint8)):
        assert (seen == pattern()).all()


STRIDED = [
    ((4, 4), (PAGE, 8), 16),
    ((5,), (-4,), 400),
    ((3, 0, 2), None, 0),
    ((), None, 24),
    ((2, 3, 4), None, 44),
    ((3, 5), (0, 4), 8),
    ((8, 16), (4, 32), 0),
    ((OBJECTS, 1), (PAGE, 12345 * 4), PAGE - 4),
]


@pytest.mark.parametrize(("shape", "strides", "offset"), STRIDED)
def test_strides_and_offsets(view, reservation, shape, strides, offset) -> None:  # type: ignore[no-untyped-def]
    wanted = np.ndarray(shape, "<u4", pattern().tobytes(), offset, strides)
    for source in (view, reservation):
        array = source.array("uint32", shape, strides, offset)
        assert (array.shape, array.strides, array.ndim) == (shape, wanted.strides, wanted.ndim)
        assert (array.nbytes, array.ptr) == (wanted.nbytes, source.ptr + offset)
        for seen in (np.asarray(array), np.from_dlpack(array)):
            assert seen.shape == shape
            assert (seen == wanted).all()
        with memoryview(array) as memory:
            assert (memory.shape, memory.format, memory.ndim) == (shape, "I", len(shape))
            assert memory.c_contiguous == wanted.flags.c_contiguous
            assert memory.f_contiguous == wanted.flags.f_contiguous
            assert memory.tobytes() == wanted.tobytes()


def test_elements_may_lie_anywhere_for_the_buffer_protocol(view: ze_ipc.ImportedRange) -> None:
    wanted = np.ndarray((7, 3), "<f8", pattern().tobytes(), 3, (29, 11))
    array = view.array("float64", (7, 3), (29, 11), 3)
    assert np.asarray(array).tobytes() == wanted.tobytes()
    with pytest.raises(BufferError, match="multiple of 8"):
        np.from_dlpack(array)
    with pytest.raises(BufferError, match="count elements"):
        np.from_dlpack(view.array("float64", (7, 3), (29, 11), 0))


def test_a_window_with_any_offset(device, reservation) -> None:  # type: ignore[no-untyped-def]
    with (
        device.get_ipc_handle(reservation.ptr + 1000, 2 * PAGE + 4) as handle,
        device.open_ipc_handle(handle) as view,
    ):
        wanted = pattern()[1000 : 1000 + 2 * PAGE + 4]
        assert (np.asarray(view) == wanted).all()
        assert (np.from_dlpack(view.array("uint32")) == wanted.view("<u4")).all()
        last = view.array("uint16", 1, offset=2 * PAGE + 2)
        assert np.asarray(last)[0] == wanted[-2:].view("<u2")[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ("uint8", SIZE + 1),
        ("uint8", 1, None, SIZE),
        ("uint8", 1, None, -1),
        ("uint64", None, None, 4),
        ("float32", (2, SIZE // 8 + 1)),
        ("float32", (2, 2), (SIZE, 4)),
        ("float32", (2,), (-4,), 0),
        ("float32", (2, 2), (4,)),
        ("float32", (-1,)),
        ("float32", (1 << 62, 1 << 62)),
        ("int3", 1),
    ],
)
def test_what_lies_outside_is_refused(view: ze_ipc.ImportedRange, arguments: tuple) -> None:
    with pytest.raises(ze_ipc.InvalidArgument) as caught:
        view.array(*arguments)
    assert caught.value.hint


def test_read_only_is_honoured(read_only: ze_ipc.ImportedRange) -> None:
    assert read_only.read_only
    for array in (read_only, read_only.array("uint16"), read_only.array("uint8", 5)):
        for seen in (np.asarray(array), np.from_dlpack(array)):
            assert not seen.flags.writeable
        with memoryview(array) as memory:
            assert memory.readonly
    assert bytes(read_only.array("uint8", 5)) == b"first"
    copied = np.from_dlpack(read_only, copy=True)
    copied[:] = 0
    assert bytes(memoryview(read_only)[:5]) == b"first"


def test_consumers_that_know_no_strides(view: ze_ipc.ImportedRange) -> None:
    rows = view.array("uint8", (4, 16))
    assert hashlib.sha256(rows).digest() == hashlib.sha256(pattern()[:64]).digest()
    with pytest.raises(BufferError):
        hashlib.sha256(view.array("uint8", (4, 16), (32, 1)))
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(view.array("bfloat16"))


def test_arrays_outlive_everything(device: ze_ipc.Device, reservation: ze_ipc.Reservation) -> None:
    with (
        ze_ipc.open_device("mock") as other,
        device.get_ipc_handle(reservation.ptr, SIZE) as handle,
    ):
        view = other.open_ipc_handle(handle)
        array = view.array("uint32")
        arrays = [np.asarray(array), np.from_dlpack(array), np.from_dlpack(view).view("<u4")]
        view.close()
    for seen in arrays:
        assert (seen == pattern().view("<u4")).all()
    arrays[1][0] = 7
    assert device.read(reservation.ptr, 1) == b"\x07"
    with pytest.raises(ze_ipc.Closed):
        view.array("uint32").__dlpack__()
    with pytest.raises(ze_ipc.Closed):
        memoryview(array)


def test_an_array_keeps_its_view_alive(device: ze_ipc.Device, reservation) -> None:  # type: ignore[no-untyped-def]
    with device.get_ipc_handle(reservation.ptr, SIZE) as handle, ExitStack() as closing:
        view = closing.enter_context(device.open_ipc_handle(handle))
        alive = weakref.ref(view)
        closing.pop_all()
        arrays = [np.asarray(view), np.from_dlpack(view), np.from_dlpack(view.array("uint16"))]
        del view, closing
        while arrays:
            gc.collect()
            found = alive()
            assert found is not None
            assert not found.closed
            if len(arrays) == 1:
                found.close()
            del found
            arrays.pop()
        gc.collect()
        assert alive() is None


def test_a_view_without_a_cpu_map_of_its_own_left(device, reservation) -> None:  # type: ignore[no-untyped-def]
    """The mapping that a view keeps between its arrays goes with the device, too."""
    with device.get_ipc_handle(reservation.ptr, SIZE) as handle:
        other = ze_ipc.open_device("mock")
        view = other.open_ipc_handle(handle)
        assert np.asarray(view)[0] == pattern()[0]
        other.close()
        assert view.closed


def test_reservations_are_arrays_of_what_is_mapped(device: ze_ipc.Device) -> None:
    with device.reserve(4 * PAGE) as reservation:
        for index in (0, 1, 3):
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=index * PAGE, access="ro" if index == 3 else "rw")
        with pytest.raises(BufferError, match=f"{reservation.ptr + 2 * PAGE:#x}"):
            memoryview(reservation)
        early = np.asarray(reservation.array("uint8", 2 * PAGE))
        early[:] = 9
        assert device.read(reservation.ptr, 2 * PAGE) == bytes([9]) * 2 * PAGE
        assert np.from_dlpack(reservation.array("uint8", 0, offset=2 * PAGE - 1)).size == 0
        assert not np.asarray(reservation.array("uint8", PAGE, offset=3 * PAGE)).flags.writeable
        assert reservation.read_only
        # A view stays what it was.
        reservation.unmap(0, PAGE)
        with device.physical_memory(PAGE) as memory:
            reservation.map(memory, at=0)
        late = np.asarray(reservation.array("uint8", 2 * PAGE))
        assert (early == 9).all()
        assert (late[:PAGE] == 0).all()
        assert (late[PAGE:] == 9).all()
        late[PAGE] = 1
        assert early[PAGE] == 1
    assert early[PAGE] == 1
    with pytest.raises(ze_ipc.Closed):
        memoryview(reservation)


def test_thousands_of_objects(device: ze_ipc.Device) -> None:
    count = 3000
    with device.reserve(count * PAGE) as reservation:
        for index in range(count):
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=index * PAGE)
        numbers = np.asarray(reservation.array("uint32", (count,), (PAGE,)))
        numbers[:] = np.arange(count)
        with (
            device.get_ipc_handle(reservation.ptr, count * PAGE) as handle,
            device.open_ipc_handle(handle) as view,
        ):
            seen = np.from_dlpack(view.array("uint32", (count, PAGE // 4)))
            assert (seen[:, 0] == numbers).all()
            assert seen.sum() == numbers.sum()


def test_many_threads_take_and_drop(view: ze_ipc.ImportedRange) -> None:
    wrong: list[object] = []
    wanted = int(pattern().sum())

    def work() -> None:
        for _ in range(100):
            if int(np.asarray(view).sum(dtype=np.uint64)) != wanted:
                wrong.append("asarray")
            if int(np.from_dlpack(view).sum(dtype=np.uint64)) != wanted:
                wrong.append("from_dlpack")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_arrays_at_the_end_of_the_interpreter() -> None:
    program = """
import numpy as np, ze_ipc
device = ze_ipc.open_device("mock")
reservation = device.reserve(4096)
with device.physical_memory(4096) as memory:
    reservation.map(memory, at=0)
with device.get_ipc_handle(reservation.ptr, 4096) as handle:
    view = device.open_ipc_handle(handle)
class Late:
    def __init__(self): self.arrays = [np.from_dlpack(view), np.asarray(view), view.__dlpack__()]
    def __del__(self): self.arrays[0][0] = 1
keep = Late(); keep.me = keep
view.close(); reservation.close(); device.close()
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
