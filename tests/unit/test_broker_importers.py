"""Who is recorded as holding a range, whatever order its words arrive in."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from ze_ipc import broker_importers
from ze_ipc.broker_importers import ImporterTable
from ze_ipc.policy import Peer

US = Peer(os.getpid(), os.geteuid(), os.getegid())
STRANGER = Peer(0, 0, 0)
"""Of another pid namespace: nothing but its token names it."""


@pytest.fixture
def table() -> Iterator[ImporterTable]:
    made = ImporterTable(4)
    yield made
    made.close()


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    near, far = socket.socketpair()
    with near, far:
        yield near


@pytest.mark.parametrize("peer", [US, STRANGER], ids=["a process here", "a stranger"])
def test_a_release_ends_what_its_open_began(
    table: ImporterTable, sock: socket.socket, peer: Peer
) -> None:
    opened, _ = table.add(1, peer, 4096, sock, 7)
    assert opened is not None
    assert opened.kind == "opened"
    assert table.of(1) == [opened.importer]
    released = table.release(1, 7)
    assert released is not None
    assert (released.kind, released.importer) == ("released", opened.importer)
    assert table.of(1) == []
    assert not table._processes
    assert not table._by_token


def test_a_release_may_come_before_its_open(table: ImporterTable, sock: socket.socket) -> None:
    assert table.release(1, 7) is None
    event, _ = table.add(1, US, 4096, sock, 7)
    assert event is None
    assert table.of(1) == []
    # It was for that open alone.
    event, _ = table.add(1, US, 4096, sock, 7)
    assert event is not None


def test_a_process_holds_it_until_its_last_token_is_gone(
    table: ImporterTable, sock: socket.socket
) -> None:
    for token in (7, 8, 7):
        table.add(1, US, 4096, sock, token)
    table.add(2, US, 4096, sock, 9)
    assert [entry.opens for entry in table.of(1)] == [3]
    assert table.release(1, 7) is None
    assert len(table.of(1)) == 1
    assert table.release(1, 8) is not None
    assert table.of(1) == []
    assert len(table.of(2)) == 1
    assert table.release(2, 8) is None
    assert len(table.of(2)) == 1


def test_another_token_releases_nothing(table: ImporterTable, sock: socket.socket) -> None:
    table.add(1, US, 4096, sock, 7)
    for generation, token in ((1, 8), (2, 7), (1, 0)):
        assert table.release(generation, token) is None
    assert len(table.of(1)) == 1


def test_what_strangers_say_is_remembered_within_bounds(
    table: ImporterTable, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_importers, "_EARLY", 5)
    monkeypatch.setattr(broker_importers, "_MAX_TOKENS", 3)
    for token in range(1, 20):
        table.release(1, token)
    assert len(table._early) == 5
    for token in range(100, 120):
        table.add(1, US, 4096, sock, token)
    assert len(table._by_token) == 3
    table.forget(1)
    assert not table._processes
    assert not table._by_token
