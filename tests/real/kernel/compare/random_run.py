"""Random scripts until the time is up; a difference is made as small as it will go.

The scripts are checks_map.random_maps of ever new seeds. What differs is shrunk by leaving out one
bind after the other as long as the two sides still disagree.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from .checks_map import random_maps
from .common import Platform
from .diff import Difference, differences
from .run import KernelRun, on_mock
from .script import Script, request

CHUNK = 100
_BIND = hex(request("XE_VM_BIND"))


class RandomRun:
    """One search; `count` scripts have run so far."""

    def __init__(self, work: KernelRun, runner: Path, platform: Platform, seed: int) -> None:
        self._work = work
        self._runner = runner
        self._platform = platform
        self._seed = seed
        self.count = 0

    def search(self, seconds: float) -> Iterator[tuple[Script, Difference]]:
        """(the smallest script, its difference) of what differs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            wanted = list(random_maps(self._seed, CHUNK, steps=20))
            self._seed += 1
            for script, _ in self._compare(wanted):
                yield self._shrink(script)
            self.count += len(wanted)

    def _compare(self, wanted: list[Script]) -> list[tuple[Script, Difference]]:
        kernel = {script.name: lines for script, lines in self._work.run(wanted)}
        mock = on_mock(self._runner, self._platform, wanted)
        named = {script.name: script for script in wanted}
        found = differences(self._platform.name, wanted, kernel, mock)
        return [(named[one.script], one) for one in found if not one.reason]

    def _shrink(self, script: Script) -> tuple[Script, Difference]:
        best = self._compare([script])
        if not best:
            gone = Difference(script.name, "(only once)", "", "")
            return script, gone
        at = len(script.lines) - 1
        while at >= 0:
            if _BIND in script.lines[at]:
                smaller = Script(script.name)
                smaller.lines = script.lines[:at] + script.lines[at + 1 :]
                result = self._compare([smaller])
                if result:
                    script, best = smaller, result
            at -= 1
        return script, best[0][1]
