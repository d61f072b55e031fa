"""Plans the cases from good runs, spreads them over workers, and says what was found."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from faults.native import (
    FAIL,
    FAIL_AFTER,
    KILL_AFTER,
    KILL_BEFORE,
    Call,
    Plan,
    build,
    show_errno,
)
from faults.scenes import SIDES, Scene
from faults.table import acceptable, errnos_of, happens_anyway, name_of

TESTS = Path(__file__).resolve().parents[1]
WHOLE = [Scene(side, transport, 3) for transport in ("broker", "pidfd") for side in SIDES]
"""Every call of these."""
SAMPLED = [Scene(side, "broker", 300) for side in SIDES]
"""Of these the first, the last and some occurrences of each call: objects go in two messages."""
OCCURRENCES = 4
TRACES = 3
"""Good runs of a scene, whose calls are put together: threads take turns as they like."""
TRIES = 4
"""Runs of a case until the call to interfere with is made."""
STUCK_SECONDS = 180.0
"""A worker that says nothing for so long is stuck itself."""

KINDS = {
    FAIL: "fails",
    FAIL_AFTER: "fails",
    KILL_BEFORE: "killed before",
    KILL_AFTER: "killed after",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One run with one call interfered with."""

    scene: Scene
    plan: Plan

    def __str__(self) -> str:
        call, plan = self.plan.call, self.plan
        where = f"{name_of(call)}#{plan.occurrence}"
        where += f" of thread {call.thread}" if call.thread else ""
        where += " in the device" if call.inside else ""
        what = KINDS[plan.action] + (f" with {show_errno(plan.error)}" if plan.error else "")
        return f"{self.scene}: {where} {what}"


@dataclass(slots=True)
class Result:
    """What a campaign found."""

    cases: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Done, by side and kind."""
    calls: set[tuple[str, str]] = field(default_factory=set)
    """(side, name) of what was interfered with."""
    accepted: Counter[str] = field(default_factory=Counter)
    """Reasons for which a finding is none, from the table."""
    unreached: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    """Calls that the table does not know."""
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return self.cases.total()

    def lines(self) -> Iterator[str]:
        """A summary for people."""
        kinds = ("fails", "killed before", "killed after")
        for side in sorted({side for side, _ in self.cases}):
            counts = ", ".join(f"{self.cases[side, kind]} {kind}" for kind in kinds)
            names = len({name for its, name in self.calls if its == side})
            yield f"{side}: {counts}; {names} kinds of calls"
        for reason, count in sorted(self.accepted.items()):
            yield f"accepted {count} times: {reason}"
        if self.unknown:
            yield f"only killed at, for the table has no row: {', '.join(sorted(self.unknown))}"
        if self.unreached:
            some = "; ".join(self.unreached[:5])
            yield f"{len(self.unreached)} calls were not made again: {some}"
        yield f"{self.total} cases in {self.seconds:.0f} s, {len(self.wrong)} wrong"


class WorkerProcess:
    """A worker of its own process, with directories of its own."""

    def __init__(self, library: Path, directory: Path, number: int) -> None:
        own = directory / f"w{number}"
        own.mkdir(mode=0o700)
        self._memory = Path(tempfile.mkdtemp(prefix="zeipc-faults-", dir="/dev/shm"))
        self.errors = directory / f"w{number}.err"
        environment = {
            **os.environ,
            "ZE_IPC_DIR": str(own),
            "ZE_IPC_MOCK_DIR": str(self._memory),
            "PYTHONPATH": str(TESTS),
        }
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faults.worker", str(library)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
                cwd=directory,
                start_new_session=True,
            )

    def ask(self, order: Any) -> Any:
        """Its answer; RuntimeError if it ended, or was stuck and so was killed."""
        stdin, stdout = self._pipes()
        timer = threading.Timer(STUCK_SECONDS, self.kill)
        timer.start()
        try:
            stdin.write(json.dumps(order) + "\n")
            stdin.flush()
            line = stdout.readline()
        finally:
            timer.cancel()
            timer.join()
        if not line:
            raise RuntimeError(f"a worker ended: {self.errors.read_text()[-3000:]}")
        return json.loads(line)

    def kill(self) -> None:
        """End it with all it has forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._process.wait()
        for pipe in self._pipes():
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        shutil.rmtree(self._memory, ignore_errors=True)

    def _pipes(self) -> tuple[TextIO, TextIO]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        return stdin, stdout


class Campaign:
    """A built tracer and some workers."""

    def __init__(self, workers: int = 2) -> None:
        with contextlib.ExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="zeipc-faults-"))
            library = build(Path(name))
            self.workers = []
            for number in range(workers):
                self.workers.append(WorkerProcess(library, Path(name), number))
                stack.callback(self.workers[-1].close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def trace(self, scene: Scene) -> Counter[Call]:
        """The calls of good runs: how often each is made at most."""
        calls: Counter[Call] = Counter()
        for number in range(TRACES):
            verdict = self.workers[number % len(self.workers)].ask({"scene": asdict(scene)})
            if verdict["wrong"]:
                raise RuntimeError(f"{scene} fails undisturbed: {verdict['wrong']}")
            calls |= Counter(Call(**call) for call in verdict["calls"])
        return calls

    def run(self, cases: Sequence[Case]) -> Result:
        """Run them all."""
        result = Result()
        begun = time.monotonic()
        queue: SimpleQueue[Case] = SimpleQueue()
        for case in cases:
            queue.put(case)
        lock = threading.Lock()

        def work(worker: WorkerProcess) -> None:
            try:
                while True:
                    case = queue.get_nowait()
                    verdict = _run(worker, case)
                    with lock:
                        _enter(result, case, verdict)
            except Empty:
                pass
            except RuntimeError as error:
                with lock:
                    result.wrong.append(f"{case}: {error}")

        threads = [threading.Thread(target=work, args=(worker,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for worker in self.workers:
            try:
                wrong = worker.ask("stop")
            except (RuntimeError, BrokenPipeError) as error:
                wrong = [str(error)]
            for line in wrong:
                print(f"WRONG {line}", file=sys.stderr, flush=True)
            result.wrong += wrong
        result.seconds = time.monotonic() - begun
        return result


def plan(scene: Scene, calls: Counter[Call], every: bool) -> Iterator[Case]:
    """The cases of a scene's calls."""
    for call in sorted(calls):
        for occurrence in _chosen(calls[call], every):
            for error in errnos_of(call, scene.side) or ():
                action = FAIL_AFTER if happens_anyway(call) else FAIL
                yield Case(scene, Plan(call, occurrence, action, error))
            yield Case(scene, Plan(call, occurrence, KILL_BEFORE))
            yield Case(scene, Plan(call, occurrence, KILL_AFTER))


def campaign(
    *,
    side: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    workers: int = 2,
) -> Result:
    """Trace, plan, run: all cases, or ``sample`` of them, which ``seed`` chooses."""
    with Campaign(workers) as running:
        cases: list[Case] = []
        unknown = set()
        for scene in (*WHOLE, *SAMPLED):
            if side in (None, scene.side):
                calls = running.trace(scene)
                cases += plan(scene, calls, every=scene in WHOLE)
                unknown |= {name_of(call) for call in calls if errnos_of(call, scene.side) is None}
        if sample is not None and sample < len(cases):
            cases = _sampled(cases, sample, random.Random(seed))
        result = running.run(cases)
        result.unknown = unknown
        return result


def _chosen(count: int, every: bool) -> Iterable[int]:
    if every or count <= OCCURRENCES:
        return range(count)
    step = (count - 1) / (OCCURRENCES - 1)
    return sorted({round(index * step) for index in range(OCCURRENCES)})


def _sampled(cases: list[Case], number: int, rng: random.Random) -> list[Case]:
    """Some, no kind of call being left out for another as long as there is room."""
    rng.shuffle(cases)
    seen: Counter[tuple[str, str]] = Counter()
    ranked = []
    for case in cases:
        key = case.scene.side, name_of(case.plan.call)
        ranked.append((seen[key], case))
        seen[key] += 1
    ranked.sort(key=lambda entry: entry[0])
    return [case for _, case in ranked[:number]]


def _run(worker: WorkerProcess, case: Case) -> dict[str, Any]:
    verdict: dict[str, Any] = {}
    order = {"scene": asdict(case.scene), "plan": asdict(case.plan)}
    for _ in range(TRIES):
        verdict = worker.ask(order)
        if verdict["fired"] or verdict["wrong"]:
            break
    return verdict


def _enter(result: Result, case: Case, verdict: dict[str, Any]) -> None:
    call, kind = case.plan.call, KINDS[case.plan.action]
    if not verdict["fired"] and not verdict["wrong"]:
        result.unreached.append(str(case))
        return
    result.cases[case.scene.side, kind] += 1
    result.calls.add((case.scene.side, name_of(call)))
    for line in verdict["wrong"]:
        reason = acceptable(call, case.plan.error, line)
        if reason is None:
            steps = "; ".join(verdict["steps"])
            result.wrong.append(f"{case}: {line} [{steps}]")
            print(f"WRONG {result.wrong[-1]}", file=sys.stderr, flush=True)
        else:
            result.accepted[reason] += 1
