"""One worker: runs cases one after another, each in a process forked for it."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faults import sabotage
from faults.jobs import Job
from faults.native import Call, Native, Plan, Traced
from faults.scenes import Scene
from faults.survivors import Exporter, Importer, Survivor
from faults.table import name_of
from helpers.imports import import_everything
from ze_ipc import leaks

CASE_SECONDS = 40.0
"""Then the case hangs: several times what the longest waits of the library come to."""
LIFE = 1000
"""Commands of a survivor before a new one takes its place."""


@dataclass(slots=True)
class Verdict:
    """How one case ended."""

    fired: bool = False
    """Whether the call to interfere with was made."""
    wrong: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


class Worker:
    """Owns the survivors. Not a thread: it is the parent and the tracer of what it forks."""

    def __init__(self, library: str) -> None:
        self._native = Native(library)
        self._exporters: dict[int, Exporter] = {}
        self._importers: dict[tuple[int, str], Importer] = {}
        self._lost: list[str] = []
        self._seconds = CASE_SECONDS

    def run(
        self,
        scene: Scene,
        plan: Plan | None,
        evil: str = "",
        seconds: float = CASE_SECONDS,
        settle: float = leaks.SETTLE_SECONDS,
    ) -> Verdict:
        """Trace one run of the scene's job, with one call of it interfered with."""
        verdict = Verdict()
        self._seconds = seconds
        leaks.SETTLE_SECONDS = settle
        try:
            if scene.side == "exporter":
                self._run_exporter(scene, plan, evil, verdict)
            else:
                self._run_importer(scene, plan, evil, verdict)
            self._try_again(scene, verdict)
            if verdict.wrong:
                self._give_up()  # what is left behind once would be found again in each case
        except (EOFError, TimeoutError, ConnectionError) as error:
            verdict.wrong.append(f"a survivor hangs or died: {error!r}")
            self._give_up()
        return verdict

    def stop(self) -> list[str]:
        """End the survivors; what was wrong with them."""
        wrong = self._lost
        for survivor in self._survivors:
            wrong = wrong + survivor.stop()
        self._exporters.clear()
        self._importers.clear()
        self._lost = []
        return wrong

    # Cases.

    def _run_exporter(self, scene: Scene, plan: Plan | None, evil: str, verdict: Verdict) -> None:
        importer = self._importer(scene)
        files = self._sockets()
        ours, theirs = socket.socketpair()
        importer.tell("case", link=theirs)
        theirs.close()
        traced, report = self._fork(scene, plan, evil, ours, verdict)
        ours.close()
        self._take(importer.answer(), verdict)
        self._judge(traced, report, verdict)
        left = self._sockets() - files
        if left and not os.WIFSIGNALED(traced.status):
            verdict.wrong.append(f"socket files left: {left}")
        for name in left:
            # Bound and never renamed: kept for a minute, as it could be of a slow process.
            if name.endswith(".new"):
                os.unlink(os.path.join(os.environ["ZE_IPC_DIR"], name))  # noqa: PTH108, PTH118

    def _run_importer(self, scene: Scene, plan: Plan | None, evil: str, verdict: Verdict) -> None:
        exporter = self._exporter(scene)
        handle = self._take(exporter.ask("new"), verdict)
        traced, report = self._fork(scene, plan, evil, handle, verdict)
        self._judge(traced, report, verdict)
        self._take(exporter.ask("end"), verdict)

    def _try_again(self, scene: Scene, verdict: Verdict) -> None:
        """The survivor's next attempt, with a peer to whom nothing happens."""
        exporter, importer = self._exporter(scene), self._importer(scene)
        handle = self._take(exporter.ask("new"), verdict)
        if not self._take(importer.ask("open", handle), verdict):
            verdict.wrong.append("the survivor's next attempt failed")
        self._take(exporter.ask("end"), verdict)

    def _fork(
        self,
        scene: Scene,
        plan: Plan | None,
        evil: str,
        link: socket.socket | bytes,
        verdict: Verdict,
    ) -> tuple[Traced, bytes]:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                os.close(reading)
                self._close_inherited()
                os.environ["ZE_IPC_TRANSPORT"] = scene.transport
                Job(self._native, scene, sabotage.VERBS.get(evil)).run(link, writing)
            os._exit(5)
        os.close(writing)
        if isinstance(link, socket.socket):
            link.close()
        try:
            traced = self._native.trace(pid, plan, self._seconds)
            with open(reading, "rb", closefd=False) as pipe:
                report = pipe.read()
        finally:
            os.close(reading)
        return traced, report

    def _judge(self, traced: Traced, raw: bytes, verdict: Verdict) -> None:
        verdict.fired = traced.fired
        verdict.calls = traced.calls
        # A thread that is killed before it was ever seen shows as a stranger too.
        if traced.stranger in {survivor.pid for survivor in self._survivors}:
            raise EOFError(f"process {traced.stranger} is a survivor")
        if traced.timed_out:
            verdict.wrong.append(f"hangs in {name_of(traced.stuck)}")
        elif raw:
            steps, wrong = pickle.loads(raw)
            verdict.steps += steps
            verdict.wrong += wrong
            if traced.status:
                verdict.wrong.append(f"the process ended with status {traced.status:#x}")
        elif not (traced.fired and traced.status == signal.SIGKILL):
            verdict.wrong.append(f"the process ended with status {traced.status:#x}, no report")

    def _take(self, answer: Any, verdict: Verdict) -> Any:
        value, steps, wrong = answer
        verdict.steps += steps
        verdict.wrong += wrong
        return value

    # Survivors.

    def _exporter(self, scene: Scene) -> Exporter:
        found = self._exporters.get(scene.objects)
        if found is not None and found.commands > LIFE:
            self._lost += self._exporters.pop(scene.objects).stop()
            found = None
        if found is None:
            found = self._exporters[scene.objects] = Exporter(scene.objects, self._close_inherited)
        return found

    def _importer(self, scene: Scene) -> Importer:
        key = scene.objects, scene.transport
        found = self._importers.get(key)
        if found is not None and found.commands > LIFE:
            self._lost += self._importers.pop(key).stop()
            found = None
        if found is None:
            found = self._importers[key] = Importer(*key, self._close_inherited)
        return found

    @property
    def _survivors(self) -> list[Survivor]:
        return [*self._exporters.values(), *self._importers.values()]

    def _close_inherited(self) -> None:
        """In a child: the other survivors' control sockets, so that they see an end."""
        for survivor in self._survivors:
            os.close(survivor.fileno())

    def _give_up(self) -> None:
        survivors = self._survivors
        self._exporters.clear()
        self._importers.clear()
        for survivor in survivors:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                survivor.kill()

    def _sockets(self) -> set[str]:
        directory = Path(os.environ["ZE_IPC_DIR"])
        return {path.name for path in directory.iterdir()} if directory.is_dir() else set()


def main() -> None:
    """A line of JSON for each line of JSON: the case, and its verdict."""
    import_everything()
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        order = json.loads(line)
        if order == "stop":
            break
        scene = Scene(**order["scene"])
        plan = order.get("plan")
        if plan is not None:
            plan = Plan(Call(**plan.pop("call")), **plan)
        more = {name: order[name] for name in ("evil", "seconds", "settle") if name in order}
        print(json.dumps(asdict(worker.run(scene, plan, **more))), flush=True)
    print(json.dumps(worker.stop()), flush=True)


if __name__ == "__main__":
    main()
