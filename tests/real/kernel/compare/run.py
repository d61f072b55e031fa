"""Running scripts: in the guest on the real driver, and outside on the mock."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from ..agent import GuestError
from ..compiler import compile_static, compiled
from ..gpu.profiles import Profile
from ..harness import (
    FIRST_NODE,
    FIRST_OF_PEERS,
    REFERENCE,
    Prepared,
    driver_lines,
    session,
    session_of_peers,
)
from ..initramfs import GUEST
from ..packages import cache_dir
from ..qemu import Guest
from . import (
    checks_core,
    checks_exec,
    checks_found,
    checks_gem,
    checks_map,
    checks_prime,
    checks_sync,
    checks_timelines,
    checks_vm,
)
from .common import Platform
from .script import Script, parse

REPOSITORY = Path(__file__).parents[4]
MODULES = (
    checks_core, checks_gem, checks_map, checks_prime, checks_sync, checks_exec, checks_vm,
    checks_found, checks_timelines,
)  # fmt: skip
FAMILIES = tuple(itertools.chain.from_iterable(module.FAMILIES for module in MODULES))
BATCH = 100
"""Scripts in one call of the runner."""
BATCH_SECONDS = 300
MOST_GUESTS = 20
"""So many may break before the run is given up."""


def scripts(platform: Platform, pattern: str = "") -> Iterator[Script]:
    """Every script whose name contains the pattern; names are unique."""
    seen: set[str] = set()
    for family in FAMILIES:
        for script in family(platform):
            if script.name in seen:
                raise ValueError(f"two scripts are called {script.name}")
            seen.add(script.name)
            if pattern in script.name:
                yield script


def _batches(wanted: Iterable[Script]) -> Iterator[bytes]:
    iterator = iter(wanted)
    while batch := list(itertools.islice(iterator, BATCH)):
        yield "".join(str(script) for script in batch).encode()


def _complaints(log: str) -> Iterator[str]:
    """ "script: complaint" of everything the kernel warned of; the runner logs scripts' names."""
    script = "(no script)"
    for line in log.splitlines():
        if "script " in line:
            script = line.rpartition("script ")[2]
        elif any(word in line for word in ("WARNING:", "BUG:", "Oops:", "general protection")):
            yield f"{script}: {line.partition('] ')[2]}"


class KernelRun:
    """Runs scripts in guests, batch by batch; a guest that broke or complained is replaced.

    A context manager: the guest stays for the next call. `complaints` are the kernel's own
    warnings: a driver that warned is not a judge any more.
    """

    def __init__(self, prepared: Prepared, *profiles: Profile, peers: bool = False) -> None:
        self._prepared = prepared
        self._profiles = profiles
        self._session_of = session_of_peers if peers else session
        self._node = FIRST_OF_PEERS if peers else FIRST_NODE
        self._runner = compile_static(GUEST / "runner.c").read_bytes()
        self._session = ExitStack()
        self._guest: Guest | None = None
        self.complaints: list[str] = []
        self.guests = 0
        self.lines: list[str] = []

    def __enter__(self) -> KernelRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self._drop()

    def run(self, wanted: Iterable[Script]) -> Iterator[tuple[Script, list[str]]]:
        """(script, what it printed), as batches finish."""
        left = list(wanted)
        while left:
            guest = self._guest or self._open(len(left))
            batch, left = left[:BATCH], left[BATCH:]
            results, broken = self._batch(guest, batch)
            for script in batch:
                if script.name in results:
                    yield script, results[script.name]
            if broken:
                # What was not reached is run again in a new guest, but not what broke it.
                left = [s for s in batch if s.name not in results] + left
                self._drop()

    def _open(self, left: int) -> Guest:
        if self.guests >= MOST_GUESTS:
            most = "\n".join(self.complaints[:MOST_GUESTS])
            raise GuestError(f"{MOST_GUESTS} guests broke; {left} scripts have not run\n{most}")
        self.guests += 1
        guest = self._session.enter_context(self._session_of(self._prepared, *self._profiles))
        guest.agent.put("/bin/runner", self._runner)
        self.lines = driver_lines(guest)
        guest.agent.run(["/bin/dmesg", "-c"])  # what it said so far is no complaint about a script
        self._guest = guest
        return guest

    def _drop(self) -> None:
        self._guest = None
        self._session.close()

    def _batch(self, guest: Guest, batch: list[Script]) -> tuple[dict[str, list[str]], bool]:
        text = "".join(str(script) for script in batch).encode()
        output, complaints = b"", []
        try:
            done = guest.agent.run(["/bin/runner", str(self._node)], text, BATCH_SECONDS)
            output = done.output
            log = guest.agent.run(["/bin/dmesg", "-c"], seconds=30).output.decode(errors="replace")
            complaints = list(_complaints(log))
            if done.status == 124:
                complaints.append("the batch did not end in time")
        except GuestError as error:
            output = output or error.output
            complaints = ["the guest hangs", *_complaints(guest.console())]
        results = parse(output.decode(errors="replace"))
        if complaints and results:
            name = next(reversed(results))
            if complaints[0].startswith("the "):
                results[name].append("hang")
            complaints[0] = f"last script {name}: {complaints[0]}"
        self.complaints.extend(complaints)
        return results, bool(complaints)


def _meaning(source: Path) -> bytes:
    """A module's code without comments, formatting and docstrings."""
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                part
                for part in body
                if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
    return ast.dump(tree).encode()


class ResultStore:
    """The real driver's answers by script text, kept for one kernel and one emulated device."""

    def __init__(self, versions: Iterable[str], profile: str, kernel: str = REFERENCE) -> None:
        state = hashlib.sha256("".join(versions).encode())
        state.update((GUEST / "runner.c").read_bytes())
        for source in sorted((Path(__file__).parents[1] / "gpu").glob("*.py")):
            state.update(_meaning(source))
        self._path = cache_dir() / f"results-{kernel}-{profile}.json"
        self._state = state.hexdigest()
        self._results: dict[str, list[str]] = {}
        if self._path.exists():
            stored = json.loads(self._path.read_text())
            if stored["state"] == self._state:
                self._results = stored["results"]

    @staticmethod
    def _key(script: Script) -> str:
        return hashlib.sha256(str(script).encode()).hexdigest()

    def get(self, script: Script) -> list[str] | None:
        return self._results.get(self._key(script))

    def add(self, script: Script, lines: list[str]) -> None:
        self._results[self._key(script)] = lines

    def save(self) -> None:
        """Writes everything down; cheap enough to do after every batch."""
        self._path.write_text(json.dumps({"state": self._state, "results": self._results}))


def mock_runner() -> Path:
    """The runner linked with the mock, compiled from the sources of this checkout."""
    mock, ioctl = REPOSITORY / "native/mock", REPOSITORY / "ioctl"
    sources = [GUEST / "runner.c", *sorted(mock.glob("*.c"))]
    flags = ("-O1", "-g", "-D_GNU_SOURCE", "-DRUNNER_MOCK", f"-I{ioctl}", f"-I{mock}", "-lpthread")
    return compiled("runner-mock", sources, flags, [*mock.iterdir(), *ioctl.iterdir()])


def on_mock(
    runner: Path, platform: Platform, wanted: Iterable[Script], **variables: str
) -> dict[str, list[str]]:
    """The results of the mock posing as the same device, with more environment `variables`."""
    results: dict[str, list[str]] = {}
    environment = {
        "PATH": "/usr/bin:/bin", "ZE_IPC_MOCK_PROFILE": platform.mock_profile,
        "ZE_IPC_MOCK_VRAM": "256M",
    }  # fmt: skip
    environment.update(variables)
    for batch in _batches(wanted):
        done = subprocess.run(
            [str(runner)], input=batch, capture_output=True, timeout=900, env=environment
        )
        results.update(parse(done.stdout.decode(errors="replace")))
    return results
