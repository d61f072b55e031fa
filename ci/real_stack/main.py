"""The command: prepare the root, run what is asked for on mock devices, report."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from real_stack import igt
from real_stack.clients import CLIENTS, run_case
from real_stack.mock import mock_devices
from real_stack.root import Broken, Root, Unavailable, probe

DONE, FAILED, USAGE, UNAVAILABLE = 0, 1, 2, 77
REAL_KERNEL = Path(__file__).resolve().parents[1] / "real-kernel"
EXPECTATIONS = Path(__file__).resolve().parents[2] / "tests/real/igt_expectations.txt"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the verbs; returns the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["kernel"]:
        return subprocess.call([str(REAL_KERNEL), *words[1:]])
    options = _parse(words)
    verb: Callable[[argparse.Namespace, Root], bool] = options.verb
    try:
        probe()
        root = Root.default()
        root.make()
        return DONE if verb(options, root) else FAILED
    except Unavailable as error:
        print(f"real-stack: skipped as a whole: {error}", file=sys.stderr)
        return UNAVAILABLE
    except Broken as error:
        print(f"real-stack: {error}", file=sys.stderr)
        return FAILED


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="real-stack",
        description="Run the real user-space stack on mock devices, in a Debian sid root.",
        epilog="exit: 0 all as written, 1 not so, 2 usage, 77 this machine cannot (no root, ...)",
    )
    parser.add_argument("--devices", type=int, default=2, help="mock devices (default 2)")
    parser.add_argument("--profile", choices=("bmg", "lnl"), default="bmg")
    # Tests that fill all of it and more write to every page, so it has to fit into this machine.
    parser.add_argument("--vram", type=int, default=3072, help="MiB a device (default 3072)")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    one = verbs.add_parser("prepare", help="make the root and print its versions")
    one.set_defaults(verb=_prepare)

    one = verbs.add_parser("igt", help="the kernel team's tests, against the expectations file")
    one.add_argument("binary", nargs="*", help="default: all that are written down")
    one.add_argument("--only", default="*", help="a pattern of binary@subtest")
    one.add_argument("--limit", type=float, default=60, help="seconds a subtest (default 60)")
    one.add_argument("--workers", type=int, default=2)
    one.add_argument("--times", type=int, default=1, help="runs, which must all be the same")
    one.add_argument("--output", type=Path, help="a directory for what non-passes print")
    one.set_defaults(verb=_igt)

    one = verbs.add_parser("clients", help="programs of Level Zero, Vulkan and others")
    one.add_argument("client", nargs="*", help=f"of {', '.join(CLIENTS)}; default all")
    one.add_argument("--times", type=int, default=1)
    one.add_argument("--only", default="", help="part of a case's name")
    one.set_defaults(verb=_clients)

    one = verbs.add_parser("run", help="run a command in the root, on the mock devices")
    one.add_argument("--limit", type=float, default=60)
    one.add_argument("--bind", action="append", default=[], metavar="HERE:THERE")
    one.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    one.add_argument("command", nargs=argparse.REMAINDER)
    one.set_defaults(verb=_run)
    verbs.add_parser("kernel", help="the real kernel driver in QEMU: ci/real-kernel")
    options = parser.parse_args(arguments)
    if unknown := set(getattr(options, "client", ())) - set(CLIENTS):
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    return options


def _prepare(options: argparse.Namespace, root: Root) -> bool:
    print(root.path)
    _print_versions(root)
    return True


def _igt(options: argparse.Namespace, root: Root) -> bool:
    expectations = igt.read_expectations(EXPECTATIONS.read_text())
    versions = root.versions()
    lists: list[list[tuple[str, str]]] = []
    differences: list[str] = []
    with mock_devices(root, options.devices, options.profile, options.vram << 20) as mock:
        for _ in range(options.times):
            outcomes = igt.run(
                mock.root,
                options.binary or igt.BINARIES,
                mock.env,
                limit=options.limit,
                workers=options.workers,
                only=options.only,
                seen=_show,
            )
            outcomes = igt.repeat_alone(mock.root, outcomes, expectations, mock.env, options.limit)
            if not outcomes:
                raise Broken(f"no subtest matches {options.only}")
            print(f"\nigt-gpu-tools-tests {versions['igt-gpu-tools-tests']}, ", end="")
            print(f"{options.devices} mock devices ({options.profile})\n{igt.table(outcomes)}\n")
            if options.output:
                igt.save_output(outcomes, options.output)
            differences += igt.differences(outcomes, expectations)
            if options.only == "*":
                stale = igt.unused(outcomes, expectations)
                differences += [f"{pattern}: matches no subtest any more" for pattern in stale]
            lists.append([(outcome.name, outcome.outcome) for outcome in outcomes])
    for line in differences:
        print(line)
    if any(one != lists[0] for one in lists):
        print("the runs are not the same")
        return False
    return not differences


def _clients(options: argparse.Namespace, root: Root) -> bool:
    failed = 0
    total = 0
    _print_versions(root)
    names = options.client or list(CLIENTS)
    with mock_devices(root, options.devices, options.profile, options.vram << 20) as mock:
        for client in (CLIENTS[name] for name in names):
            client.build(root)
            for turn in range(options.times):
                for case in client.cases:
                    if options.only not in case.name or options.profile not in case.profiles:
                        continue
                    env = {**mock.env, "NEO_DEVICES": str(options.devices)}
                    good, result = run_case(mock.root, case, env)
                    total += 1
                    failed += not good
                    word = "ok" if good else "FAILED"
                    print(f"{client.name}: {case.name} ({turn + 1}): {word}", flush=True)
                    if not good:
                        ended = "the limit" if result.timed_out else f"code {result.code}"
                        print(f"  {ended}, wanted {case.code}:\n{result.output[-4000:]}")
    print(f"{total - failed} of {total} as they must be")
    return failed == 0 and total > 0


def _run(options: argparse.Namespace, root: Root) -> bool:
    command = [part for part in options.command if part != "--"] or ["sh", "-c", "env; ls /"]
    binds = [tuple(pair.split(":", 1)) for pair in options.bind]
    with mock_devices(root, options.devices, options.profile, options.vram << 20) as mock:
        inside = mock.root.with_binds(*((Path(here), there) for here, there in binds))
        env = {**mock.env, **dict(pair.split("=", 1) for pair in options.env)}
        result = inside.run(command, limit=options.limit, env=env)
    print(result.output, end="")
    if not result.ok:
        print(f"real-stack: {'the limit' if result.timed_out else f'code {result.code}'}")
    return result.ok


def _print_versions(root: Root) -> None:
    print(json.dumps(root.versions(), indent=1))


def _show(outcome: igt.Outcome) -> None:
    if outcome.outcome != "pass":
        print(f"{outcome.name}: {outcome.outcome}", flush=True)
