"""The command: find headers, compare, report."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from abi_check.compare import Finding, compare
from abi_check.layout import Layout
from abi_check.probe import CompileError, declared_macros, probe
from abi_check.subjects import SUBJECTS, Subject
from debian_packages import AptRoot, NoPackages, cache_directory, locked

AGREES, DISAGREES, USAGE, NO_HEADERS = 0, 1, 2, 77


@dataclass(frozen=True, slots=True)
class Tree:
    """An unpacked package."""

    label: str
    path: Path
    complete: bool
    """Whether it must declare everything that we declare."""


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on one tree."""

    label: str
    complete: bool
    constants: int
    structs: int
    fields: int
    findings: list[Finding]
    errors: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; returns the exit code."""
    options = _parse(arguments)
    reports: list[tuple[Subject, Report]] = []
    for name in options.subject or list(SUBJECTS):
        subject = SUBJECTS[name]
        declarations = options.declarations or subject.declarations
        try:
            ours = _read_ours(subject, declarations)
            for tree in _trees(subject, options):
                theirs = _read_theirs(subject, tree, ours)
                reports.append((subject, _judge(tree, ours, compare(ours, theirs))))
        except NoPackages as error:
            print(f"abi-check: no headers to check {name} against: {error}", file=sys.stderr)
            return NO_HEADERS
        except CompileError as error:
            print(f"abi-check: {name}: the probe does not compile:\n{error}", file=sys.stderr)
            return DISAGREES
    if options.json:
        rows = [{"subject": subject.name, **asdict(report)} for subject, report in reports]
        print(json.dumps({"agrees": not _wrong(reports), "reports": rows}, indent=1))
    else:
        _print_table(reports)
    return DISAGREES if _wrong(reports) else AGREES


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="abi-check",
        description="Compare our C declarations with the headers that Debian ships.",
        epilog="exit: 0 they agree, 1 they do not, 2 usage, 77 no headers can be had here",
    )
    parser.add_argument("subject", nargs="*", help=f"of {', '.join(SUBJECTS)}; default all")
    parser.add_argument("--headers", type=Path, help="an unpacked package instead of a download")
    parser.add_argument(
        "--complete", action="store_true", help="with --headers: what it lacks is an error"
    )
    parser.add_argument("--declarations", type=Path, help="another file in the place of ours")
    parser.add_argument("--refresh", action="store_true", help="look for newer packages now")
    parser.add_argument("--json", action="store_true", help="report as one JSON object")
    options = parser.parse_args(arguments)
    if unknown := set(options.subject) - set(SUBJECTS):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    if (options.headers or options.declarations) and len(options.subject or SUBJECTS) != 1:
        parser.error("--headers and --declarations need exactly one subject")
    for path in (options.headers, options.declarations):
        if path and not path.exists():
            parser.error(f"{path} does not exist")
    return options


def _trees(subject: Subject, options: argparse.Namespace) -> list[Tree]:
    if options.headers:
        return [Tree(str(options.headers), options.headers, options.complete)]
    cache = cache_directory()
    with locked(cache / "headers.lock"):
        apt = AptRoot(cache / "headers-apt", ("sid", "bookworm-backports"))
        apt.update(force=options.refresh)
        trees = []
        for suite in subject.suites:
            path = apt.unpack(subject.package, suite, cache / "headers")
            label = f"{path.name.replace('_', ' ')} ({suite})"
            trees.append(Tree(label, path, complete=suite == subject.suites[0]))
        return trees


def _read_ours(subject: Subject, declarations: Path) -> Layout:
    with tempfile.TemporaryDirectory(prefix="abi-check-") as scratch:
        includes = [*subject.prelude, f'"{declarations.resolve()}"']
        macros = declared_macros(declarations)
        whole = probe(includes, [], macros, Path(scratch))
        # What the prelude brings along is not ours.
        Path(scratch, "prelude").mkdir()
        prelude = probe(subject.prelude, [], [], Path(scratch, "prelude"))
    structs = {k: v for k, v in whole.structs.items() if k not in prelude.structs}
    constants = {k: v for k, v in whole.constants.items() if k not in prelude.constants}
    return Layout(structs, constants)


def _read_theirs(subject: Subject, tree: Tree, ours: Layout) -> Layout:
    base = tree.path / "usr/include"
    search = [path for path in (base, base / "x86_64-linux-gnu") if path.is_dir()]
    if not search:
        search = [tree.path]
    with tempfile.TemporaryDirectory(prefix="abi-check-") as scratch:
        return probe(subject.headers, search, ours.constants, Path(scratch))


def _judge(tree: Tree, ours: Layout, findings: list[Finding]) -> Report:
    return Report(
        label=tree.label,
        complete=tree.complete,
        constants=len(ours.constants),
        structs=len(ours.structs),
        fields=sum(len(struct.fields) for struct in ours.structs.values()),
        findings=findings,
        errors=sum(f.is_error or (tree.complete and f.kind == "absent") for f in findings),
    )


def _wrong(reports: Sequence[tuple[Subject, Report]]) -> bool:
    return any(report.errors for _, report in reports)


def _print_table(reports: Sequence[tuple[Subject, Report]]) -> None:
    for _, report in reports:
        for finding in report.findings:
            if finding.is_error or (report.complete and finding.kind == "absent"):
                print(f"{report.label}: {finding.subject}: {finding.kind}: {finding.text}")
        for kind in ("absent", "newer"):
            names = [finding.subject for finding in report.findings if finding.kind == kind]
            if names:
                print(f"\n{kind} in {report.label}:")
                print(
                    textwrap.fill(
                        ", ".join(names), 100, initial_indent="  ", subsequent_indent="  "
                    )
                )
    width = max(len(report.label) for _, report in reports)
    print(f"\n{'':12}{'headers':{width}}  structs  fields  constants  absent  newer  disagree")
    for subject, report in reports:
        kinds = [finding.kind for finding in report.findings]
        print(
            f"{subject.name:12}{report.label:{width}}  {report.structs:7}  {report.fields:6}"
            f"  {report.constants:9}  {kinds.count('absent'):6}  {kinds.count('newer'):5}"
            f"  {kinds.count('disagrees'):8}"
        )
    print("they disagree" if _wrong(reports) else "all agree")
