"""Running scripts: in the guest on the real driver, and outside on the mock."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..harness import FIRST_NODE
from ..initramfs import GUEST, compile_static
from ..packages import Unavailable, cache_dir
from ..qemu import Guest
from . import checks_exec, checks_gem, checks_vm
from .common import Platform
from .script import Script, parse

REPOSITORY = Path(__file__).parents[4]
FAMILIES = (*checks_gem.FAMILIES, *checks_vm.FAMILIES, *checks_exec.FAMILIES)
BATCH = 400
"""Scripts in one call of the runner."""


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


def on_kernel(guest: Guest, wanted: Iterable[Script]) -> dict[str, list[str]]:
    """The results of the real driver in `guest`."""
    runner = compile_static(GUEST / "runner.c", cache_dir() / "runner")
    guest.agent.put("/bin/runner", runner.read_bytes())
    results: dict[str, list[str]] = {}
    for batch in _batches(wanted):
        done = guest.agent.run(["/bin/runner", str(FIRST_NODE)], batch, seconds=600)
        results.update(parse(done.output.decode(errors="replace")))
    return results


class ResultStore:
    """The real driver's answers by script text, kept for one kernel and one emulated device."""

    def __init__(self, versions: Iterable[str], profile: str) -> None:
        sources = sorted((Path(__file__).parents[1] / "gpu").glob("*.py"))
        state = hashlib.sha256("".join(versions).encode())
        for source in (*sources, GUEST / "runner.c"):
            state.update(source.read_bytes())
        self._path = cache_dir() / f"results-{profile}.json"
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

    def add(self, wanted: Iterable[Script], results: dict[str, list[str]]) -> None:
        for script in wanted:
            if script.name in results:
                self._results[self._key(script)] = results[script.name]
        self._path.write_text(json.dumps({"state": self._state, "results": self._results}))


def mock_runner() -> Path:
    """The runner linked with the mock, compiled from the sources of this checkout."""
    mock, ioctl = REPOSITORY / "native/mock", REPOSITORY / "ioctl"
    sources = sorted(mock.glob("*.c"))
    output = cache_dir() / "runner-mock"
    command = [
        "gcc", "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", "-DRUNNER_MOCK", f"-I{ioctl}", f"-I{mock}",
        "-o", str(output), str(GUEST / "runner.c"), *map(str, sources), "-lpthread", "-lm",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"the mock does not compile: {done.stderr.strip()[-2000:]}")
    return output


def on_mock(runner: Path, platform: Platform, wanted: Iterable[Script]) -> dict[str, list[str]]:
    """The results of the mock posing as the same device."""
    results: dict[str, list[str]] = {}
    environment = {
        "PATH": "/usr/bin:/bin", "ZE_IPC_MOCK_PROFILE": platform.name, "ZE_IPC_MOCK_VRAM": "256M",
    }  # fmt: skip
    for batch in _batches(wanted):
        done = subprocess.run(
            [str(runner)], input=batch, capture_output=True, timeout=900, env=environment
        )
        results.update(parse(done.stdout.decode(errors="replace")))
    return results
