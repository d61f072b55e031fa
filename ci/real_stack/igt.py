"""The kernel team's tests, subtest by subtest, against what is written down about each."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from real_stack.root import Broken, Result, Root

BINARIES = (
    "xe_query",
    "xe_create",
    "xe_vm",
    "xe_prime_self_import",
    "xe_mmap",
    "xe_noexec_ping_pong",
    "xe_waitfence",
    "xe_pat",
    "xe_madvise",
    "xe_exec_basic",
    "xe_exec_store",
    "xe_copy_basic",
    "xe_exec_atomic",
    "xe_exercise_blt",
    "xe_intel_bb",
    "xe_spin_batch",
    "xe_exec_mix_modes",
    "xe_exec_queue_property",
    "xe_dma_buf_sync",
    "xe_drm_fdinfo",
    "xe_exec_balancer",
    "syncobj_basic",
    "syncobj_wait",
    "syncobj_timeline",
    "syncobj_eventfd",
)
DIRECTORY = "/usr/libexec/igt-gpu-tools"
OUTCOMES = ("pass", "fail", "skip", "crash", "timeout")
# A subtest that compares clocks: what it says while others use the processor is asked again alone.
TIMING = "timing"
ATTEMPTS_ALONE = 3
# A warning without an end of line may stand before it.
VERDICT = re.compile(r"(?:Subtest ([^\s:]+): |^)(SUCCESS|SKIP|FAIL|CRASH)\b", re.MULTILINE)
WORDS = {"SUCCESS": "pass", "SKIP": "skip", "FAIL": "fail", "CRASH": "crash"}
EXIT_CODES = {0: "pass", 77: "skip", 98: "fail"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one subtest ended."""

    binary: str
    subtest: str
    outcome: str
    """One of OUTCOMES."""
    output: str

    @property
    def name(self) -> str:
        """As the expectations file writes it."""
        return f"{self.binary}@{self.subtest}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a line of the expectations file says."""

    pattern: str
    outcome: str
    reason: str


def read_expectations(text: str) -> list[Expectation]:
    """Parse `binary@subtest outcome reason...` lines; every one must give its reason."""
    expectations = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(None, 2)
        if len(parts) != 3 or parts[1] not in (*OUTCOMES[1:], TIMING) or len(parts[2].split()) < 3:
            raise ValueError(f"line {number}: want `binary@subtest outcome reason in words`")
        expectations.append(Expectation(*parts))
    return expectations


def list_subtests(root: Root, binary: str, env: Mapping[str, str]) -> list[str]:
    """The names of its subtests."""
    result = root.run([f"{DIRECTORY}/{binary}", "--list-subtests"], limit=60, env=env)
    names = [line for line in result.output.splitlines() if re.fullmatch(r"[\w@.+-]+", line)]
    if result.ok and names:
        return names
    raise Broken(f"{binary} does not list its subtests:\n{result.output[-2000:]}")


def run_subtest(
    root: Root, binary: str, subtest: str, env: Mapping[str, str], limit: float
) -> Outcome:
    """Run one subtest in namespaces of its own."""
    command = [f"{DIRECTORY}/{binary}", "--run-subtest", subtest]
    result = root.run(command, limit=limit, env=env)
    return Outcome(binary, subtest, judge(subtest, result), result.output)


def judge(subtest: str, result: Result) -> str:
    """One word for how a run ended; the exit code has the last word over what was printed."""
    if result.timed_out:
        return "timeout"
    printed = {name or "": word for name, word in VERDICT.findall(result.output)}
    word = WORDS[printed.get(subtest, printed.get("", "CRASH"))]
    return word if EXIT_CODES.get(result.code) == word else "crash"


def run(
    root: Root,
    binaries: Sequence[str],
    env: Mapping[str, str],
    *,
    limit: float,
    workers: int,
    only: str = "*",
    seen: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run every subtest of BINARIES whose `binary@subtest` matches ONLY, WORKERS at a time."""
    jobs = [
        (binary, name)
        for binary in binaries
        for name in list_subtests(root, binary, env)
        if fnmatch.fnmatchcase(f"{binary}@{name}", only)
    ]

    def one(job: tuple[str, str]) -> Outcome:
        outcome = run_subtest(root, *job, env, limit)
        seen(outcome)
        return outcome

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, jobs))


def repeat_alone(
    root: Root,
    outcomes: Sequence[Outcome],
    expectations: Sequence[Expectation],
    env: Mapping[str, str],
    limit: float,
) -> list[Outcome]:
    """Run those again, one at a time, that depend on timing and did not pass; the rest stays."""
    result = []
    for outcome in outcomes:
        attempts = ATTEMPTS_ALONE if _word(outcome.name, expectations) == TIMING else 0
        while outcome.outcome != "pass" and attempts > 0:
            outcome = run_subtest(root, outcome.binary, outcome.subtest, env, limit)
            attempts -= 1
        result.append(outcome)
    return result


def differences(outcomes: Iterable[Outcome], expectations: Sequence[Expectation]) -> list[str]:
    """One line for each subtest that did not do what is written, better ones too."""
    lines = []
    for outcome in outcomes:
        expected = expected_of(outcome.name, expectations)
        if outcome.outcome != expected:
            lines.append(f"{outcome.name}: expected {expected}, got {outcome.outcome}")
    return lines


def expected_of(name: str, expectations: Sequence[Expectation]) -> str:
    """The outcome that is written for a subtest."""
    word = _word(name, expectations)
    return "pass" if word == TIMING else word


def _word(name: str, expectations: Sequence[Expectation]) -> str:
    """The second word of the first line that matches, else `pass`."""
    for expectation in expectations:
        if fnmatch.fnmatchcase(name, expectation.pattern):
            return expectation.outcome
    return "pass"


def unused(outcomes: Sequence[Outcome], expectations: Sequence[Expectation]) -> list[str]:
    """Patterns about binaries that ran, which no subtest of theirs matches any more."""
    names = [outcome.name for outcome in outcomes]
    binaries = {outcome.binary for outcome in outcomes}
    return [
        expectation.pattern
        for expectation in expectations
        if expectation.pattern.partition("@")[0] in binaries
        and not fnmatch.filter(names, expectation.pattern)
    ]


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts per binary."""
    width = max(len(outcome.binary) for outcome in outcomes)
    head = "".join(f"{word:>9}" for word in ("subtests", *OUTCOMES))
    lines = [f"{'':{width}}{head}"]
    for binary in [*dict.fromkeys(outcome.binary for outcome in outcomes), "total"]:
        mine = [o.outcome for o in outcomes if binary in ("total", o.binary)]
        counts = Counter(mine)
        row = "".join(f"{count:9}" for count in (len(mine), *(counts[w] for w in OUTCOMES)))
        lines.append(f"{binary:{width}}{row}")
    return "\n".join(lines)


def save_output(outcomes: Iterable[Outcome], directory: Path) -> None:
    """Write what every subtest that did not pass printed, one file each."""
    directory.mkdir(parents=True, exist_ok=True)
    for outcome in outcomes:
        if outcome.outcome != "pass":
            (directory / f"{outcome.name}.{outcome.outcome}.txt").write_text(outcome.output)
