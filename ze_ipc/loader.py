"""Libraries of Level Zero as the dynamic linker would find them, judged without loading them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ze_ipc import elf
from ze_ipc.errors import ZeIpcError

LOADERS = ("libze_loader.so.1", "libze_loader.so")
DRIVERS = ("libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1")
"""What the loader tries for GPUs unless ZE_ENABLE_ALT_DRIVERS names others."""
MACHINE_FOLDERS = ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib")


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """The verdict on one library."""

    name: str
    """As it would be opened."""
    path: str
    """The file, or empty when none is found."""
    soname: str
    version: str
    missing_libraries: tuple[str, ...]
    """Sonames that nothing here provides."""
    missing_versions: tuple[str, ...]
    """Symbol versions that this system's libraries do not have, as ``libc.so.6: GLIBC_2.38``."""
    missing_entries: dict[str, str]
    """Of the functions asked for, those that it does not export, with what was said of them."""
    problem: str
    """Why it cannot be loaded, in one sentence; empty if nothing is known against it."""

    @property
    def loads(self) -> bool:
        """Whether the dynamic linker should take it."""
        return not self.problem


def loader_candidates() -> list[str]:
    """What to open as the loader, the first that is found."""
    own = os.environ.get("ZEL_LIBRARY_PATH")
    return [*([str(Path(own, LOADERS[0]))] if own else []), *LOADERS]


def driver_candidates() -> list[str]:
    """What the loader will open as drivers."""
    own = os.environ.get("ZE_ENABLE_ALT_DRIVERS", "")
    return [name for name in own.split(",") if name] or list(DRIVERS)


def inspect(name: str, entries: Mapping[str, str] | None = None) -> LibraryReport:
    """Look at one library; ``entries`` are the functions it should export."""
    path = find(name)
    if path is None:
        return _report(name, problem="it is not installed (no such file in the linker's path)")
    try:
        facts = elf.read(path)
    except OSError as error:
        return _report(name, path=str(path), problem=f"it cannot be read: {error.strerror}")
    except ZeIpcError as error:
        return _report(name, path=str(path), problem=error.cause)
    libraries, versions = _unmet(facts)
    problem = ""
    if libraries:
        problem = f"it needs {', '.join(libraries)}, which is not installed"
    elif versions:
        problem = f"this system is too old for it: {', '.join(versions)} not found"
    return LibraryReport(
        name=name,
        path=str(facts.path),
        soname=facts.soname,
        version=facts.version,
        missing_libraries=libraries,
        missing_versions=versions,
        missing_entries={
            entry: said for entry, said in (entries or {}).items() if entry not in facts.exports
        },
        problem=problem,
    )


def first_found(names: Iterable[str], entries: Mapping[str, str] | None = None) -> LibraryReport:
    """The report of the first that loads, else of the first that is there, else of the first."""
    reports = []
    for name in names:
        report = inspect(name, entries)
        if report.loads:
            return report
        reports.append(report)
    there = [report for report in reports if report.path]
    return (there or reports)[0]


def find(name: str) -> Path | None:
    """The file that dlopen() would take, or None."""
    if "/" in name:
        return Path(name) if Path(name).is_file() else None
    own = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    for folder in own:
        if (folder / name).is_file():
            return folder / name
    cached = _linker_cache().get(name)
    if cached is not None and cached.is_file():
        return cached
    for prefix in ("/usr/local", "/usr", "/"):
        for folder_name in MACHINE_FOLDERS:
            path = Path(prefix, folder_name, name)
            if path.is_file():
                return path
    return None


def _unmet(facts: elf.ElfFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Libraries that are missing, and symbol versions that those which are there lack."""
    libraries, versions = [], []
    for soname in dict.fromkeys((*facts.libraries, *facts.needs)):
        path = find(soname)
        if path is None:
            libraries.append(soname)
            continue
        wanted = facts.needs.get(soname, ())
        if wanted:
            offered = _offered(path)
            versions += [f"{soname}: {version}" for version in wanted if version not in offered]
    return tuple(libraries), tuple(versions)


@cache
def _offered(path: Path) -> frozenset[str]:
    try:
        return elf.read(path).offers
    except (OSError, ZeIpcError):
        return frozenset()


@cache
def _linker_cache() -> dict[str, Path]:
    """Names and files as ldconfig knows them; empty where there is no ldconfig."""
    program = shutil.which("ldconfig") or shutil.which("ldconfig", path="/usr/sbin:/sbin")
    if program is None:
        return {}
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            [program, "-p"],
            capture_output=True,
            text=True,
            timeout=10,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, Path] = {}
    for match in re.finditer(r"^\s*(\S+) \((.*?)\) => (\S+)$", done.stdout, re.MULTILINE):
        if "x86-64" in match[2] or "AArch64" in match[2]:
            found.setdefault(match[1], Path(match[3]))
    return found


def _report(name: str, *, path: str = "", problem: str) -> LibraryReport:
    return LibraryReport(name, path, "", "", (), (), {}, problem)
