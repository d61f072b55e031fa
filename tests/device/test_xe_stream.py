"""The object stream between processes: any number of objects, few descriptors, hostile peers."""

from __future__ import annotations

import array as arrays
import contextlib
import errno
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import xe_peer
from ze_ipc._mock import ffi as mock_ffi
from ze_ipc._mock import lib as mock
from ze_ipc._xe import lib as xe_lib
from ze_ipc.errors import (
    ExporterGone,
    FdLimit,
    KernelError,
    OpenTimeout,
    PeerAccessError,
    ZeIpcError,
)
from ze_ipc.xe import XeBackend, open_mock

PAGE = 4096
SECONDS = 60.0
UNREACHABLE = 10
"""A mock device whose memory others cannot reach."""


@pytest.fixture
def backend() -> Iterator[XeBackend]:
    with open_mock() as opened:
        yield opened
        assert opened.live_objects == 0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        yield left, right


class Peer:
    """A child that speaks the other end; ``result()`` is what it printed."""

    def __init__(self, role: str, end: socket.socket, count: int, *options: str) -> None:
        command = [sys.executable, xe_peer.__file__, role, str(end.fileno()), str(count)]
        self.process = subprocess.Popen(
            [*command, str(PAGE), *options],
            pass_fds=[end.fileno()],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(xe_peer.__file__).parents[1])},
        )
        end.close()

    def result(self) -> dict[str, object]:
        try:
            out, _ = self.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        parsed: dict[str, object] = json.loads(out)
        return parsed


def soon() -> float:
    return time.monotonic() + SECONDS


COUNTS = [1, 2, 252, 253, 254, 506, 1114, 20_000]


@pytest.mark.parametrize("count", COUNTS)
def test_objects_reach_a_process_with_256_descriptors(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], count: int
) -> None:
    objects = backend.create_objects(PAGE, "host", count)
    xe_peer.number(backend, objects)
    peer = Peer("receive", pair[1], count, "--nofile", "256")
    backend.send_objects(pair[0].fileno(), objects, soon())
    result = peer.result()
    backend.release_objects(objects)
    assert result["good"] is True
    assert (result["leaked_fds"], result["live_objects"]) == (0, 0)


@pytest.mark.parametrize("count", [1, 253, 254, 1114])
def test_objects_come_from_a_process_with_256_descriptors_of_which_200_are_taken(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], count: int
) -> None:
    peer = Peer("send", pair[1], count, "--nofile", "256", "--hold", "200")
    objects = backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * count), soon())
    assert xe_peer.numbers_of(backend, objects) == array("Q", range(count))
    backend.release_objects(objects)
    result = peer.result()
    assert "error" not in result
    assert result["leaked_fds"] == 0


def test_a_receiver_with_few_descriptors_left_gets_small_batches(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    objects = backend.create_objects(PAGE, "host", 600)
    xe_peer.number(backend, objects)
    peer = Peer("receive", pair[1], 600, "--nofile", "256", "--hold", "230")
    backend.send_objects(pair[0].fileno(), objects, soon())
    result = peer.result()
    backend.release_objects(objects)
    assert result["good"] is True


def test_both_ends_in_one_process_give_the_same_handles(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    objects = backend.create_objects(PAGE, "host", 700)
    sender = threading.Thread(target=backend.send_objects, args=(pair[0].fileno(), objects, soon()))
    sender.start()
    again = backend.receive_objects(pair[1].fileno(), array("Q", [PAGE] * 700), soon())
    sender.join()
    # The kernel knows one handle an object and file: only the references are two.
    assert again == objects
    backend.release_objects(again)
    assert backend.object_sizes(objects) == array("Q", [PAGE] * 700)
    backend.release_objects(objects)


def test_one_object_many_times_is_one_handle_with_many_references(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    obj = backend.create_object(PAGE, "host")
    column = array("Q", [obj] * 300)
    sender = threading.Thread(target=backend.send_objects, args=(pair[0].fileno(), column, soon()))
    sender.start()
    got = backend.receive_objects(pair[1].fileno(), array("Q", [PAGE] * 300), soon())
    sender.join()
    assert set(got) == {obj}
    backend.release_objects(column[:1])
    backend.release_objects(got[1:])
    assert backend.live_objects == 1
    backend.release_objects(got[:1])
    assert backend.live_objects == 0


def test_eight_importers_at_once(backend: XeBackend) -> None:
    objects = backend.create_objects(PAGE, "host", 1000)
    xe_peer.number(backend, objects)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]
    peers = [Peer("receive", right, 1000, "--nofile", "256") for _, right in pairs]
    failures: list[BaseException] = []

    def send(end: socket.socket) -> None:
        try:
            with end:
                backend.send_objects(end.fileno(), objects, soon())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=(left,)) for left, _ in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = [peer.result() for peer in peers]
    backend.release_objects(objects)
    assert failures == []
    assert all(result["good"] is True for result in results)


def share(
    source: XeBackend, target: XeBackend, objects: array[int], size: int = PAGE
) -> array[int]:
    """Objects from one backend to another of this process."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    failures: list[ZeIpcError] = []

    def send() -> None:
        try:
            source.send_objects(left.fileno(), objects, soon())
        except ZeIpcError as error:
            failures.append(error)

    with left, right:
        sender = threading.Thread(target=send)
        sender.start()
        try:
            return target.receive_objects(right.fileno(), array("Q", [size] * len(objects)), soon())
        finally:
            right.close()
            sender.join()


def test_a_thousand_cycles_leave_everything_flat(backend: XeBackend) -> None:
    columns = array("Q", [0]), array("Q", [PAGE])
    stats = mock_ffi.new("struct xe_mock_stats *")

    def held() -> tuple[int, ...]:
        assert mock.xe_mock_stats(0, stats) == 0
        maps = len(Path("/proc/self/maps").read_text().splitlines())
        return (
            stats.objects,
            stats.handles,
            stats.mappings,
            maps,
            sum(1 for _ in Path("/proc/self/fd").iterdir()),
        )

    with open_mock() as exporter:
        for cycle in range(1010):
            if cycle == 10:
                before = held()
            objects = exporter.create_objects(PAGE, "device", 1)
            got = share(exporter, backend, objects)
            address = backend.reserve(PAGE, None, PAGE, 0)
            backend.map_extents(address, got, *columns, array("B", [0]), soon())
            backend.cpu_map(got, *columns, True).close()
            backend.unmap(address, PAGE, soon())
            backend.unreserve(address, PAGE)
            backend.release_objects(got)
            exporter.release_objects(objects)
        after = held()
    assert after[:3] == before[:3]
    # The interpreter's own memory may come and go by a map.
    assert abs(after[3] - before[3]) < 8
    assert after[4] == before[4]


@pytest.mark.parametrize("placement", ["device", "host"])
def test_memory_of_a_device_that_cannot_be_reached(backend: XeBackend, placement: str) -> None:
    with open_mock(UNREACHABLE, no_peer=True) as other:
        objects = other.create_objects(PAGE, placement, 3)  # type: ignore[arg-type]
        begun = time.monotonic()
        if placement == "device":
            with pytest.raises(PeerAccessError) as caught:
                share(other, backend, objects)
            assert caught.value.object_index == 0
        else:
            # System memory is everybody's.
            backend.release_objects(share(other, backend, objects))
        assert time.monotonic() - begun < 10
        other.release_objects(objects)


# ---- what goes wrong ----


def lowest_free_fd() -> int:
    fd = os.open("/dev/null", os.O_RDONLY)
    os.close(fd)
    return fd


@contextlib.contextmanager
def fd_limit(soft: int) -> Iterator[None]:
    old, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (old, hard))


def batch(first: int, count: int, fds: list[int], zero: int = 0) -> tuple[bytes, list[int]]:
    return struct.pack("<QII", first, count, zero), fds


def send_raw(end: socket.socket, message: tuple[bytes, list[int]]) -> None:
    data, fds = message
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, arrays.array("i", fds))] if fds else []
    end.sendmsg([data], rights)


def test_a_file_that_is_no_dma_buf_is_refused(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    path = tmp_path / "plain"
    path.write_bytes(bytes(PAGE))
    good = backend.create_object(PAGE, "host")
    with path.open("rb") as plain:
        send_raw(pair[1], batch(0, 1, [plain.fileno()]))
        with pytest.raises(KernelError) as caught:
            backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * 2), soon())
    assert (caught.value.errno, caught.value.object_index) == (errno.EINVAL, 0)
    backend.release_objects(array("Q", [good]))


@pytest.mark.parametrize("declared", [PAGE * 2, 0, 1 << 63])
def test_an_object_of_another_size_is_refused(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], declared: int
) -> None:
    objects = backend.create_objects(PAGE, "host", 3)
    failures: list[ZeIpcError] = []

    def send() -> None:
        try:
            backend.send_objects(pair[1].fileno(), objects, soon())
        except ZeIpcError as error:
            failures.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    sizes = array("Q", [PAGE, PAGE, declared])
    with pytest.raises(KernelError) as caught:
        backend.receive_objects(pair[0].fileno(), sizes, soon())
    pair[0].close()
    sender.join()
    assert (caught.value.errno, caught.value.object_index) == (errno.EBADMSG, 2)
    assert len(failures) <= 1
    backend.release_objects(objects)


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<QII", 1, 1, 0),
        struct.pack("<QII", 0, 2, 0),
        struct.pack("<QII", 0, 0, 0),
        struct.pack("<QII", 0, 1, 7),
        struct.pack("<QII", 0, 0, 7),
        struct.pack("<QII", 0, 0xFFFFFFFF, 0),
        struct.pack("<QI", 0, 1),
        struct.pack("<QIII", 0, 1, 0, 0),
        b"x",
    ],
)
def test_a_header_that_lies_is_refused_and_its_descriptor_closed(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], header: bytes
) -> None:
    with Path("/dev/null").open("rb") as null:
        send_raw(pair[1], (header, [null.fileno()]))
        with pytest.raises(KernelError) as caught:
            backend.receive_objects(pair[0].fileno(), array("Q", [PAGE]), soon())
    assert caught.value.errno == errno.EBADMSG


def test_more_objects_than_declared_are_refused(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    with Path("/dev/null").open("rb") as null:
        send_raw(pair[1], batch(0, 3, [null.fileno()] * 3))
        with pytest.raises(KernelError) as caught:
            backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * 2), soon())
    assert caught.value.errno == errno.EBADMSG


def test_a_message_without_descriptors_is_refused(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    send_raw(pair[1], batch(0, 1, []))
    with pytest.raises(KernelError) as caught:
        backend.receive_objects(pair[0].fileno(), array("Q", [PAGE]), soon())
    assert caught.value.errno == errno.EBADMSG


def test_descriptors_that_the_kernel_had_to_drop_are_an_error(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    with Path("/dev/null").open("rb") as null:
        send_raw(pair[1], batch(0, 200, [null.fileno()] * 200))
    limit = lowest_free_fd() + 20
    with fd_limit(limit), pytest.raises(FdLimit) as caught:
        backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * 200), soon())
    assert caught.value.soft == limit


def test_no_descriptor_at_all_is_said_before_anything_is_touched(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    objects = backend.create_objects(PAGE, "host", 2)
    with fd_limit(lowest_free_fd()), pytest.raises(FdLimit):
        backend.receive_objects(pair[0].fileno(), array("Q", [PAGE]), soon())
    pair[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        pair[1].recv(64)
    pair[1].send(struct.pack("<QII", 0, 253, 0))
    with fd_limit(lowest_free_fd()), pytest.raises(FdLimit):
        backend.send_objects(pair[0].fileno(), objects, soon())
    backend.release_objects(objects)


@pytest.mark.parametrize(
    ("index", "number", "cls"),
    [(0, errno.ENOMEM, KernelError), (1, errno.EMFILE, FdLimit), (1, 4095, KernelError)],
)
def test_the_senders_last_word_says_why(
    backend: XeBackend,
    pair: tuple[socket.socket, socket.socket],
    index: int,
    number: int,
    cls: type[ZeIpcError],
) -> None:
    """Also where it goes at once and has not read what was said to it, which makes it a reset."""
    send_raw(pair[1], batch(index, 0, [], number))
    pair[0].send(bytes(16))
    pair[1].close()
    with pytest.raises(cls) as caught:
        backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * 2), soon())
    assert caught.value.object_index == index
    assert caught.value.values.get("errno", getattr(caught.value, "errno", None)) == number
    assert "exporter" in caught.value.hint or "exporting" in caught.value.hint


@pytest.mark.parametrize(
    "word",
    [
        struct.pack("<QII", 2, 0, errno.ENOMEM),
        struct.pack("<QII", 1 << 63, 0, errno.ENOMEM),
        struct.pack("<QII", 0, 0, 4096),
        struct.pack("<QII", 0, 1, errno.ENOMEM),
    ],
)
def test_a_last_word_that_is_none_is_refused(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], word: bytes
) -> None:
    send_raw(pair[1], (word, []))
    with pytest.raises(KernelError) as caught:
        backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * 2), soon())
    assert caught.value.errno == errno.EBADMSG


@pytest.mark.parametrize("nth", [1, 255])
def test_a_sender_that_cannot_export_tells_its_peer(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], nth: int
) -> None:
    objects = backend.create_objects(PAGE, "host", 300)
    reasons: list[ZeIpcError] = []

    def send() -> None:
        with pair[1]:
            try:
                backend.send_objects(pair[1].fileno(), objects, soon())
            except ZeIpcError as error:
                reasons.append(error)

    request = xe_lib.DRM_IOCTL_PRIME_HANDLE_TO_FD
    assert mock.xe_mock_fault(0, request, nth, errno.EACCES, 0) == 0
    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KernelError) as caught:
        backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * 300), soon())
    sender.join()
    backend.release_objects(objects)
    assert (caught.value.errno, caught.value.object_index) == (errno.EACCES, nth - 1)
    assert [error.object_index for error in reasons] == [nth - 1]


def test_a_sender_that_goes_is_exporter_gone(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    obj = backend.create_objects(PAGE, "host", 1)
    threading.Timer(0.05, pair[1].close).start()
    with pytest.raises(ExporterGone):
        backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * 2), soon())
    backend.release_objects(obj)


def test_a_receiver_that_goes_ends_the_send(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    objects = backend.create_objects(PAGE, "host", 10)
    threading.Timer(0.05, pair[1].close).start()
    with pytest.raises(KernelError) as caught:
        backend.send_objects(pair[0].fileno(), objects, soon())
    assert caught.value.errno in (errno.ECONNRESET, errno.EPIPE)
    backend.release_objects(objects)


@pytest.mark.parametrize("role", ["send", "receive"])
def test_a_silent_peer_costs_the_deadline_and_no_more(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], role: str
) -> None:
    objects = backend.create_objects(PAGE, "host", 4)
    begun = time.monotonic()
    call = {"send": backend.send_objects, "receive": backend.receive_objects}[role]
    with pytest.raises(OpenTimeout):
        call(pair[0].fileno(), array("Q", objects), begun + 0.3)
    assert 0.25 < time.monotonic() - begun < 5
    backend.release_objects(objects)


class Stop(Exception):
    pass


def stop(*_: object) -> None:
    raise Stop


@pytest.fixture
def alarm() -> Iterator[None]:
    """Raises Stop in the main thread after a tenth of a second."""
    old = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


@pytest.mark.usefixtures("alarm")
def test_a_signal_ends_a_receive_and_what_came_is_given_back(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    with open_mock() as other:
        objects = other.create_objects(PAGE, "host", 3)
        sender = threading.Thread(
            target=other.send_objects, args=(pair[1].fileno(), objects, soon())
        )
        sender.start()
        # One more than will ever come.
        begun = time.monotonic()
        with pytest.raises(Stop):
            backend.receive_objects(pair[0].fileno(), array("Q", [PAGE] * 4), soon())
        assert time.monotonic() - begun < 5
        sender.join()
        other.release_objects(objects)


@pytest.mark.usefixtures("alarm")
def test_a_signal_ends_a_send(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    objects = backend.create_objects(PAGE, "host", 4)
    with pytest.raises(Stop):
        backend.send_objects(pair[0].fileno(), objects, soon())
    backend.release_objects(objects)


@pytest.mark.parametrize(
    "words",
    [
        [struct.pack("<QII", 1, 253, 0)],
        [struct.pack("<QII", 0, 0, 0)],
        [struct.pack("<QII", 0, 253, 1)],
        [b"no"],
        [struct.pack("<QII", 0, 2, 0), struct.pack("<QII", 1, 2, 0)],
        [struct.pack("<QII", 0, 2, 0), struct.pack("<QII", 4, 2, 0)],
    ],
)
def test_acknowledgements_that_lie_end_the_send(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket], words: list[bytes]
) -> None:
    objects = backend.create_objects(PAGE, "host", 10)
    for word in words:
        pair[1].send(word)
    with pytest.raises(KernelError) as caught:
        backend.send_objects(pair[0].fileno(), objects, soon())
    assert caught.value.errno == errno.EBADMSG
    backend.release_objects(objects)


def test_no_more_than_two_messages_are_without_an_acknowledgement(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    objects = backend.create_objects(PAGE, "host", 1000)
    pair[1].send(struct.pack("<QII", 0, 100, 0))
    with pytest.raises(OpenTimeout):
        backend.send_objects(pair[0].fileno(), objects, time.monotonic() + 0.3)
    heads = []
    pair[1].setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            data, fds, _, _ = socket.recv_fds(pair[1], 64, 253)
            heads.append((struct.unpack("<QII", data), len(fds)))
            for fd in fds:
                os.close(fd)
    assert heads == [((0, 100, 0), 100), ((100, 100, 0), 100)]
    backend.release_objects(objects)


def test_no_objects_are_no_messages(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    backend.send_objects(pair[0].fileno(), array("Q"), soon())
    assert len(backend.receive_objects(pair[1].fileno(), array("Q"), soon())) == 0


def test_an_object_that_is_not_held_is_named(
    backend: XeBackend, pair: tuple[socket.socket, socket.socket]
) -> None:
    objects = backend.create_objects(PAGE, "host", 3)
    objects.append(12345)
    pair[1].send(struct.pack("<QII", 0, 253, 0))
    with pytest.raises(KernelError) as caught:
        backend.send_objects(pair[0].fileno(), objects, soon())
    assert caught.value.object_index == 3
    backend.release_objects(objects[:3])
