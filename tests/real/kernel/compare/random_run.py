"""Random programs until the time is up; a difference is made as small as it will go.

Hypothesis grows the programs (lists of steps, see programs.py), many at once, so that a trip to
the guest pays. What differs is shrunk by leaving out steps and by making their bytes zero, every
candidate of a round in one trip. A difference that does not come back is counted, not reported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..packages import Unavailable
from .common import Platform
from .diff import Difference, differences
from .program_steps import program
from .programs import STEP_BYTES
from .run import KernelRun, on_mock
from .script import Script

CHUNK = 200
FEWEST_STEPS, MOST_STEPS = 8, 30
Steps = tuple[bytes, ...]


def grown(seed: int, count: int) -> list[Steps]:
    """COUNT lists of steps that this seed grows."""
    try:
        import hypothesis
        from hypothesis import strategies as st
    except ImportError as error:
        raise Unavailable("random scripts want Python's hypothesis") from error
    found: list[Steps] = []
    one_step = st.binary(min_size=STEP_BYTES, max_size=STEP_BYTES)
    lists = st.lists(one_step, min_size=FEWEST_STEPS, max_size=MOST_STEPS)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, phases=[hypothesis.Phase.generate], database=None, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(lists)
    def grow(steps: list[bytes]) -> None:
        found.append(tuple(steps))

    grow()
    return found


def smaller(steps: Steps) -> Iterator[Steps]:
    """Programs to try instead: runs of steps left out, longest first; then bytes made zero."""
    size = len(steps) // 2
    while size:
        for at in range(0, len(steps), size):
            yield steps[:at] + steps[at + size :]
        size //= 2
    for index, step in enumerate(steps):
        for at in range(1, STEP_BYTES):
            if step[at]:
                changed = step[:at] + b"\0" + step[at + 1 :]
                yield (*steps[:index], changed, *steps[index + 1 :])


def _kind(difference: Difference) -> tuple[str, ...]:
    """The verb or ioctl and how it ended on both sides."""
    words = difference.command.split(" ")
    what = words[2] if words[0] == "I" else words[0]
    ends = [text.split(" ")[:2] for text in (difference.kernel, difference.mock)]
    return (what, *ends[0], "|", *ends[1])


@dataclass(slots=True)
class RandomRun:
    """One search from a first seed on."""

    work: KernelRun
    runner: Path
    platform: Platform
    seed: int
    count: int = 0
    """So many programs have run."""
    once: list[Difference] = field(default_factory=list)
    """What differed and did not when it was asked again."""

    def search(self, seconds: float) -> Iterator[tuple[Script, Difference]]:
        """(the smallest script, its difference) of what differs; says how far it is."""
        deadline = time.monotonic() + seconds
        seen: set[str] = set()
        with ThreadPoolExecutor(1) as ahead:
            growing = ahead.submit(grown, self.seed, CHUNK)
            while time.monotonic() < deadline:
                lists, seed = growing.result(), self.seed
                self.seed += 1
                growing = ahead.submit(grown, self.seed, CHUNK)
                named = {f"random/{seed}/{at}": steps for at, steps in enumerate(lists)}
                scripts = [program(name, self.platform, steps) for name, steps in named.items()]
                for difference in self._compare(scripts):
                    kind = _kind(difference)
                    if kind in seen:
                        continue  # most likely the same again, which takes long to shrink
                    found = self._shrink(named[difference.script])
                    if found is None:
                        self.once.append(difference)
                        continue
                    seen.add(kind)
                    yield found
                self.count += len(lists)
                left = deadline - time.monotonic()
                print(f"seed {seed}: {self.count} programs, {left:.0f} s left", flush=True)

    def _compare(self, wanted: Sequence[Script]) -> list[Difference]:
        kernel = {script.name: lines for script, lines in self.work.run(wanted)}
        mock = on_mock(self.runner, self.platform, wanted)
        found = differences(self.platform.name, wanted, kernel, mock)
        return [difference for difference in found if not difference.reason]

    def _shrink(self, steps: Steps) -> tuple[Script, Difference] | None:
        best: tuple[Steps, Difference] | None = None
        candidates: list[Steps] = [steps]
        while candidates:
            named = {f"random/smaller/{at}": steps for at, steps in enumerate(candidates)}
            scripts = [program(name, self.platform, steps) for name, steps in named.items()]
            different = self._compare(scripts)
            if not different:
                break
            # The first candidates leave out most.
            first = min(different, key=lambda one: int(one.script.rpartition("/")[2]))
            if best is not None and named[first.script] == best[0]:
                break
            best = named[first.script], first
            candidates = list(dict.fromkeys(smaller(best[0])))
        if best is None:
            return None
        text = b"".join(best[0]).hex(" ", STEP_BYTES)
        print(f"steps: {text}", flush=True)
        return program("random/smallest", self.platform, best[0]), best[1]
