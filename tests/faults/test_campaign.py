"""A part of the campaign on every test run; and the campaign itself seen red."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from faults import native
from faults.campaign import Campaign, campaign
from faults.native import Call
from faults.reports import breach
from faults.sabotage import VERBS
from faults.scenes import SIDES, Scene, Side
from ze_ipc.errors import InvalidArgument, KernelError

SAMPLE = 240
SEED = 20260


@pytest.mark.timeout(600)
def test_a_sample_of_the_campaign() -> None:
    result = campaign(sample=SAMPLE, seed=SEED)
    print(*result.lines(), sep="\n")
    assert result.wrong == []
    assert result.total > SAMPLE * 0.9
    kinds = {(side, kind) for side, kind in result.cases}
    assert kinds == {(s, k) for s in SIDES for k in ("fails", "killed before", "killed after")}
    for side in SIDES:
        # The two ends meet here, so that a tracer which sees only half of it is no green test.
        names = {name for its, name in result.calls if its == side}
        assert {"openat", "sendmsg", "close(1)"} <= names
    assert ("exporter", "PRIME_HANDLE_TO_FD") in result.calls
    assert ("importer", "PRIME_FD_TO_HANDLE") in result.calls
    assert ("importer", "XE_VM_BIND") in result.calls


@pytest.fixture(scope="module")
def running() -> Iterator[Campaign]:
    with Campaign(workers=1) as running:
        yield running


FOUND = {
    "leak an fd": "/dev/null",
    "leak a thread": "thread ",
    "leak an object": "device MockStats",
    "raise a bare error": "not an error of the contract",
    "exit": "ended with status 0x700",
    "see wrong bytes": "wrong bytes",
    "hang": "hangs in",
}


@pytest.mark.parametrize("evil", VERBS)
@pytest.mark.parametrize("side", SIDES)
def test_what_is_wrong_is_found(running: Campaign, side: Side, evil: str) -> None:
    if side == "exporter" and evil == "see wrong bytes":
        evil = "leak an fd"  # it sees none
    order: dict[str, Any] = {
        "scene": {"side": side, "transport": "broker", "objects": 3},
        "evil": evil,
    }
    order |= {"settle": 0.2, "seconds": 1.0 if evil == "hang" else 30.0}
    wrong = running.workers[0].ask(order)["wrong"]
    assert any(FOUND[evil] in line for line in wrong), wrong


def test_an_undisturbed_run_is_clean_and_seen(running: Campaign) -> None:
    calls = running.trace(Scene("importer", "broker", 3))
    assert calls[Call(0, native.DEVICE_CALL, prime_import(), 0)] == 3


def test_the_call_of_the_plan_fails_and_no_other(running: Campaign) -> None:
    call = {"thread": 0, "number": native.DEVICE_CALL, "detail": prime_import(), "inside": 0}
    plan = {"call": call, "occurrence": 1, "action": native.FAIL, "error": errno.ENOSPC}
    verdicts = {}
    for objects in (3, 100):
        scene = {"side": "importer", "transport": "broker", "objects": objects}
        verdict = verdicts[objects] = running.workers[0].ask({"scene": scene, "plan": plan})
        assert verdict["fired"]
        assert verdict["wrong"] == []
    # A few objects are tried in one step and then step by step: it must fail twice.
    assert verdicts[3]["steps"][0] == "open: ok"
    assert "object_index=1" in verdict["steps"][0]
    assert "ENOSPC" in verdict["steps"][0]
    assert verdict["steps"][1] == "open: ok"


def test_what_is_no_error_of_the_contract() -> None:
    assert breach(OSError(5, "bare"))
    assert breach(ValueError())
    assert breach(InvalidArgument("without a hint"))
    assert breach(InvalidArgument("with", hint="do that")) is None
    assert breach(KernelError(errno=errno.EXDEV)) is None
    assert breach(MemoryError()) is None


def prime_import() -> int:
    """DRM_IOCTL_PRIME_FD_TO_HANDLE."""
    return 0xC00C642E
