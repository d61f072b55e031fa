"""The real stack's own machinery: it notices what it exists to notice."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from real_stack import igt
from real_stack.root import Broken, Result, Root, Unavailable, probe

EXPECTATIONS = igt.read_expectations(
    "# a comment\n\nxe_vm@bad-* fail no such thing here\nxe_vm@* skip never seen this\n"
)


def outcome(name: str, word: str) -> igt.Outcome:
    binary, _, subtest = name.partition("@")
    return igt.Outcome(binary, subtest, word, "")


@pytest.mark.parametrize(
    "line",
    ["xe_vm@bind", "xe_vm@bind fail", "xe_vm@bind fail broken", "xe_vm@bind pass it is fine so"],
)
def test_an_expectation_needs_an_outcome_and_a_reason(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        igt.read_expectations(line)


def test_the_committed_expectations_are_well_formed() -> None:
    path = Path(__file__).resolve().parents[1] / "real/igt_expectations.txt"
    expectations = igt.read_expectations(path.read_text())
    assert {e.pattern.partition("@")[0] for e in expectations} <= set(igt.BINARIES)


@pytest.mark.parametrize(
    ("code", "output", "timed_out", "word"),
    [
        (0, "Subtest bind: SUCCESS (0.1s)\n", False, "pass"),
        (98, "Subtest bind: FAIL (0.1s)\n", False, "fail"),
        (77, "Subtest bind: SKIP\n", False, "skip"),
        (0, "SUCCESS (0.001s)\n", False, "pass"),
        (0, "a warningSubtest bind: SUCCESS (0.1s)\n", False, "pass"),
        (0, "Dynamic subtest bind: SUCCESS (0.1s)\n", False, "crash"),
        # What was printed is not believed against the exit code, nor the reverse.
        (134, "Subtest bind: SUCCESS (0.1s)\n", False, "crash"),
        (-11, "", False, "crash"),
        (0, "", False, "crash"),
        (0, "Subtest other: SUCCESS (0.1s)\n", False, "crash"),
        (0, "Subtest bind: SUCCESS (0.1s)\n", True, "timeout"),
    ],
)
def test_how_a_subtest_ended(code: int, output: str, timed_out: bool, word: str) -> None:
    assert igt.judge("bind", Result(code, output, timed_out)) == word


def test_a_worse_and_a_better_outcome_are_both_differences() -> None:
    outcomes = [outcome("xe_vm@bad-addr", "pass"), outcome("xe_mmap@vram", "crash")]
    lines = igt.differences(outcomes, EXPECTATIONS)
    assert [line.split(":")[0] for line in lines] == ["xe_vm@bad-addr", "xe_mmap@vram"]
    as_written = [outcome("xe_vm@bad-addr", "fail"), outcome("xe_vm@other", "skip")]
    assert igt.differences(as_written, EXPECTATIONS) == []


def test_only_tests_of_clocks_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    expectations = igt.read_expectations("xe_vm@clock timing compares two clocks\n")
    answers = iter(["fail", "pass"])
    asked = []

    def run_again(root: Root, binary: str, subtest: str, *_: object) -> igt.Outcome:
        asked.append(f"{binary}@{subtest}")
        return outcome(asked[-1], next(answers))

    monkeypatch.setattr(igt, "run_subtest", run_again)
    first = [outcome("xe_vm@clock", "fail"), outcome("xe_vm@other", "fail")]
    second = igt.repeat_alone(Root(Path("/")), first, expectations, {}, 1)
    assert asked == ["xe_vm@clock", "xe_vm@clock"]
    assert [o.outcome for o in second] == ["pass", "fail"]
    assert len(igt.differences(second, expectations)) == 1


def test_a_line_that_matches_nothing_is_noticed() -> None:
    assert igt.unused([outcome("xe_vm@other", "skip")], EXPECTATIONS) == ["xe_vm@bad-*"]
    assert igt.unused([outcome("xe_mmap@vram", "pass")], EXPECTATIONS) == []


@pytest.fixture
def root() -> Root:
    """The root, if this machine has it already: a unit of the tests never makes it."""
    try:
        probe()
    except Unavailable as error:
        pytest.skip(str(error))
    root = Root.default()
    if not root.is_complete:
        pytest.skip("the root is not made yet: ci/real-stack prepare")
    return root


def test_a_run_ends_at_its_limit_and_takes_its_children_along(root: Root) -> None:
    mark = f"7{os.getpid()}.{time.monotonic_ns() % 10**6}"
    start = time.monotonic()
    result = root.run(["sh", "-c", f"sleep {mark} & setsid sleep {mark} & sleep {mark}"], limit=1)
    assert result.timed_out
    assert not result.ok
    assert time.monotonic() - start < 20
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(p)]


def test_a_run_sees_its_own_processes_and_files_only(root: Root) -> None:
    script = "echo $$; ls /dev/shm | wc -l; ls /proc | grep -c '^[0-9]'; exit 3"
    result = root.run(["sh", "-c", script], limit=20)
    number, shm, processes = map(int, result.output.split())
    assert (result.code, shm) == (3, 0)
    assert max(number, processes) < 20


def test_a_run_that_cannot_be_set_up_is_no_result(root: Root, tmp_path: Path) -> None:
    with pytest.raises(Broken):
        root.with_binds((tmp_path / "none", "/mnt/none")).run(["true"], limit=20)


def test_two_runs_share_no_abstract_socket(root: Root) -> None:
    program = (
        "import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0neo_ipc_5')\n"
        "time.sleep(1)"
    )
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(root.run, ["python3", "-c", program], limit=20) for _ in range(2)]
    assert [run.result().code for run in runs] == [0, 0], [run.result().output for run in runs]


@pytest.mark.parametrize(("name", "number"), [("SEGV", 11), ("ABRT", 6), ("KILL", 9)])
def test_a_signal_is_reported_as_one(root: Root, name: str, number: int) -> None:
    result = root.run(["sh", "-c", f"kill -{name} $$; sleep 5"], limit=20)
    assert (result.code, result.timed_out) == (-number, False)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
