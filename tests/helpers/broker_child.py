"""Exporters and importers as processes of their own, driven by lines of JSON."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from helpers import broker_fakes
from helpers.broker_fakes import FakeExport, open_range
from ze_ipc import transport
from ze_ipc.broker import Broker
from ze_ipc.broker_messages import receive_message
from ze_ipc.broker_protocol import Flag, decode_reply, encode_request
from ze_ipc.errors import ZeIpcError
from ze_ipc.handle import HandleFields
from ze_ipc.policy import Policy
from ze_ipc.socket_dir import SocketDir, candidate_dirs

TESTS = Path(__file__).resolve().parents[1]
_CODE = "from helpers.broker_child import main; main()"
_DEADLINE = 60.0
_GRACE = 5.0


class Child:
    """A process that answers one JSON line for each; killed when its context ends."""

    def __init__(self, verb: str, *, prefix: Sequence[str] = (), **options: Any) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-X", "dev", "-c", _CODE, verb, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))
                ),
            },
            text=True,
            start_new_session=True,
        )
        self._timer = threading.Timer(_DEADLINE, self.kill)
        self._timer.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> Any:
        """The next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended: {self.process.wait()}"
        return json.loads(line)

    def ask(self, *command: Any) -> Any:
        """The answer to a command."""
        self.say(*command)
        return self.hear()

    def say(self, *command: Any) -> None:
        """Give a command and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to what it runs under."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """Stop it, and return when it has stopped."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        """Kill it."""
        self.signal(signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status, within the deadline that kills it."""
        return self.process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE)
        self._timer.cancel()
        self._timer.join()
        self.kill()
        self.process.wait()
        self.process.stdout.close()
        # What a killed exporter leaves is removed by the next broker of its user.
        for path in candidate_dirs():
            with contextlib.suppress(FileNotFoundError), SocketDir(path, create=False) as directory:
                directory.remove_stale()


def exporter(**options: Any) -> Child:
    """A process with a broker; its first line is the handle."""
    return Child("export", **options)


def importer(handle: HandleFields | str, *, prefix: Sequence[str] = (), **options: Any) -> Child:
    """A process that opens a handle at each ask("open")."""
    text = handle if isinstance(handle, str) else handle.pack().hex()
    return Child("import", prefix=prefix, handle=text, **options)


def main() -> None:
    """Run the verb of the command line."""
    options = json.loads(sys.argv[2])
    verbs: dict[str, Callable[..., None]] = {
        "export": _export,
        "import": _import,
        "import_many": _import_many,
        "knock": _knock,
    }
    verbs[sys.argv[1]](**options)


def _commands() -> Iterator[list[Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def _print(value: Any) -> None:
    print(json.dumps(value), flush=True)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _DyingExport(FakeExport):
    """Kills its process when the broker asks for its manifest."""

    dies = False

    @property
    def manifest_bytes(self) -> bytes:
        if self.dies:
            _die()
        return self._manifest

    @manifest_bytes.setter
    def manifest_bytes(self, manifest: bytes) -> None:
        self._manifest = manifest


def _become(uid: int | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


def _export(
    objects: int = 2,
    manifest: int = 8,
    die_at: str = "",
    uids: list[int] | None = None,
    uid: int | None = None,
) -> None:
    _become(uid)
    broker = Broker()
    export = _DyingExport(objects, b"m" * manifest)
    if die_at == "manifest":
        export.dies = True
    elif die_at:
        export.before_object = lambda index: _die() if index == int(die_at) else None
    policy = Policy(uids=None if uids is None else frozenset(uids))
    generation, secret = broker.register(export, policy)
    _print(broker.handle_fields(generation, secret).pack().hex())
    for command, *args in _commands():
        if command == "limit":
            used = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + args[0], 20000))
            _print(used)
        elif command == "fill":
            # Take every number that is left: only then does the limit mean nothing is free.
            taken = []
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            _print(len(taken))
        elif command == "free":
            for number in taken:
                os.close(number)
            _print(len(taken))
        elif command == "cpu":
            _print(time.process_time())
        elif command == "stats":
            _print(
                {
                    "fds": broker_fakes.fd_count(),
                    "services": len(broker._running()),
                    "events": export.events,
                    "importers": [entry.pid for entry in broker.importers(generation)],
                }
            )
        elif command == "revoke":
            _print(broker.revoke(generation))
        elif command == "exit":
            sys.exit(0)
    broker.close()


def _import(
    handle: str, uid: int | None = None, transport_name: str | None = None, timeout: float = 5.0
) -> None:
    _become(uid)
    fields = HandleFields.unpack(bytes.fromhex(handle))
    name = {"broker": "broker", "pidfd": "pidfd", None: None}[transport_name]
    _print("ready")
    kept: list[transport.Connection] = []
    for command, *_ in _commands():
        begun = time.monotonic()
        try:
            if command == "open":
                result: Any = len(open_range(fields, timeout, transport=name)[1])  # type: ignore[arg-type]
            elif command == "probe":
                result = transport.probe(fields, begun + timeout).object_count
            else:
                result = _open_until(command, fields, begun + timeout, kept)
        except ZeIpcError as error:
            result = type(error).__name__
        except ConnectionError:
            result = "ConnectionError"
        _print([result, time.monotonic() - begun])
    for connection in kept:
        connection.close()


def _import_many(count: int) -> None:
    """Open the handle of each command ``count`` times at once; how many of them succeeded."""
    for text, *_ in _commands():
        fields = HandleFields.unpack(bytes.fromhex(text))
        barrier = threading.Barrier(count)

        def work(
            _: int, barrier: threading.Barrier = barrier, fields: HandleFields = fields
        ) -> int:
            barrier.wait(20)
            return len(open_range(fields, 30)[1]) > 0

        with ThreadPoolExecutor(count) as pool:
            _print(sum(pool.map(work, range(count))))


def _knock(uid: int, path: str, handle: str) -> None:
    """Become root of a new user namespace and ask without any of the importer's own checks."""
    _become(uid)
    libc = ctypes.CDLL(None, use_errno=True)
    # After a change of uid /proc/self belongs to root, until the process is dumpable again.
    assert libc.prctl(4, 1, 0, 0, 0) == 0
    assert libc.unshare(0x10000000) == 0, os.strerror(ctypes.get_errno())
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1\n")
    _print(os.geteuid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(path)
        # The broker may have refused and closed before it was asked.
        with contextlib.suppress(BrokenPipeError):
            sock.send(encode_request(Flag(0), bytes.fromhex(handle)), socket.MSG_NOSIGNAL)
        answer = receive_message(sock, 1 << 16, time.monotonic() + 5)
        _print(decode_reply(answer, check=False).status.name)


def _open_until(
    step: str, fields: HandleFields, deadline: float, kept: list[transport.Connection]
) -> str:
    """Go as far as the step says, and stay there."""
    connection = transport.connect(fields, deadline)
    kept.append(connection)
    if step == "connected":
        return step
    reply = connection.request()
    if step == "requested":
        return step
    connection.manifest()
    if step == "manifest":
        return step
    broker_fakes.receive_objects(connection, reply.object_count if step == "objects" else 1)
    return step
