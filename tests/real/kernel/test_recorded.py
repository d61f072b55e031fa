"""The mock answers as the real driver did, script by script; and a mock that does not is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from real.kernel.compare import checks_peer
from real.kernel.compare.common import Platform
from real.kernel.compare.diff import differences
from real.kernel.compare.recorded import Recorded
from real.kernel.compare.run import mock_runner, on_mock, scripts
from real.kernel.compare.script import Script

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def runner() -> Path:
    return mock_runner()


def asked(device: str, pattern: str = "") -> tuple[list[Script], dict[str, list[str]]]:
    """The scripts that the real driver has answered, and its answers by name."""
    recorded = Recorded(device)
    answers = {script: recorded.get(script) for script in scripts(Platform(device), pattern)}
    known = {script: lines for script, lines in answers.items() if lines is not None}
    return list(known), {script.name: lines for script, lines in known.items()}


@pytest.mark.parametrize("device", ["bmg", "ptl", "lnl"])
def test_the_mock_answers_as_the_driver(runner: Path, device: str) -> None:
    wanted, kernel = asked(device)
    assert len(wanted) > 4000
    found = differences(device, wanted, kernel, on_mock(runner, Platform(device), wanted))
    assert [str(row) for row in found if not row.reason] == []


@pytest.mark.parametrize("reach", [False, True])
def test_two_mocks_are_to_each_other_as_two_devices(runner: Path, reach: bool) -> None:
    platform = Platform("bmg", reach)
    record = Recorded(checks_peer.RECORDS[reach])
    wanted = checks_peer.scripts(platform)
    kernel = {script.name: record.get(script) or [] for script in wanted}
    assert all(kernel.values())
    mock = on_mock(runner, platform, wanted, **checks_peer.variables(platform))
    assert [str(row) for row in differences("bmg", wanted, kernel, mock) if not row.reason] == []


@pytest.mark.parametrize(
    ("pattern", "plan"),
    [
        ("gem-create/", "XE_GEM_CREATE:1=ENOMEM"),
        ("bind/map/", "XE_VM_BIND:1=EINVAL"),
        ("prime/", "PRIME_FD_TO_HANDLE:*=EBADF"),
    ],
)
def test_a_broken_rule_is_found(runner: Path, pattern: str, plan: str) -> None:
    wanted, kernel = asked("bmg", pattern)
    mock = on_mock(runner, Platform("bmg"), wanted, ZE_IPC_MOCK_FAULTS=plan)
    assert [row for row in differences("bmg", wanted, kernel, mock) if not row.reason]


def test_a_missing_answer_is_a_difference(runner: Path) -> None:
    wanted, kernel = asked("bmg", "vm-create/")
    mock = on_mock(runner, Platform("bmg"), wanted)
    mock[wanted[0].name] = []
    rows = differences("bmg", wanted, kernel, mock)
    assert [row.script for row in rows] == [wanted[0].name]
