"""`python3 -m kernel COMMAND [ARGUMENT] [OPTIONS]`; ci/real-kernel says what the commands are."""

from __future__ import annotations

import argparse
import fnmatch
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from . import igt, igt_on_mock
from .agent import GuestError
from .compare import checks_peer, recorded
from .compare.common import Platform
from .compare.diff import differences
from .compare.random_run import RandomRun
from .compare.run import KernelRun, ResultStore, mock_runner, on_mock, scripts
from .gpu.profiles import PROFILES
from .harness import (
    KERNELS,
    REFERENCE,
    Prepared,
    Stopwatch,
    driver_lines,
    prepare,
    profile,
    session,
    session_of_peers,
)
from .packages import Unavailable
from .product import NOT_HERE, checks, install, install_tests, peer_check

NOT_POSSIBLE = 77
"""The exit code when this machine cannot do it: what test runners take for "skipped"."""


def _prepared(options: argparse.Namespace) -> Prepared:
    return prepare(profile(options.device), options.kernel)


def bind(options: argparse.Namespace) -> int:
    """Boots, binds and prints the driver's own lines."""
    watch = Stopwatch()
    prepared = _prepared(options)
    print(f"prepared in {watch}: {' '.join(prepared.versions)}")
    watch = Stopwatch()
    with session(prepared, profile(options.device)) as guest:
        print(f"bound in {watch}")
        print("\n".join(driver_lines(guest)))
        print(guest.gpu_log(), end="")
    return 0


def run(options: argparse.Namespace) -> int:
    """Prints what the real driver answers to every script."""
    watch = Stopwatch()
    count = 0
    with KernelRun(_prepared(options), profile(options.device)) as work:
        for script, lines in work.run(scripts(Platform(options.device), options.argument)):
            print(f"{script.name}\n  " + "\n  ".join(lines))
            count += 1
    print("\n".join(work.complaints))
    print(f"{count} scripts in {watch}")
    return 0


def compare(options: argparse.Namespace, cached: bool = False) -> int:
    """Runs every script on both sides and prints the differences; exit code 1 if any is unknown."""
    name = options.device
    platform = Platform(name)
    wanted = list(scripts(platform, options.argument))
    watch = Stopwatch()
    prepared = _prepared(options)
    store = ResultStore(prepared.versions, name, options.kernel)
    missing = [script for script in wanted if not cached or store.get(script) is None]
    with KernelRun(prepared, profile(name)) as work:
        for count, (script, lines) in enumerate(work.run(missing), start=1):
            store.add(script, lines)
            if count % 100 == 0:
                store.save()
    store.save()
    print("\n".join([*work.lines, *work.complaints]))
    kernel = {script.name: store.get(script) or [] for script in wanted}
    mock = on_mock(mock_runner(), platform, wanted)
    found = differences(name, wanted, kernel, mock, options.kernel)
    unknown = [difference for difference in found if not difference.reason]
    for difference in unknown:
        print(difference)
    for reason in sorted({difference.reason for difference in found} - {""}):
        print(f"masked {sum(d.reason == reason for d in found)}: {reason}")
    agreed = len(wanted) - len({difference.script for difference in unknown})
    print(f"{name}: {agreed} of {len(wanted)} scripts agree, {len(unknown)} differ; {watch}")
    return 1 if unknown else 0


def compare_cached(options: argparse.Namespace) -> int:
    """As compare, but a script that has run in an earlier guest is not run there again."""
    return compare(options, cached=True)


def record(options: argparse.Namespace) -> int:
    """Keeps what the real driver answered in earlier runs beside the scripts."""
    name = options.device
    prepared = _prepared(options)
    store = ResultStore(prepared.versions, name, options.kernel)
    answers = {script: store.get(script) for script in scripts(Platform(name), options.argument)}
    known = {script: lines for script, lines in answers.items() if lines is not None}
    if len(known) < len(answers):
        print(f"{len(known)} of {len(answers)} scripts have run: compare all of them first")
        return 1
    count = recorded.write(name, prepared.versions, known)
    print(f"{count} scripts in {recorded.path(name)}")
    return 0


def product(options: argparse.Namespace) -> int:
    """Runs the demo and the device tests of a wheel (the argument) on the real driver."""
    wheel = Path(options.argument)
    if wheel.suffix != ".whl" or not wheel.exists():
        raise Unavailable(f"no wheel at {options.argument or '(nothing)'}: build one and name it")
    failed = 0
    with session(_prepared(options), profile(options.device)) as guest:
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


def random(options: argparse.Namespace) -> int:
    """Compares random programs for so many minutes, from a first seed on."""
    watch = Stopwatch()
    found = 0
    with KernelRun(_prepared(options), profile(options.device)) as work:
        search = RandomRun(work, mock_runner(), Platform(options.device), options.seed)
        for script, difference in search.search(60 * options.minutes):
            found += 1
            print(f"{difference}\n{script}", flush=True)
    print("\n".join([*work.lines, *work.complaints]))
    for difference in search.once:
        print(f"once, and not again: {difference}")
    print(
        f"{options.device}: {search.count} random programs (seeds {options.seed} to "
        f"{search.seed - 1}) in {watch}: {found} differ, {len(search.once)} differed once"
    )
    return 1 if found or work.complaints else 0


def peers(options: argparse.Namespace) -> int:
    """Two GPUs, apart and behind one switch: scripts; and the product's test of one wheel."""
    prepared = prepare(profile("bmg"), options.kernel)
    both = profile("bmg"), profile("bmg-small")
    watch = Stopwatch()
    unknown = 0
    for reach in (False, True):
        platform = Platform("bmg", reach)
        wanted = checks_peer.scripts(platform)
        with KernelRun(prepared, *both, peers=reach) as work:
            kernel = {script.name: lines for script, lines in work.run(wanted)}
        mock = on_mock(mock_runner(), platform, wanted, **checks_peer.variables(platform))
        found = differences("bmg", wanted, kernel, mock)
        for difference in found:
            print(difference)
        unknown += sum(not one.reason for one in found) + len(work.complaints)
        print("\n".join([*work.lines, *work.complaints]))
        where = "behind one switch" if reach else "apart"
        agreed = len(wanted) - len({one.script for one in found if not one.reason})
        print(f"two GPUs {where}: {agreed} of {len(wanted)} scripts agree; {watch}", flush=True)
        if options.argument == "record":
            answers = {script: kernel[script.name] for script in wanted}
            recorded.write(checks_peer.RECORDS[reach], prepared.versions, answers)
    if options.argument and options.argument != "record":
        with session_of_peers(prepared, *both) as guest:
            install(guest, Path(options.argument))
            install_tests(guest)
            row = peer_check(guest)
            print(f"{'ok' if row.passed else 'FAILED'} {row.title}: {row.text} ({watch})")
            unknown += not row.passed
    return 1 if unknown else 0


def igt_tests(options: argparse.Namespace) -> int:
    """Runs IGT's selected subtests in the guest and on the mock; argument: a pattern, or record."""
    watch = Stopwatch()
    record = options.argument == "record"
    prepared = _prepared(options)
    only = "*" if record else options.argument or "*"
    work = igt.OnDriver(prepared, profile(options.device), igt_on_mock.timing(), only)
    work.run()
    print(f"{len(work.rows)} subtests on the driver in {watch}", flush=True)
    mock = igt_on_mock.run(list(work.rows), Platform(options.device).mock_profile)
    rows = {name: (word, mock[name]) for name, word in work.rows.items()}
    known = igt.expected(igt.DIFFERENCES.read_text())
    wrong = igt.judged(rows, known) if record or not options.argument else []
    for name, (one, other) in rows.items():
        if one != other:
            line = next((e for e in known if fnmatch.fnmatchcase(name, e.pattern)), None)
            print(f"{name}: {one}, mock {other}: {line.reason if line else '?'}")
    print(igt.table(rows))
    if record:
        igt.RECORD.write_text(
            igt.written(rows, (igt.tree()[1], *prepared.versions), options.device)
        )
    for name, text in work.output.items():
        critical = [line for line in text.splitlines() if "CRITICAL" in line]
        print(f"{name} on the driver: " + "\n    ".join(critical[:4]))
    print("\n".join(wrong))
    print(f"{len(rows)} subtests on both, {len(wrong)} not as written, in {watch}")
    return 1 if wrong else 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "bind": bind,
    "compare": compare,
    "compare-cached": compare_cached,
    "igt": igt_tests,
    "peers": peers,
    "product": product,
    "random": random,
    "record": record,
    "run": run,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, prog="ci/real-kernel")
    parser.add_argument("command", nargs="?", choices=COMMANDS, default="compare")
    parser.add_argument("argument", nargs="?", default="")
    parser.add_argument("--device", choices=PROFILES, default="bmg")
    parser.add_argument("--kernel", choices=KERNELS, default=REFERENCE)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # guests end, too
    try:
        return COMMANDS[options.command](options)
    except Unavailable as error:
        print(f"real-kernel: not possible here: {error}")
        return NOT_POSSIBLE
    except GuestError as error:
        print(f"real-kernel: the guest failed: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
