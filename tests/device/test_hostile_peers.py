"""Peers that mean no good, at whole opens on a device: an error and nothing else, and whoever is
honest is served meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import ze_ipc
from helpers import hostile_child, ranges
from helpers.broker_fakes import fd_count
from helpers.waiting import eventually
from ze_ipc import manifest as manifests
from ze_ipc import transport
from ze_ipc.handle import HandleFields
from ze_ipc.host import host_identity
from ze_ipc.manifest import Manifest
from ze_ipc.peer_process import Peer
from ze_ipc.socket_dir import socket_name

PAGE = 4096
SECONDS = 30.0

# ---- importers ----


@pytest.fixture
def handle(xe_mock: ze_ipc.Device) -> Iterator[ze_ipc.RangeHandle]:
    """A range of a few objects."""
    with xe_mock.reserve(4 * PAGE) as reservation:
        for at in range(0, 4 * PAGE, PAGE):
            with xe_mock.physical_memory(PAGE) as memory:
                reservation.map(memory, at=at)
        xe_mock.write(reservation.ptr, b"honest")
        with xe_mock.get_ipc_handle(reservation.ptr, 4 * PAGE) as made:
            yield made


def test_honest_peers_are_served_among_hostile_ones(
    xe_mock: ze_ipc.Device, handle: ze_ipc.RangeHandle
) -> None:
    fields = HandleFields.unpack(bytes(handle))
    path = Path(os.environ["ZE_IPC_DIR"], socket_name(fields.broker))
    with ze_ipc.open_device("mock") as importer, xe_mock.reserve(PAGE) as other:
        with xe_mock.physical_memory(PAGE) as memory:
            other.map(memory, at=0)
        with xe_mock.get_ipc_handle(other.ptr, 1) as put:
            dead = put.hex()
        command = [sys.executable, hostile_child.__file__, str(path), handle.hex(), dead]
        tests = str(Path(hostile_child.__file__).parents[1])
        hostile = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": tests},
        )
        with hostile:
            try:
                assert hostile.stdout is not None
                assert hostile.stdout.readline() == b"at it\n"
                took = []
                while not select.select([hostile.stdout], [], [], 0)[0]:
                    begun = time.monotonic()
                    with importer.open_ipc_handle(handle, timeout=SECONDS) as view:
                        took.append(time.monotonic() - begun)
                        assert importer.read(view.ptr, 6) == b"honest"
                out, _ = hostile.communicate(b"enough\n", timeout=SECONDS)
            finally:
                hostile.kill()
        assert int(out.split()[-1]) >= hostile_child.MANY
        # All succeed; the machine may be busy with other things at some of them.
        assert took
        assert sorted(took)[len(took) // 2] < 1, took


def test_a_handle_that_was_put_opens_nothing_again(
    xe_mock: ze_ipc.Device, handle: ze_ipc.RangeHandle
) -> None:
    with Peer() as peer:
        peer.call(ranges.open_device)
        put = bytes(handle)
        handle.close()
        with pytest.raises(ze_ipc.HandleRevoked):
            peer.call(ranges.open_view, put)
        peer.call(ranges.close_all)


# ---- exporters ----


@dataclass
class Lie:
    """What an exporter says: by default the truth about two objects of one and two pages."""

    manifest: Callable[[Manifest], Manifest] = lambda manifest: manifest
    said: Callable[[bytes], bytes] = lambda raw: raw
    fds: Callable[[Fds], list[int]] = lambda fds: fds.honest
    objects: int = 2
    empty: int = 0
    """Messages of no bytes, with many descriptors, before the answer."""


@dataclass
class Fds:
    """Descriptors that an exporter has."""

    honest: list[int]
    others: dict[str, int] = field(default_factory=dict)


@pytest.fixture
def fds(xe_mock: ze_ipc.Device) -> Iterator[Fds]:
    backend = xe_mock._backend
    objects = array("Q", [backend.create_object(n * PAGE, "host") for n in (1, 2)])
    with contextlib.ExitStack() as owned:
        owned.callback(backend.release_objects, objects)
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with left, right:
            assert backend.send_reply(left.fileno(), b"x", b"", objects)
            _, honest, _, _ = socket.recv_fds(right, 1, 2)
        others = {
            "memfd": os.memfd_create("liar", os.MFD_CLOEXEC),
            "shrunk": os.memfd_create("liar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING),
            "eventfd": os.eventfd(0),
            "folder": os.open("/", os.O_RDONLY),
            "socket": socket.socket(socket.AF_UNIX).detach(),
        }
        for number in (*honest, *others.values()):
            owned.callback(os.close, number)
        os.ftruncate(others["memfd"], PAGE)
        os.ftruncate(others["shrunk"], PAGE)
        os.ftruncate(others["shrunk"], 0)
        yield Fds(honest, others)


TRUTH = Manifest(
    device_uuid=bytes(16),
    page_size=PAGE,
    window_offset=0,
    window_size=3 * PAGE,
    va_phase=0,
    object_sizes=array("Q", [PAGE, 2 * PAGE]),
    object_indices=array("I", [0, 1]),
    offsets=array("Q", [0, 0]),
    sizes=array("Q", [PAGE, 2 * PAGE]),
    access=array("B", [0, 0]),
)


class Liar:
    """An exporter that answers whoever connects with a lie: at a socket where brokers are, so that
    few objects take the short way in C; or over a connection that is there, step by step, with the
    objects by the stream.
    """

    def __init__(self, way: str, fds: Fds, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._fds = fds
        self._at_once = way == "at once"
        self._lie = Lie()
        self._ended = 0
        self._broker = os.urandom(8)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(directory / socket_name(self._broker)))
        self._listening.listen(16)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        patch.setenv("ZE_IPC_DIR", str(directory))
        patch.setenv("ZE_IPC_TRANSPORT", "broker" if self._at_once else "pidfd")
        patch.setitem(transport._DIALS, "pidfd", self._dial)

    def open_from(self, device: ze_ipc.Device, lie: Lie) -> None:
        """Open a range that is described so."""
        self._lie = lie
        name = HandleFields(host_identity(), os.getpid(), self._broker, bytes(16), 1).pack()
        with device.open_ipc_handle(name, timeout=SECONDS) as view:
            assert device.read(view.ptr, view.size) == bytes(3 * PAGE)

    def _dial(self, handle: HandleFields, deadline: float) -> socket.socket:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            self._say(far)
        return near

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                # Who has heard enough closes in the middle.
                with sock, contextlib.suppress(OSError):
                    sock.settimeout(SECONDS)
                    # A release has no answer.
                    if len(sock.recv(100)) > 60:
                        self._say(sock)
                self._ended += 1

    def rest(self) -> None:
        """Return when an open and its release are over on this side too."""
        assert eventually(lambda: self._ended >= 2 * self._at_once, SECONDS)

    def _say(self, sock: socket.socket) -> None:
        lie = self._lie
        raw = lie.said(manifests.encode(lie.manifest(TRUTH)))
        reply = struct.pack("<4sIQQ", b"ZR01", 0, len(raw), lie.objects) + raw
        for _ in range(lie.empty):
            socket.send_fds(sock, [b""], lie.fds(self._fds) * 31)
        if self._at_once:
            socket.send_fds(sock, [reply], lie.fds(self._fds))
            return
        sock.send(reply)
        if fds := lie.fds(self._fds):
            socket.send_fds(sock, [struct.pack("<QII", 0, len(fds), 0)], fds)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()


def changed(**values: object) -> Callable[[Manifest], Manifest]:
    return lambda manifest: replace(manifest, **values)  # type: ignore[arg-type]


def flipped(raw: bytes) -> bytes:
    return raw[:-1] + bytes([raw[-1] ^ 1])


LIES = {
    "larger objects": Lie(changed(object_sizes=array("Q", [PAGE, 1 << 40]))),
    "smaller objects": Lie(
        changed(
            object_sizes=array("Q", [PAGE, PAGE]),
            sizes=array("Q", [PAGE, PAGE]),
            window_size=2 * PAGE,
        )
    ),
    "an offset beyond": Lie(changed(offsets=array("Q", [0, 1 << 62]))),
    "an offset that overflows": Lie(changed(offsets=array("Q", [0, (1 << 64) - PAGE]))),
    "an extent beyond": Lie(changed(sizes=array("Q", [PAGE, 3 * PAGE]), window_size=4 * PAGE)),
    "a window beyond": Lie(changed(window_size=1 << 50)),
    "an object that is not there": Lie(changed(object_indices=array("I", [0, 7]))),
    "unknown access": Lie(changed(access=array("B", [0, 128]))),
    "damaged on the way": Lie(said=flipped),
    "cut short": Lie(said=lambda raw: raw[:-8]),
    "too long": Lie(said=lambda raw: raw + bytes(8)),
    "fewer descriptors": Lie(fds=lambda fds: fds.honest[:1]),
    "more descriptors": Lie(fds=lambda fds: fds.honest * 2),
    "no descriptors": Lie(fds=lambda fds: []),
    "descriptors before the answer": Lie(empty=3),
    "another count": Lie(objects=1, fds=lambda fds: fds.honest[:1]),
    "the objects exchanged": Lie(fds=lambda fds: fds.honest[::-1]),
    "one object twice": Lie(fds=lambda fds: fds.honest[:1] * 2),
    **{
        f"a {name} for an object": Lie(
            fds=lambda fds, name=name: [fds.honest[0], fds.others[name]]  # type: ignore[misc]
        )
        for name in ("memfd", "shrunk", "eventfd", "folder", "socket")
    },
}


@pytest.fixture(params=["at once", "by steps"])
def liar(
    request: pytest.FixtureRequest, fds: Fds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Liar]:
    made = Liar(request.param, fds, tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("name", LIES)
def test_an_exporter_that_lies(name: str, liar: Liar) -> None:
    importer = ze_ipc.open_device("mock", 1)

    def held() -> tuple[int, int, int]:
        live: int = importer._backend.live_objects  # type: ignore[attr-defined]
        return fd_count(), live, len(importer._table)

    with importer:
        # What a device makes at its first import stays with it.
        liar.open_from(importer, Lie())
        liar.rest()
        before = held()
        with pytest.raises(ze_ipc.ZeIpcError) as caught:
            liar.open_from(importer, LIES[name])
        assert str(caught.value)
        # The other side's end of the connection closes in its own time.
        assert eventually(lambda: held() == before, SECONDS)
        liar.open_from(importer, Lie())
