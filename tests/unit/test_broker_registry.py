"""Generations, secrets, policies and the one moment when an export is given back."""

from __future__ import annotations

import os
import time

import pytest

from helpers.broker_fakes import FakeExport
from ze_ipc.broker_protocol import Status
from ze_ipc.broker_registry import Registration, Registry
from ze_ipc.policy import Peer, Policy

US = Peer(1, os.geteuid(), 0)


def add(registry: Registry, policy: Policy | None = None) -> tuple[Registration, FakeExport]:
    export = FakeExport()
    registration = registry.add(export, policy or Policy())
    assert registration is not None
    return registration, export


def begin(registry: Registry, registration: Registration, *, check: bool = False) -> Status | int:
    found = registry.begin(registration.generation, registration.secret, US, check=check)
    return found if isinstance(found, Status) else found.generation


def test_generations_and_secrets_are_new() -> None:
    registry = Registry()
    registrations = [add(registry)[0] for _ in range(100)]
    assert [entry.generation for entry in registrations] == list(range(1, 101))
    assert len({entry.secret for entry in registrations}) == 100
    assert all(len(entry.secret) == 16 for entry in registrations)


def test_refusals() -> None:
    registry = Registry()
    one, _ = add(registry)
    other, _ = add(registry)
    assert registry.begin(one.generation, other.secret, US, check=False) is Status.WRONG_SECRET
    assert registry.begin(one.generation, bytes(16), US, check=False) is Status.WRONG_SECRET
    for unknown in (0, 3, 2**64 - 1):
        assert registry.begin(unknown, one.secret, US, check=False) is Status.UNKNOWN
    assert registry.revoke(one.generation)
    assert begin(registry, one) is Status.REVOKED
    assert not registry.revoke(one.generation)
    assert begin(registry, other) == other.generation


def test_retired_when_the_last_service_ends() -> None:
    registry = Registry()
    one, export = add(registry)
    assert begin(registry, one) == begin(registry, one, check=True) == 1
    registry.revoke(1)
    registry.end(one)
    assert export.events == []
    registry.end(one)
    assert export.events == ["retired"]
    assert not registry.revoke(1)
    assert export.events == ["retired"]


def test_opens_are_counted_and_refunded() -> None:
    registry = Registry()
    one, _ = add(registry, Policy(max_opens=2))
    assert begin(registry, one, check=True) == 1
    assert begin(registry, one) == 1
    registry.end(one, refund=True)
    assert begin(registry, one) == begin(registry, one) == 1
    assert begin(registry, one) is Status.EXPIRED
    assert begin(registry, one, check=True) is Status.EXPIRED


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        (Policy(pids=frozenset({2})), Status.REFUSED_PEER),
        (Policy(not_after=time.monotonic() - 1), Status.EXPIRED),
    ],
)
def test_policy(policy: Policy, status: Status) -> None:
    registry = Registry()
    one, _ = add(registry, policy)
    assert begin(registry, one) is status
    assert registry.begin(one.generation, bytes(16), US, check=False) is Status.WRONG_SECRET


def test_uids_that_may_connect() -> None:
    registry = Registry()
    assert registry.admits_uid(US.uid)
    assert not registry.admits_uid(US.uid + 1)
    first, _ = add(registry, Policy(uids=frozenset({US.uid + 1})))
    second, _ = add(registry, Policy(uids=frozenset({US.uid + 1, US.uid + 2})))
    registry.revoke(first.generation)
    assert registry.admits_uid(US.uid + 1)
    registry.revoke(second.generation)
    assert not registry.admits_uid(US.uid + 1)
    assert not registry.admits_uid(US.uid + 2)


def test_export_that_fails_to_retire(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(export: FakeExport) -> None:
        raise RuntimeError("retired() that fails")

    registry = Registry()
    bad, _ = add(registry)
    _, good = add(registry)
    monkeypatch.setattr(bad.served, "retired", fail.__get__(bad.served))
    registry.close()
    assert good.events == ["retired"]
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_close_retires_everything_and_takes_nothing() -> None:
    registry = Registry()
    exports = [add(registry)[1] for _ in range(3)]
    registry.close()
    assert [export.events for export in exports] == [["retired"]] * 3
    assert registry.add(FakeExport(), Policy()) is None
