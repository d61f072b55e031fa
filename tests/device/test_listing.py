"""What brokers tell of themselves: to whom, how much, and that no secret is in it."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.broker_fakes import FakeExport
from helpers.twelve_objects import OBJECT_SIZES, PLAN, SIZE, twelve_objects
from helpers.waiting import eventually
from ze_ipc import broker_listing, manifest, transport_listing
from ze_ipc.broker import Broker
from ze_ipc.broker_listing import What, decode_answer, decode_question, encode_question
from ze_ipc.broker_protocol import Malformed, Status
from ze_ipc.device import Device
from ze_ipc.errors import AccessDenied, HandleRevoked, WrongHost
from ze_ipc.handle import HandleFields
from ze_ipc.open_device import open_device
from ze_ipc.policy import Peer, Policy
from ze_ipc.socket_dir import SocketDir, socket_name
from ze_ipc.transport_listing import Told, ask_about, ask_all

PAGE = 4096


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def serve(broker: Broker, export: FakeExport, policy: Policy | None = None) -> HandleFields:
    return broker.handle_fields(*broker.register(export, policy or Policy()))


def told_by(broker: Broker, what: What = What.EXPORTS) -> Told:
    (told,) = [
        row for row in ask_all(what) if row.socket.name == socket_name(broker.address.broker)
    ]
    return told


def soon() -> float:
    return time.monotonic() + 10


def test_exports_and_importers_of_a_device(xe_mock: Device) -> None:
    with twelve_objects(xe_mock) as range_:
        inner = xe_mock.get_ipc_handle(range_.ptr + 100, 500 << 10)
        with inner, xe_mock.get_ipc_handle(range_.ptr, 128 << 10), xe_mock.open_ipc_handle(inner):
            assert eventually(lambda: len(inner.importers()) == 1)
            (told,) = ask_all(What.EXPORTS)
            first, second = told.said["exports"]
            assert (first["ptr"], first["size"], first["objects"]) == (
                range_.ptr + 100,
                500 << 10,
                3,
            )
            assert (first["opens"], second["opens"]) == (1, 0)
            (importer,) = first["importers"]
            assert importer["pid"] == told.pid == told.said["pid"] == os.getpid()
            assert told.said["device"] == xe_mock.name
            assert "table" not in told.said
        (told,) = ask_all(What.EXPORTS)
        assert told.said["exports"] == []


def test_the_whole_table_of_a_device(xe_mock: Device) -> None:
    with twelve_objects(xe_mock) as range_, xe_mock.get_ipc_handle(range_.ptr, 4096):
        (told,) = ask_all(What.MAPPINGS)
        table = told.said["table"]
        assert table["reservations"] == [[range_.ptr, SIZE]]
        assert sorted(size for _, size in table["object_sizes"]) == sorted(
            size << 10 for size in OBJECT_SIZES
        )
        mapped = [step for step in PLAN if not isinstance(step, int)]
        assert [offset >> 10 for offset in table["offsets"]] == [step[1] for step in mapped]
        assert table["mapping_count"] == len(mapped) == len(table["starts"])
        assert sum(table["access"]) == 1


def test_a_long_table_is_cut_and_says_so(xe_mock: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ze_ipc.device_listing.MAX_ROWS", 2)
    with twelve_objects(xe_mock) as range_, xe_mock.get_ipc_handle(range_.ptr, 4096):
        (told,) = ask_all(What.MAPPINGS)
        assert len(told.said["table"]["starts"]) == 2
        assert told.said["table"]["mapping_count"] == 13


def test_no_secret_is_told(xe_mock: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with twelve_objects(xe_mock) as range_, xe_mock.get_ipc_handle(range_.ptr, 4096) as handle:
        monkeypatch.setattr("sys.orig_argv", ["python", "importer.py", f"--handle={handle.hex()}"])
        fields = HandleFields.unpack(bytes(handle))
        (told,) = ask_all(What.MAPPINGS)
        text = json.dumps(told.said) + json.dumps(told.said, indent=1)
        for secret in (fields.secret.hex(), handle.hex(), fields.secret.hex().upper()):
            assert secret not in text
        assert told.said["command"][-1] == "--handle=<handle>"


def test_a_handle_is_described_to_who_holds_it(xe_mock: Device) -> None:
    with twelve_objects(xe_mock) as range_, xe_mock.get_ipc_handle(range_.ptr + 5, 5000) as handle:
        fields = HandleFields.unpack(bytes(handle))
        said = ask_about(fields, soon())
        described = manifest.parse(said["manifest"])
        assert (described.window_offset, described.window_size) == (5, 5000)
        assert said["export"]["ptr"] == range_.ptr + 5
        assert said["export"]["opens"] == 0
        assert "table" not in said
        for wrong, error in (
            (dataclasses.replace(fields, secret=secrets.token_bytes(16)), AccessDenied),
            (dataclasses.replace(fields, generation=fields.generation + 1), HandleRevoked),
            (dataclasses.replace(fields, host=bytes(8)), WrongHost),
        ):
            with pytest.raises(error):
                ask_about(wrong, soon())
    with pytest.raises((HandleRevoked, AccessDenied)):
        ask_about(fields, soon())


def test_a_description_is_no_open_and_ends_with_its_policy(broker: Broker) -> None:
    once = serve(broker, FakeExport(), Policy(max_opens=1))
    for _ in range(3):
        assert ask_about(once, soon())["manifest"] == b"manifest"
    with pytest.raises(AccessDenied):
        ask_about(serve(broker, FakeExport(), Policy(pids=frozenset({1}))), soon())
    with pytest.raises(HandleRevoked):
        ask_about(serve(broker, FakeExport(), Policy(not_after=time.monotonic())), soon())


def test_a_described_handle_that_is_put_is_given_back(broker: Broker) -> None:
    export = FakeExport()
    fields = serve(broker, export)
    ask_about(fields, soon())
    broker.revoke(fields.generation)
    export.wait_for("retired")


def answer_to(peer: Peer, what: What) -> Status:
    """What a listing says to a peer as the kernel would have described it."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with Broker() as broker, far:
        far.settimeout(10)
        broker._listing.take(near, peer, encode_question(what))
        status, _size = decode_answer(far.recv(1 << 16))
    return status


@pytest.mark.parametrize("what", [What.EXPORTS, What.MAPPINGS])
def test_only_the_same_user_is_told(what: What) -> None:
    ours = os.geteuid()
    assert answer_to(Peer(os.getpid(), ours, ours), what) is Status.OK
    for other in (ours + 1, 65534):
        assert answer_to(Peer(os.getpid(), other, ours), what) is Status.REFUSED_PEER


def test_questions_that_are_none(broker: Broker) -> None:
    good = encode_question(What.EXPORTS)
    handle = serve(broker, FakeExport()).pack()
    for bad in (
        good[:-1],
        good + b"x",
        b"ZL01" + b"\x09" + good[5:],
        good[:6] + b"\1" + good[7:],
        encode_question(What.EXPORTS, handle),
        encode_question(What.DESCRIBE, b"\1" * 64),
    ):
        with (
            SocketDir(broker.address.directory, create=False) as directory,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock,
        ):
            sock.settimeout(10)
            sock.connect(directory.address(socket_name(broker.address.broker)))
            sock.send(bad)
            assert decode_answer(sock.recv(1 << 16)) == (Status.BAD_REQUEST, 0)
    with pytest.raises(Malformed):
        decode_question(b"ZL01")


def test_answers_that_are_none() -> None:
    good = broker_listing.encode_answer(Status.OK, 5)
    assert decode_answer(good) == (Status.OK, 5)
    for bad in (
        b"",
        good + b"x",
        b"ZT02" + good[4:],
        good[:4] + b"\xff" + good[5:],
        broker_listing.encode_answer(Status.BUSY, 1),
        broker_listing.encode_answer(Status.OK, broker_listing.ANSWER_LIMIT + 1),
    ):
        with pytest.raises(Malformed):
            decode_answer(bad)


@pytest.mark.parametrize("text", [b"[1]", b"{", b"\xff"])
def test_a_broker_that_answers_nonsense_is_a_problem_with_a_name(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    class Nonsense:
        def encode(self) -> bytes:
            return text

    monkeypatch.setattr(broker_listing.json, "dumps", lambda *_, **__: Nonsense())
    told = told_by(broker)
    assert told.said == {}
    assert "something else" in told.problem


def test_a_broker_that_does_not_answer_costs_its_time_and_no_more(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(broker._listing, "_answer", lambda question: release.wait(20) and {})
    (told,) = ask_all(What.EXPORTS, seconds=0.2)
    assert "in time" in told.problem
    assert told.pid == os.getpid()
    release.set()


def test_close_does_not_wait_for_a_reader_that_reads_nothing() -> None:
    def endless(mappings: bool) -> dict[str, Any]:
        return {"table": "x" * (8 << 20)}

    with (
        Broker(describe=endless) as broker,
        SocketDir(broker.address.directory, create=False) as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock,
    ):
        sock.connect(directory.address(socket_name(broker.address.broker)))
        sock.send(encode_question(What.MAPPINGS))
        assert eventually(lambda: len(broker._listing._open) == 1)
        begin = time.monotonic()
        broker.close(30)
        assert time.monotonic() - begin < 8
        assert not broker._listing._open


def test_many_askers_at_once_are_told_or_told_to_come_again(broker: Broker) -> None:
    release = threading.Event()
    honest = broker._listing._answer
    broker._listing._answer = lambda question: release.wait(20) and honest(question)  # type: ignore[method-assign]
    socks = []
    with SocketDir(broker.address.directory, create=False) as directory:
        for _ in range(broker_listing._QUEUED + 4):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.settimeout(10)
            sock.connect(directory.address(socket_name(broker.address.broker)))
            sock.send(encode_question(What.EXPORTS))
            socks.append(sock)
    # The broker serves others meanwhile.
    assert eventually(lambda: broker._listing._pool.full)
    release.set()
    answers = [decode_answer(sock.recv(1 << 16))[0] for sock in socks]
    for sock in socks:
        sock.close()
    assert set(answers) == {Status.OK, Status.BUSY}


def test_dead_brokers_and_other_files_are_left_out(broker: Broker) -> None:
    directory = broker.address.directory
    (directory / "notes.txt").write_text("")
    with SocketDir(directory, create=False) as trusted:
        trusted.listen(secrets.token_bytes(8), mode=0o600, backlog=1).close()
        assert [told.socket.name for told in ask_all(What.EXPORTS)] == [
            socket_name(broker.address.broker)
        ]
        assert trusted.remove_stale() == 1
    (directory / "notes.txt").unlink()


def test_no_directory_is_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ZE_IPC_DIR", str(tmp_path / "missing"))
    assert list(ask_all(What.EXPORTS)) == []


def test_a_listing_does_not_keep_a_device_alive() -> None:
    device = open_device("mock")
    reservation = device.reserve(PAGE)
    with device.physical_memory(PAGE) as memory:
        reservation.map(memory, at=0)
        handle = device.get_ipc_handle(reservation.ptr, PAGE)
    (told,) = ask_all(What.MAPPINGS)
    assert told.said["device"] == device.name
    handle.close()
    reservation.close()
    del reservation, handle, memory
    gc.collect()
    with pytest.warns(ResourceWarning):
        del device
    assert eventually(lambda: list(ask_all(What.EXPORTS)) == [])


def test_who_asks_survives_a_socket_of_another_kind(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ZE_IPC_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    (tmp_path / f"{'0' * 16}.sock").write_text("no socket")
    assert list(transport_listing.ask_all(What.EXPORTS)) == []
