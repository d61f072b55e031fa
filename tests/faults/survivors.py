"""The other side: an exporter and an importer that live on from case to case and must not mind."""

from __future__ import annotations

import array
import os
import pickle
import signal
import socket
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import ze_ipc
from faults.jobs import TIMEOUT, make_range, window_of, wrong_bytes
from faults.reports import Holdings, Report, heap_bytes, left_behind, watched
from ze_ipc.mock import MockDevice

ANSWER_SECONDS = 60.0
_MESSAGE = 1 << 16
_FRIENDS = 20
"""Commands until the heap has what it keeps for good."""
GROWTH = 1024
"""Bytes a command that the heap may grow by, for fragments and caches."""
ONCE = 2 << 20
"""Bytes that it may grow by once: malloc() takes from the heap what it had mapped before."""


class Survivor(ABC):
    """A forked process that does what it is told until it is told to stop."""

    def __init__(self, inherited: Callable[[], None]) -> None:
        """``inherited`` closes what the child must not keep open."""
        self.commands = 0
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            code = 3
            try:
                inherited()
                self._control.close()
                self._serve(theirs)
                code = 0
            finally:
                os._exit(code)
        theirs.close()
        self._control.settimeout(ANSWER_SECONDS)

    def fileno(self) -> int:
        return self._control.fileno()

    def ask(self, command: str, argument: Any = None, link: socket.socket | None = None) -> Any:
        """The answer to a command."""
        self.tell(command, argument, link)
        return self.answer()

    def tell(self, command: str, argument: Any = None, link: socket.socket | None = None) -> None:
        """Give a command; answer() waits for it."""
        rights = []
        if link is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [link.fileno()]))]
        self._control.sendmsg([pickle.dumps((command, argument))], rights)
        self.commands += 1

    def answer(self) -> Any:
        """What the command gave; EOFError if the process ended, TimeoutError if it hangs."""
        data = self._control.recv(_MESSAGE)
        if not data:
            raise EOFError(f"the {type(self).__name__} ended")
        return pickle.loads(data)

    def stop(self) -> list[str]:
        """End it; what was wrong with its whole life."""
        try:
            wrong: list[str] = self.ask("stop")
            _, status = os.waitpid(self.pid, 0)
        except (EOFError, TimeoutError, BrokenPipeError, ConnectionError) as error:
            self.kill()
            return [f"{type(self).__name__}: {error!r}"]
        finally:
            self._control.close()
        return [*wrong, *([f"{type(self).__name__} exits with {status}"] if status else [])]

    def kill(self) -> None:
        """kill -9, and wait."""
        self._control.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    # In the child.

    def _serve(self, control: socket.socket) -> None:
        mock = self.mock = MockDevice(0)
        empty = Holdings.take(mock=mock)
        device = self.device = ze_ipc.open_device("mock")
        self.start()
        heap = done = 0
        while True:
            data, ancillary, _, _ = control.recvmsg(_MESSAGE, 64)
            if not data:
                os._exit(4)
            command, argument = pickle.loads(data)
            links = array.array("i")
            for _, _, rights in ancillary:
                links.frombytes(rights[: len(rights) // 4 * 4])
            if command == "stop":
                break
            report, value = Report(), None
            try:
                with watched(report):
                    value = self.do(report, command, argument, links[0] if links else None)
            except BaseException:
                report.wrong.append(f"{command} of a survivor: {traceback.format_exc()}")
            control.send(pickle.dumps((value, report.steps, report.wrong)))
            done += 1
            if done == _FRIENDS:
                heap = heap_bytes()
        wrong = []
        grown = heap_bytes() - heap
        if done > 2 * _FRIENDS and grown > ONCE + GROWTH * (done - _FRIENDS):
            wrong.append(f"{type(self).__name__}: the heap grew {grown} bytes in {done} commands")
        self.finish()
        device.close()
        self.device = device = None  # type: ignore[assignment]
        left = left_behind(empty, mock=mock, ignore="socket file")
        wrong += [f"{type(self).__name__} at its end: {line}" for line in left]
        control.send(pickle.dumps(wrong))

    mock: MockDevice
    device: ze_ipc.Device

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def do(self, report: Report, command: str, argument: Any, link: int | None) -> Any: ...

    @abstractmethod
    def finish(self) -> None: ...


class Exporter(Survivor):
    """Gives a handle of the same range for each case."""

    def __init__(self, objects: int, inherited: Callable[[], None]) -> None:
        self.objects = objects
        super().__init__(inherited)

    def start(self) -> None:
        self.reservation = make_range(self.device, self.objects)
        # The broker stays: what it costs is no leak.
        self.device.get_ipc_handle(*window_of(self.reservation)).close()
        self.before = Holdings.take(self.device, self.mock)

    def do(self, report: Report, command: str, argument: Any, link: int | None) -> Any:
        if command == "new":
            self.handle = self.device.get_ipc_handle(*window_of(self.reservation))
            return bytes(self.handle)
        assert command == "end"
        self.handle.close()
        left = left_behind(self.before, self.device, self.mock, ignore="socket file")
        if left:
            report.wrong.append(f"left in the exporter: {'; '.join(left)}")
        return None

    def finish(self) -> None:
        self.reservation.close()


class Importer(Survivor):
    """Opens what it is told to."""

    def __init__(self, objects: int, transport: str, inherited: Callable[[], None]) -> None:
        self.objects = objects
        self.transport = transport
        super().__init__(inherited)

    def start(self) -> None:
        os.environ["ZE_IPC_TRANSPORT"] = self.transport
        self.before = Holdings.take(self.device, self.mock)

    def do(self, report: Report, command: str, argument: Any, link: int | None) -> Any:
        if command == "open":
            opened = self._open(report, argument)
        else:
            assert command == "case"
            assert link is not None
            with socket.socket(fileno=link) as peer:
                while True:
                    try:
                        handle = peer.recv(64)
                        if not handle:
                            break
                        opened = self._open(report, handle)
                        peer.sendall(b"1" if opened else b"0")
                    except ConnectionError:
                        break
            opened = True
        left = left_behind(self.before, self.device, self.mock, ignore="socket file")
        if left:
            report.wrong.append(f"left in the importer: {'; '.join(left)}")
        return opened

    def _open(self, report: Report, handle: bytes) -> bool:
        try:
            with self.device.open_ipc_handle(handle, timeout=TIMEOUT) as view:
                if wrong_bytes(self.device, view, self.objects):
                    report.wrong.append("the importer sees wrong bytes")
        except BaseException as error:
            report.failed("survivor's open", error)
            return False
        report.good("survivor's open")
        return True

    def finish(self) -> None:
        pass
