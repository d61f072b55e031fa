"""The same subtests of IGT on the mock, in the Debian root of ci/real-stack."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from .packages import Unavailable

VRAM = 1 << 30
SECONDS = 120
WORKERS = 2


def timing() -> list[str]:
    """Patterns of the subtests that compare clocks."""
    from real_stack import igt, main

    known = igt.read_expectations(main.EXPECTATIONS.read_text())
    return [one.pattern for one in known if one.outcome == igt.TIMING]


def run(names: Sequence[str], profile: str) -> dict[str, str]:
    """How each `binary@subtest` ends there."""
    try:
        from real_stack import igt, main, mock, root
    except ImportError as error:
        raise Unavailable(f"ze_ipc is to be installed for this Python: {error}") from error
    try:
        root.probe()
    except root.Unavailable as error:
        raise Unavailable(f"the mock's side of IGT: {error}") from error
    place = root.Root.default()
    place.make()
    with mock.mock_devices(place, 1, profile, VRAM) as devices:

        def one(name: str) -> igt.Outcome:
            binary, _, subtest = name.partition("@")
            return igt.run_subtest(devices.root, binary, subtest, devices.env, SECONDS)

        with ThreadPoolExecutor(WORKERS) as pool:
            outcomes = list(pool.map(one, names))
        known = igt.read_expectations(main.EXPECTATIONS.read_text())
        outcomes = igt.repeat_alone(devices.root, outcomes, known, devices.env, SECONDS)
        return {outcome.name: outcome.outcome for outcome in outcomes}
