"""The tools around the guest, without a guest."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from real.kernel.compare.common import Platform
from real.kernel.compare.diff import differences
from real.kernel.compare.program_steps import VERBS, program
from real.kernel.compare.programs import STEP_BYTES
from real.kernel.compare.random_run import grown, smaller
from real.kernel.compare.script import Script
from real.kernel.packages import locked


def test_a_lock_keeps_others_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path), path.open("a") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_seed_grows_the_same_programs() -> None:
    assert grown(7, 20) == grown(7, 20) != grown(8, 20)


def test_every_list_of_steps_is_a_program() -> None:
    for verb in range(len(VERBS)):
        for rest in (b"\0" * 7, b"\xff" * 7, bytes(range(7))):
            step = bytes([verb]) + rest
            for steps in ([step], [step, step], [bytes(STEP_BYTES), step, b"\xff" * STEP_BYTES]):
                assert program("x", Platform("bmg"), steps).lines


def test_what_is_tried_instead_is_smaller() -> None:
    steps = tuple(bytes([1, 2, 0, 3, 4, 5, 6, 7]) for _ in range(5))
    tried = list(smaller(steps))
    weight = sum(map(sum, steps))
    assert tried
    assert all(sum(map(sum, one)) < weight for one in tried)


def test_what_an_older_kernel_lacks_is_no_difference_there() -> None:
    script = Script("x")
    script.ioctl(script.open(), "XE_MADVISE", {"range": 4096})
    kernel, mock = {"x": ["1 0 0", "2 -1 22"]}, {"x": ["1 0 0", "2 0 0"]}
    (here,) = differences("bmg", [script], kernel, mock)
    (there,) = differences("bmg", [script], kernel, mock, "trixie")
    assert not here.reason
    assert there.reason == "since 6.18: the ioctl"
    kernel["x"][1] = "2 -1 14"
    (wrong,) = differences("bmg", [script], kernel, mock, "trixie")
    assert not wrong.reason
