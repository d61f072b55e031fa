"""Asking the brokers of this host what they serve, and one of them what is behind a handle."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ze_ipc.broker_listing import ANSWER_SIZE, What, decode_answer, encode_question
from ze_ipc.broker_messages import (
    DeadlinePassed,
    receive_bytes,
    receive_message,
    send_message,
)
from ze_ipc.broker_protocol import MESSAGE_MANIFEST, Malformed, Status, error_of
from ze_ipc.errors import ExporterGone, InvalidHandle, OpenTimeout, ZeIpcError
from ze_ipc.handle import HandleFields
from ze_ipc.host import host_identity
from ze_ipc.os_errors import error_of_os
from ze_ipc.policy import peer_of
from ze_ipc.socket_dir import candidate_dirs
from ze_ipc.transport import connect
from ze_ipc.transport_dial import dial_broker

_SOCKET_NAME = re.compile(r"([0-9a-f]{16})\.sock")
_CALL = "listing"


@dataclass(frozen=True, slots=True)
class Told:
    """What one broker said of itself, or why it did not."""

    socket: Path
    pid: int
    """Of the listening process, by SO_PEERCRED: 0 where it has none in our pid namespace."""
    said: dict[str, Any]
    """Its answer; empty with a ``problem``."""
    problem: str = ""


def ask_all(what: What, *, seconds: float = 2.0) -> Iterator[Told]:
    """Ask every broker of this user in the directories where an importer looks, each for at most
    so many ``seconds``. Dead ones are left out.
    """
    for directory in candidate_dirs():
        try:
            names = sorted(path.name for path in directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            yield Told(directory, 0, {}, str(error))
            continue
        for name in names:
            if match := _SOCKET_NAME.fullmatch(name):
                told = _ask_one(directory / name, bytes.fromhex(match[1]), what, seconds)
                if told is not None:
                    yield told


def ask_about(handle: HandleFields, deadline: float) -> dict[str, Any]:
    """What the exporter says of one handle; ``manifest`` is its bytes. Raises as an open does."""
    with connect(handle, deadline) as connection:
        number = os.dup(connection.fileno())
        with socket.socket(fileno=number) as sock:
            said = _ask(sock, encode_question(What.DESCRIBE, handle.pack()), deadline)
    try:
        said["manifest"] = base64.b64decode(said["manifest"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise _nonsense("no manifest in its answer") from error
    return said


def _ask_one(path: Path, broker: bytes, what: What, seconds: float) -> Told | None:
    deadline = time.monotonic() + seconds
    # Nothing but the broker's name is looked at where no handle is opened.
    name = HandleFields(host_identity(), 1, broker, bytes(16), 0)
    pid = 0
    try:
        with dial_broker(name, deadline) as sock:
            pid = peer_of(sock).pid
            return Told(path, pid, _ask(sock, encode_question(what), deadline))
    except ExporterGone:
        return None
    except ZeIpcError as error:
        return Told(path, pid, {}, str(error))


def _ask(sock: socket.socket, question: bytes, deadline: float) -> dict[str, Any]:
    try:
        send_message(sock, [question], deadline)
        first = receive_message(sock, ANSWER_SIZE, deadline)
        if not first:
            raise ExporterGone("the exporter ended the connection", call=_CALL)
        status, size = decode_answer(first)
        if status is not Status.OK:
            raise error_of(status)
        text = bytearray(size)
        if rc := receive_bytes(sock.fileno(), memoryview(text), MESSAGE_MANIFEST, deadline):
            raise error_of_os(OSError(-rc, os.strerror(-rc)), "recv")
        said = json.loads(text)
    except DeadlinePassed:
        raise OpenTimeout("the exporter did not answer in time", call=_CALL) from None
    except (Malformed, ValueError) as error:
        raise _nonsense(str(error)) from error
    except OSError as error:
        raise error_of_os(error, "recv") from error
    if not isinstance(said, dict):
        raise _nonsense("its answer is no object")
    return said


def _nonsense(what: str) -> InvalidHandle:
    return InvalidHandle(
        f"the exporter answers a listing with something else: {what}",
        call=_CALL,
        hint="use the same version of ze_ipc in both processes",
    )
