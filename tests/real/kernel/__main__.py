"""`python3 -m kernel COMMAND PROFILE [PATTERN]`: bind, compare, run, ..."""

from __future__ import annotations

import sys
from pathlib import Path

from .agent import GuestError
from .compare import recorded
from .compare.common import Platform
from .compare.diff import differences
from .compare.random_run import RandomRun
from .compare.run import KernelRun, ResultStore, mock_runner, on_mock, scripts
from .gpu.profiles import PROFILES
from .harness import Stopwatch, driver_lines, prepare, profile, session
from .packages import Unavailable
from .product import NOT_HERE, checks, install, install_tests

NOT_POSSIBLE = 77
"""The exit code when this machine cannot do it: what test runners take for "skipped"."""


def bind(name: str, pattern: str) -> int:
    """Boots, binds and prints the driver's own lines."""
    watch = Stopwatch()
    prepared = prepare(profile(name))
    print(f"prepared in {watch}: {' '.join(prepared.versions)}")
    watch = Stopwatch()
    with session(prepared, profile(name)) as guest:
        print(f"bound in {watch}")
        print("\n".join(driver_lines(guest)))
        print(guest.gpu_log(), end="")
    return 0


def run(name: str, pattern: str) -> int:
    """Prints what the real driver answers to every script."""
    watch = Stopwatch()
    work = KernelRun(prepare(profile(name)), profile(name))
    count = 0
    for script, lines in work.run(scripts(Platform(name), pattern)):
        print(f"{script.name}\n  " + "\n  ".join(lines))
        count += 1
    print("\n".join(work.complaints))
    print(f"{count} scripts in {watch}")
    return 0


def compare(name: str, pattern: str, cached: bool = False) -> int:
    """Runs every script on both sides and prints the differences; exit code 1 if any is unknown."""
    platform = Platform(name)
    wanted = list(scripts(platform, pattern))
    watch = Stopwatch()
    prepared = prepare(profile(name))
    store = ResultStore(prepared.versions, name)
    missing = [script for script in wanted if not cached or store.get(script) is None]
    work = KernelRun(prepared, profile(name))
    for count, (script, lines) in enumerate(work.run(missing), start=1):
        store.add(script, lines)
        if count % 100 == 0:
            store.save()
    store.save()
    print("\n".join([*work.lines, *work.complaints]))
    kernel = {script.name: store.get(script) or [] for script in wanted}
    mock = on_mock(mock_runner(), platform, wanted)
    found = differences(name, wanted, kernel, mock)
    unknown = [difference for difference in found if not difference.reason]
    for difference in unknown:
        print(difference)
    for reason in sorted({difference.reason for difference in found} - {""}):
        print(f"masked {sum(d.reason == reason for d in found)}: {reason}")
    agreed = len(wanted) - len({difference.script for difference in unknown})
    print(f"{name}: {agreed} of {len(wanted)} scripts agree, {len(unknown)} differ; {watch}")
    return 1 if unknown else 0


def compare_cached(name: str, pattern: str) -> int:
    """As compare, but a script that has run in an earlier guest is not run there again."""
    return compare(name, pattern, cached=True)


def record(name: str, pattern: str) -> int:
    """Keeps what the real driver answered in earlier runs beside the scripts."""
    prepared = prepare(profile(name))
    store = ResultStore(prepared.versions, name)
    answers = {script: store.get(script) for script in scripts(Platform(name), pattern)}
    known = {script: lines for script, lines in answers.items() if lines is not None}
    count = recorded.write(name, prepared.versions, known)
    print(f"{count} of {len(answers)} scripts in {recorded.path(name)}")
    return 0 if count == len(answers) else 1


def product(name: str, pattern: str) -> int:
    """Runs the demo and the device tests of a wheel (the third word) on the real driver."""
    wheel = Path(pattern)
    if wheel.suffix != ".whl" or not wheel.exists():
        raise Unavailable(f"no wheel at {pattern or '(nothing)'}: build one and name it")
    failed = 0
    with session(prepare(profile(name)), profile(name)) as guest:
        install(guest, wheel)
        install_tests(guest)
        print("\n".join(driver_lines(guest)))
        watch = Stopwatch()
        for row in checks(guest):
            last = row.text.splitlines()[-1] if row.text else ""
            print(f"{'ok' if row.passed else 'FAILED'} {row.title}: {last} ({watch})", flush=True)
            if not row.passed:
                failed += 1
                print(row.text)
        for test, reason in NOT_HERE.items():
            print(f"not run: {test}: {reason}")
        print("\n".join(line for line in driver_lines(guest) if "WARN" in line or "BUG" in line))
    return 1 if failed else 0


def random(name: str, pattern: str) -> int:
    """Compares random scripts for so many seconds ("60" or "60:7", 7 being the first seed)."""
    seconds, _, seed = (pattern or "60").partition(":")
    platform = Platform(name)
    work = KernelRun(prepare(profile(name)), profile(name))
    search = RandomRun(work, mock_runner(), platform, int(seed or "100"))
    found = 0
    for script, difference in search.search(float(seconds)):
        found += 1
        print(f"{difference}\n{script}", flush=True)
    print("\n".join([*work.lines, *work.complaints]))
    print(f"{name}: {search.count} random scripts, {found} differ")
    return 1 if found or work.complaints else 0


COMMANDS = {
    "bind": bind,
    "compare": compare,
    "compare-cached": compare_cached,
    "product": product,
    "random": random,
    "record": record,
    "run": run,
}


def main() -> int:
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in COMMANDS or sys.argv[2] not in PROFILES:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return COMMANDS[sys.argv[1]](sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else "")
    except Unavailable as error:
        print(f"real-kernel: not possible here: {error}")
        return NOT_POSSIBLE
    except GuestError as error:
        print(f"real-kernel: the guest failed: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
