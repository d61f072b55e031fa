"""Every way to be refused: the class of the error, nothing opened, nothing left."""

from __future__ import annotations

import dataclasses
import errno
import hmac
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers import broker_child
from helpers.broker_fakes import FakeExport, expected, open_range
from helpers.broker_probes import (
    OTHER_UID,
    may_change_uid,
    may_make_user_namespace,
    pid_namespace_prefix,
)
from helpers.waiting import eventually
from ze_ipc import broker_protocol as protocol
from ze_ipc import transport
from ze_ipc.broker import Broker
from ze_ipc.broker_protocol import Flag, Status
from ze_ipc.errors import (
    AccessDenied,
    Closed,
    ExporterGone,
    HandleRevoked,
    InvalidArgument,
    InvalidHandle,
    OpenTimeout,
    UnsupportedFeature,
    WrongHost,
    ZeIpcError,
)
from ze_ipc.handle import HandleFields
from ze_ipc.policy import Policy
from ze_ipc.socket_dir import SocketDir, socket_name
from ze_ipc.transport import TransportName, connect, probe


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(params=["broker", "pidfd"])
def name(request: pytest.FixtureRequest) -> TransportName:
    name: TransportName = request.param
    return name


def serve(broker: Broker, export: FakeExport, policy: Policy | None = None) -> HandleFields:
    return broker.handle_fields(*broker.register(export, policy or Policy()))


def refused(handle: HandleFields, cls: type[ZeIpcError], **options: object) -> ZeIpcError:
    """Opening and probing fail alike."""
    with pytest.raises(cls) as probed:
        probe(handle, time.monotonic() + 5)
    with pytest.raises(cls) as opened:
        open_range(handle, **options)  # type: ignore[arg-type]
    assert type(opened.value) is type(probed.value) is cls
    assert opened.value.hint
    return opened.value


@pytest.mark.parametrize(
    "damage",
    [
        lambda secret: bytes(16),
        lambda secret: secret[:-1] + bytes([secret[-1] ^ 1]),
        lambda secret: bytes([secret[0] ^ 0x80]) + secret[1:],
    ],
)
def test_wrong_secret(
    broker: Broker, name: TransportName, damage: Callable[[bytes], bytes]
) -> None:
    export = FakeExport()
    handle = serve(broker, export)
    wrong = dataclasses.replace(handle, secret=damage(handle.secret))
    error = refused(wrong, AccessDenied, transport=name)
    assert isinstance(error, PermissionError)
    assert error.errno == errno.EACCES
    assert open_range(handle, transport=name) == expected(export)


def test_secret_is_compared_in_constant_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real: Callable[[bytes, bytes], bool] = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        asked.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    handle = serve(broker, FakeExport())
    refused(dataclasses.replace(handle, secret=bytes(16)), AccessDenied)
    assert asked == [(bytes(16), handle.secret)] * 2


def test_replay_after_put(broker: Broker, name: TransportName) -> None:
    export = FakeExport()
    handle = serve(broker, export)
    open_range(handle, transport=name)
    export.wait_for("opened")
    broker.revoke(handle.generation)
    refused(handle, HandleRevoked, transport=name)
    again = serve(broker, FakeExport(1))
    assert again.generation != handle.generation
    refused(handle, HandleRevoked, transport=name)
    mixed = dataclasses.replace(again, secret=handle.secret)
    refused(mixed, AccessDenied, transport=name)


def test_put_by_a_finaliser(broker: Broker) -> None:
    export = FakeExport()
    handle = serve(broker, export)
    broker.revoke_later(handle.generation)
    export.wait_for("retired")
    refused(handle, HandleRevoked)


@pytest.mark.parametrize("generation", [0, 2, 2**64 - 1])
def test_generation_that_never_was(broker: Broker, name: TransportName, generation: int) -> None:
    handle = dataclasses.replace(serve(broker, FakeExport()), generation=generation)
    refused(handle, HandleRevoked, transport=name)


def test_wrong_host(broker: Broker) -> None:
    handle = serve(broker, FakeExport())
    refused(dataclasses.replace(handle, host=bytes(8)), WrongHost)


def test_nobody_of_that_name(broker: Broker) -> None:
    handle = dataclasses.replace(serve(broker, FakeExport()), broker=secrets.token_bytes(8))
    refused(handle, ExporterGone)
    refused(handle, ExporterGone, transport="pidfd")


def test_another_directory(broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    handle = serve(broker, FakeExport())
    monkeypatch.setenv("ZE_IPC_DIR", str(tmp_path))
    elsewhere = refused(handle, ExporterGone)
    monkeypatch.setenv("ZE_IPC_DIR", str(tmp_path / "missing"))
    missing = refused(handle, ExporterGone)
    assert "ZE_IPC_DIR" in elsewhere.hint
    assert "ZE_IPC_DIR" in missing.hint
    assert elsewhere.hint != missing.hint


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_directory_that_cannot_be_trusted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int
) -> None:
    handle = serve(broker, FakeExport())
    tmp_path.chmod(mode)
    monkeypatch.setenv("ZE_IPC_DIR", str(tmp_path))
    refused(handle, AccessDenied)
    with pytest.raises(AccessDenied):
        Broker()
    tmp_path.chmod(0o700)


def test_importer_finds_the_broker_without_the_exporters_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ZE_IPC_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    export = FakeExport()
    with Broker() as broker:
        handle = serve(broker, export)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert open_range(handle) == expected(export)
    refused(handle, ExporterGone)


def test_dead_socket(broker: Broker) -> None:
    handle = dataclasses.replace(serve(broker, FakeExport()), broker=secrets.token_bytes(8))
    with SocketDir(broker.address.directory, create=False) as directory:
        directory.listen(handle.broker, mode=0o600, backlog=1).close()
        refused(handle, ExporterGone)
        assert directory.remove_stale() == 1


def test_policy_of_one_export(broker: Broker) -> None:
    open_to_all = serve(broker, FakeExport(1))
    for_another = serve(broker, FakeExport(), Policy(pids=frozenset({1})))
    refused(for_another, AccessDenied)
    refused(serve(broker, FakeExport(), Policy(not_after=time.monotonic())), HandleRevoked)
    once = FakeExport(1)
    handle = serve(broker, once, Policy(max_opens=1))
    probe(handle, time.monotonic() + 5)
    assert open_range(handle) == expected(once)
    refused(handle, HandleRevoked)
    assert len(open_range(open_to_all)[1]) == 1


def exchange(broker: Broker, *messages: bytes) -> bytes:
    """What a broker says to a peer that speaks for itself."""
    with (
        SocketDir(broker.address.directory, create=False) as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock,
    ):
        sock.settimeout(5)
        sock.connect(directory.address(socket_name(broker.address.broker)))
        for message in messages:
            sock.send(message)
        return sock.recv(1 << 17)


def test_bytes_that_are_no_request(broker: Broker) -> None:
    handle = serve(broker, FakeExport())
    good = protocol.encode_request(Flag(0), handle.pack())
    damaged = bytearray(good)
    damaged[40] ^= 1
    for bad in (b"x", good[:-1], good + b"x", b"ZQ02" + good[4:], bytes(damaged), bytes(100_000)):
        reply = protocol.decode_reply(exchange(broker, bad), check=False)
        assert reply.status is Status.BAD_REQUEST
    with pytest.raises(UnsupportedFeature):
        raise protocol.error_of(Status.BAD_REQUEST)


@pytest.mark.parametrize("attribute", ["manifest_bytes", "object_count", "opened", "size"])
def test_export_that_fails(broker: Broker, attribute: str) -> None:
    """Its opens fail or are not noted; the broker lives on and gives it back."""

    class Broken(FakeExport):
        def __getattribute__(self, name: str) -> object:
            if name == attribute and broken:
                raise RuntimeError("an export that fails")
            return super().__getattribute__(name)

    broken: list[bool] = []
    export = Broken(1)
    handle = serve(broker, export)
    broken.append(True)
    if attribute in ("opened", "size"):
        open_range(handle)
    else:
        with pytest.raises(ExporterGone):
            open_range(handle, 1)
    assert eventually(lambda: not broker._running())
    broken.clear()
    assert open_range(handle) == expected(export)
    broker.revoke(handle.generation)
    export.wait_for("retired")


def test_every_bit_of_a_request_counts(broker: Broker) -> None:
    """A request that differs in one bit is refused, but for what it may choose: the flags that
    have a meaning, and its room for fds.
    """
    export = FakeExport(1)
    request = protocol.encode_request(Flag(0), serve(broker, export).pack())
    known = {32 + flag.bit_length() - 1 for flag in Flag} | {*range(48, 56)}
    for bit in set(range(8 * len(request))) - known:
        damaged = bytearray(request)
        damaged[bit // 8] ^= 1 << bit % 8
        reply = protocol.decode_reply(exchange(broker, bytes(damaged)), check=False)
        assert reply.status is Status.BAD_REQUEST, bit
    # The handle's checksum is no secret: with a right one, what it says is looked at.
    fields = HandleFields.unpack(request[8:])
    for bit in range(128):
        secret = bytearray(fields.secret)
        secret[bit // 8] ^= 1 << bit % 8
        wrong = dataclasses.replace(fields, secret=bytes(secret))
        answer = exchange(broker, protocol.encode_request(Flag(0), wrong.pack()))
        assert protocol.decode_reply(answer, check=False).status is Status.WRONG_SECRET, bit
    assert export.events == []


def test_second_message_that_is_no_last_word(broker: Broker) -> None:
    export = FakeExport(0)
    handle = serve(broker, export)
    request = protocol.encode_request(Flag(0), handle.pack())
    for word in (request, b"x", protocol.encode_done(1), protocol.encode_done(0) + b"x"):
        exchange(broker, request, word)
        assert eventually(lambda: not broker._running())
    assert export.events == []


def test_after_close(broker: Broker, name: TransportName) -> None:
    export = FakeExport()
    handle = serve(broker, export)
    broker.close()
    broker.close()
    assert export.events == ["retired"]
    refused(handle, ExporterGone, transport=name)
    with pytest.raises(Closed):
        broker.register(FakeExport())
    assert not broker.revoke(handle.generation)
    broker.revoke_later(handle.generation)
    assert broker.importers(handle.generation) == []
    assert "closed" in repr(broker)
    assert not list(broker.address.directory.iterdir())


# A malicious exporter.


@pytest.fixture
def liar(broker: Broker) -> Iterator[tuple[HandleFields, socket.socket]]:
    """A handle, and the listening socket of whoever is to answer it."""
    handle = dataclasses.replace(serve(broker, FakeExport()), broker=secrets.token_bytes(8))
    with SocketDir(broker.address.directory, create=False) as directory:
        with directory.listen(handle.broker, mode=0o600, backlog=64) as listening:
            listening.settimeout(5)
            yield handle, listening
        directory.unlink(socket_name(handle.broker))


GOOD = b"".join(next(protocol.encode_manifest(b"x" * 40_000, 1)))


@pytest.mark.parametrize(
    "answer",
    [
        b"no reply",
        GOOD[:23],
        GOOD + b"x",
        GOOD[:-1],
        GOOD[:8] + b"\xff" * 8 + GOOD[16:],
        GOOD[:16] + b"\xff" * 8 + GOOD[24:],
        bytes(200_000),
    ],
)
def test_answer_that_is_none(liar: tuple[HandleFields, socket.socket], answer: bytes) -> None:
    handle, listening = liar
    with connect(handle, time.monotonic() + 5) as connection:
        peer, _ = listening.accept()
        with peer:
            peer.send(answer)
            with pytest.raises(InvalidHandle):
                connection.request()


@pytest.mark.parametrize("size", [1, 7231, 7233, 65536])
def test_manifest_of_another_length(liar: tuple[HandleFields, socket.socket], size: int) -> None:
    handle, listening = liar
    with connect(handle, time.monotonic() + 5) as connection:
        peer, _ = listening.accept()
        with peer:
            peer.send(GOOD)
            assert connection.request().manifest_size == 40_000
            peer.send(b"x" * size)
            with pytest.raises(InvalidHandle):
                connection.manifest()


def test_exporter_that_says_nothing(liar: tuple[HandleFields, socket.socket]) -> None:
    handle, listening = liar
    begun = time.monotonic()
    with connect(handle, begun + 0.3) as connection:
        with pytest.raises(OpenTimeout) as caught:
            connection.request()
        assert isinstance(caught.value, TimeoutError)
    with connect(handle, time.monotonic() + 0.3) as connection:
        listening.accept()[0].close()
        peer, _ = listening.accept()
        with peer:
            peer.send(GOOD)
            connection.request()
            with pytest.raises(OpenTimeout):
                connection.manifest()
    assert time.monotonic() - begun < 5


def test_exporter_that_hangs_up_every_time(
    liar: tuple[HandleFields, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, listening = liar
    monkeypatch.setattr(transport, "_ATTEMPTS", 4)
    with connect(handle, time.monotonic() + 5) as connection:
        real = connection._exchange

        def exchange(request: bytes) -> bytes:
            listening.accept()[0].close()
            return real(request)

        monkeypatch.setattr(connection, "_exchange", exchange)
        with pytest.raises(ExporterGone):
            connection.request()


def test_full_backlog(liar: tuple[HandleFields, socket.socket]) -> None:
    handle, listening = liar
    listening.listen(0)
    with connect(handle, time.monotonic() + 5):
        begun = time.monotonic()
        with pytest.raises(OpenTimeout):
            connect(handle, begun + 0.2)
        assert time.monotonic() - begun < 2


def test_exporter_that_changes_to_nonblocking(broker: Broker) -> None:
    """O_NONBLOCK of a shared file description must not make anybody wait or fail."""
    export = FakeExport(3, b"m" * 1_000_000)
    handle = serve(broker, export)
    with connect(handle, time.monotonic() + 5, transport="pidfd") as connection:
        os.set_blocking(connection.fileno(), False)
        connection.request()
        assert connection.manifest() == export.manifest_bytes


# Peers of other users and namespaces.


@pytest.fixture
def other_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Another uid, and a broker directory that it can reach."""
    if not may_change_uid():
        pytest.skip("may not change to another uid")
    directory = Path("/tmp") / f"zeipc-shared-{secrets.token_hex(4)}"
    directory.mkdir()
    directory.chmod(0o1777)
    monkeypatch.setenv("ZE_IPC_DIR", str(directory))
    return OTHER_UID


@pytest.fixture
def shared(other_user: int) -> Iterator[Broker]:
    directory = Path(os.environ["ZE_IPC_DIR"])
    with Broker() as broker:
        yield broker
    directory.rmdir()


def ask_as(uid: int, handle: HandleFields, command: str) -> object:
    with broker_child.importer(handle, uid=uid) as child:
        child.hear()
        return child.ask(command)[0]


def test_other_user_cannot_reach_the_socket(shared: Broker, other_user: int) -> None:
    handle = serve(shared, FakeExport())
    assert ask_as(other_user, handle, "open") == "AccessDenied"


def test_other_user_is_refused_by_the_broker(shared: Broker, other_user: int) -> None:
    export = FakeExport()
    handle = serve(shared, export)
    (shared.address.directory / socket_name(handle.broker)).chmod(0o666)
    assert ask_as(other_user, handle, "open") == "AccessDenied"
    assert ask_as(other_user, handle, "probe") == "AccessDenied"
    assert export.events == []


def test_other_user_that_is_permitted(shared: Broker, other_user: int) -> None:
    handle = serve(shared, FakeExport(5), Policy(uids=frozenset({other_user})))
    not_theirs = serve(shared, FakeExport(5))
    assert ask_as(other_user, handle, "open") == 5
    assert ask_as(other_user, not_theirs, "open") == "AccessDenied"
    refused(handle, AccessDenied)


def test_other_user_who_is_root_in_a_namespace(shared: Broker, other_user: int) -> None:
    """Its uid is what it is here, whatever it calls itself there."""
    if not may_make_user_namespace():
        pytest.skip("may not make a user namespace")
    export = FakeExport()
    handle = serve(shared, export)
    path = shared.address.directory / socket_name(handle.broker)
    path.chmod(0o666)
    with broker_child.Child(
        "knock", uid=other_user, path=str(path), handle=handle.pack().hex()
    ) as child:
        assert child.hear() == 0, "it is root there"
        assert child.hear() == Status.REFUSED_PEER.name
    assert export.events == []


def test_exporter_of_another_user(other_user: int) -> None:
    """In a directory of many the name of a dead broker may be anybody's: not without being told."""
    directory = Path(os.environ["ZE_IPC_DIR"])
    with broker_child.exporter(objects=3, uid=other_user, uids=[os.geteuid()]) as child:
        handle = HandleFields.unpack(bytes.fromhex(child.hear()))
        refused(handle, AccessDenied)
        os.environ["ZE_IPC_EXPORTER_UIDS"] = f"1,{other_user}"
        try:
            assert len(open_range(handle)[1]) == 3
            os.environ["ZE_IPC_EXPORTER_UIDS"] = "me"
            refused(handle, InvalidArgument)
        finally:
            del os.environ["ZE_IPC_EXPORTER_UIDS"]
        assert eventually(lambda: child.ask("stats")["services"] == 0)
    directory.rmdir()


def test_other_user_by_pidfd(shared: Broker, other_user: int) -> None:
    handle = serve(shared, FakeExport())
    with broker_child.importer(handle, uid=other_user, transport_name="pidfd") as child:
        child.hear()
        assert child.ask("open")[0] == "TransportDenied"


@pytest.mark.parametrize("mount_proc", [False, True])
def test_other_pid_namespace(broker: Broker, mount_proc: bool) -> None:
    prefix = pid_namespace_prefix()
    if prefix is None:
        pytest.skip("may not make a pid namespace")
    export = FakeExport(5)
    handle = serve(broker, export)
    if mount_proc:
        prefix = (*prefix, "--mount-proc")
    with broker_child.importer(handle, prefix=prefix) as child:
        child.hear()
        assert child.ask("open")[0] == 5
        export.wait_for("opened")
        assert eventually(lambda: len(broker.importers(handle.generation)) == 1)
    export.wait_for("died")
    assert eventually(lambda: broker.importers(handle.generation) == [])


def test_exporter_in_another_pid_namespace() -> None:
    prefix = pid_namespace_prefix()
    if prefix is None:
        pytest.skip("may not make a pid namespace")
    with broker_child.Child("export", prefix=(*prefix, "--mount-proc"), objects=4) as child:
        handle = HandleFields.unpack(bytes.fromhex(child.hear()))
        assert handle.pid != child.pid
        assert len(open_range(handle)[1]) == 4
        # The pid is another process here, or none: its fd is not taken for a doorbell.
        with pytest.raises(ZeIpcError):
            open_range(handle, transport="pidfd")
        assert eventually(lambda: child.ask("stats")["services"] == 0)
