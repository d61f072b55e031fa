"""Measuring the main job: our two processes and the yardstick's, turn by turn."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from ze_ipc.device import Device
from ze_ipc.errors import UnsupportedFeature
from ze_ipc.xe import XeBackend

STEPS = ("export", "transfer", "import", "bind", "view")
"""The columns of a row that are times. The total is the whole export and the whole open; it has no
``view``, and a little that is in none of these.
"""

BOTH_AT_ONCE = 200_000
"""Objects up to which both sides keep theirs all the time; more would not fit into the machine, as
on the mock an object is an inode in each of four processes.
"""

Times = dict[str, float]
"""Seconds, by step."""


@dataclass(frozen=True, slots=True)
class Target:
    """The device under measurement, as its processes are told of it."""

    backend: str
    device: str
    node: str
    placement: int
    caching: int
    pat: int

    @classmethod
    def of(cls, device: Device) -> Target:
        """What the processes and the yardstick need to open the same device in the same way."""
        node = device.render_node
        on_mock = node.startswith("mock:")
        if not isinstance(device._backend, XeBackend):
            raise UnsupportedFeature(
                "the yardstick speaks to the xe driver", hint="pass --backend xe or mock"
            )
        placement, caching, pat = device._backend.device_kind
        return cls(
            backend="mock" if on_mock else device.backend,
            device=node.removeprefix("mock:") if on_mock else node,
            node=node,
            placement=placement,
            caching=caching,
            pat=pat,
        )


class Coprocess:
    """A child that answers each line with a line; killed if it does not end by itself."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> str:
        """Send a line; its answer. Raises if the child has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"process {self.pid} ended with {self._process.wait(10)}")
        return answer

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def __enter__(self) -> Coprocess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def yardstick_path() -> Path:
    """The yardstick program, installed beside the extension modules."""
    spec = find_spec("ze_ipc._xe")
    path = Path(spec.origin).with_name("ze-ipc-yardstick") if spec and spec.origin else None
    if path is None or not path.is_file():
        raise UnsupportedFeature("the yardstick is not built", hint="install ze_ipc from a wheel")
    return path


class Yardstick:
    """The job in plain C, with ``busy`` beside a busy thread in each process. As in ours, both
    processes are woken by this one, which passes on what the exporter has said: neither is ahead
    because its processors were still awake.
    """

    def __init__(self, target: Target, stack: ExitStack, *, busy: bool) -> None:
        numbers = map(str, (target.placement, target.caching, target.pat))
        arguments = [target.node, *numbers, *(["busy"] if busy else [])]

        def start(role: str) -> Coprocess:
            return stack.enter_context(Coprocess([str(yardstick_path()), role, *arguments]))

        self._exporter, self._importer = start("export"), start("import")
        self._object_size = 0

    def objects(self, count: int, size: int) -> None:
        """Prepare a range."""
        self._object_size = size
        self._exporter.ask(f"objects {count} {size}")

    def run(self, *, view: bool) -> Times:
        """Share it once."""
        export, path = self._exporter.ask("share").split()
        answer = self._importer.ask(f"open {path} {self._object_size} {int(view)}")
        numbers = [int(word) / 1e9 for word in answer.split()]
        connect, manifest, receive, imported, bound, viewed, opened, _ = numbers
        return {
            "export": int(export) / 1e9,
            "transfer": connect + manifest + receive,
            "import": imported,
            "bind": bound,
            "view": viewed,
            "total": int(export) / 1e9 + opened,
        }


class Ours:
    """The job by ze_ipc, in two Python processes."""

    def __init__(self, target: Target, stack: ExitStack, *, busy: bool) -> None:
        def start(role: str) -> Coprocess:
            where = (target.backend, target.device, str(int(busy)))
            module = "ze_ipc.cli.bench_process"
            return stack.enter_context(Coprocess([sys.executable, "-m", module, role, *where]))

        self._exporter, self._importer = start("export"), start("import")

    def objects(self, count: int, size: int) -> None:
        """Prepare a range."""
        _ask(self._exporter, "objects", count, size)

    def run(self, *, view: bool) -> Times:
        """Share it once."""
        exported = _ask(self._exporter, "share")
        opened = _ask(self._importer, "open", exported["handle"], view)
        _ask(self._exporter, "put")
        return {
            "export": exported["seconds"],
            "total": exported["seconds"] + opened["seconds"],
            **{name: opened[name] for name in STEPS[1:]},
        }

    def peak_fds(self) -> list[int]:
        """The most fds that the exporter and the importer had in one more run, as seen by looking
        all the time.
        """
        processes = [psutil.Process(side.pid) for side in (self._exporter, self._importer)]
        peaks = [0, 0]
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                for index, process in enumerate(processes):
                    peaks[index] = max(peaks[index], process.num_fds())

        looker = threading.Thread(target=look)
        looker.start()
        try:
            self.run(view=False)
        finally:
            done.set()
            looker.join()
        return peaks

    def usage(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Peak memory, current memory and fds of the exporter and the importer."""
        return _ask(self._exporter, "usage"), _ask(self._importer, "usage")


def _ask(process: Coprocess, name: str, *arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(process.ask(json.dumps([name, arguments])))
    return answer


def measure(
    target: Target, count: int, size: int, pairs: int, *, busy: bool, view: bool
) -> dict[str, Any]:
    """One row: medians over interleaved pairs, and the median of the pairs' ratios."""
    with ExitStack() as stack:
        ours, yardstick = Ours(target, stack, busy=busy), Yardstick(target, stack, busy=busy)
        sides: tuple[Ours | Yardstick, ...] = (ours, yardstick)
        before = ours.usage()
        for side in sides if count <= BOTH_AT_ONCE else ():
            side.objects(count, size)
            side.run(view=False)  # warm
        results: list[list[Times]] = [[], []]
        peaks = [0, 0]
        for turn in range(pairs):
            for index in (turn % 2, 1 - turn % 2):
                side = sides[index]
                if count > BOTH_AT_ONCE:
                    side.objects(count, size)
                results[index].append(side.run(view=view))
                if side is ours and turn == pairs - 1:
                    peaks = ours.peak_fds()
                if count > BOTH_AT_ONCE:
                    side.objects(1, size)
        after = ours.usage()
    mine, theirs = results
    row: dict[str, Any] = {"objects": count, "object_size": size, "pairs": pairs, "busy": busy}
    for name in (*STEPS, "total"):
        row[f"{name}_us"] = statistics.median(times[name] for times in mine) * 1e6
        row[f"yardstick_{name}_us"] = statistics.median(times[name] for times in theirs) * 1e6
    row["us_per_object"] = row["total_us"] / count
    row["ratio"] = statistics.median(
        a["total"] / b["total"] for a, b in zip(mine, theirs, strict=True)
    )
    for index, role in enumerate(("exporter", "importer")):
        row[f"{role}_peak_bytes"] = after[index]["peak"]
        row[f"{role}_fds"] = max(peaks[index], after[index]["fds"])
        row[f"{role}_fds_before"] = before[index]["fds"]
    return row
