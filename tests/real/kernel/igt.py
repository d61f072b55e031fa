"""The kernel team's tests (IGT) in the guest, on the real driver."""

from __future__ import annotations

import fnmatch
import io
import re
import subprocess
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .agent import GuestError, Result
from .gpu.profiles import Profile
from .harness import Prepared, session
from .packages import Suite, Unavailable, cache_dir
from .qemu import Guest

PACKAGE = "igt-gpu-tools-tests"
PROGRAMS = "usr/libexec/igt-gpu-tools"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
VERDICT = re.compile(r"^Subtest ([\w@.+-]+): (SUCCESS|SKIP|FAIL|CRASH)", re.MULTILINE)
WORDS = {"SUCCESS": "pass", "SKIP": "skip", "FAIL": "fail", "CRASH": "crash"}
OUTCOMES = (*WORDS.values(), "timeout")
AT_ONCE = 40
"""Subtests of one call of a program."""
ATTEMPTS = 3
NODE = "drm:/dev/dri/card1"
"""The guest has another driver's device, too."""
SECONDS = 240
"""For one call."""

SELECTED = {
    "xe_query": "*",
    "xe_create": "create-invalid-* create-max-vm* create-execqueues-noleak invalid-* multigpu-*",
    "xe_vm": "bind-* scratch shared-* invalid-* vma-* unbind-* munmap-style-* mmap-style-* "
    "compact-* create-vm* large-binds-2097152 large-userptr-binds-2097152 out-of-memory",
    "xe_prime_self_import": "*",
    "xe_mmap": "*",
    "xe_noexec_ping_pong": "*",
    "xe_waitfence": "*",
    "xe_madvise": "*",
    "xe_exec_basic": "once-* twice-*",
    "xe_exec_store": "*",
    "xe_copy_basic": "*",
    "xe_exec_atomic": "*",
    "xe_exec_queue_property": "*",
    "xe_dma_buf_sync": "*",
    "xe_spin_batch": "spin-b* spin-all spin-mem*",
    "syncobj_basic": "*",
    "syncobj_wait": "*",
    "syncobj_timeline": "*",
    "syncobj_eventfd": "*",
}
"""What runs, as patterns of the shell: what takes no longer than it must without KVM."""

DIFFERENCES = Path(__file__).parent / "igt_differences.txt"
RECORD = Path(__file__).parent / "recorded" / "igt.txt"


@dataclass(frozen=True, slots=True)
class Expected:
    """A line of the differences file: how a subtest ends on each side, and why not the same."""

    pattern: str
    kernel: str
    mock: str
    reason: str


def expected(text: str) -> list[Expected]:
    """Its lines: `binary@subtest KERNEL MOCK reason in words`; every one must give its reason."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(None, 3)
        if len(parts) != 4 or not {*parts[1:3]} <= {*OUTCOMES} or len(parts[3].split()) < 3:
            raise ValueError(f"line {number}: want `binary@subtest KERNEL MOCK reason in words`")
        found.append(Expected(*parts))
    return found


def judged(rows: Mapping[str, tuple[str, str]], known: Sequence[Expected]) -> list[str]:
    """What is not as written: one line each; unused lines of the file, too."""
    wrong = []
    used = set()
    for name, (kernel, mock) in rows.items():
        line = next((one for one in known if fnmatch.fnmatchcase(name, one.pattern)), None)
        used.add(line)
        if (kernel, mock) != ((line.kernel, line.mock) if line else (kernel, kernel)):
            wrong.append(f"{name}: {kernel} on the driver, {mock} on the mock")
    wrong += [f"{one.pattern}: matches nothing any more" for one in known if one not in used]
    return wrong


def table(rows: Mapping[str, tuple[str, str]]) -> str:
    """Counts a program, both sides beside each other."""
    programs = list(dict.fromkeys(name.partition("@")[0] for name in rows))
    width = max(map(len, programs))
    lines = [f"{'':{width}} {'driver':>24}   {'mock':>24}   same"]
    lines.append(f"{'':{width}} " + "   ".join(["pass fail skip  rest".rjust(24)] * 2))
    for program in [*programs, "total"]:
        mine = [pair for name, pair in rows.items() if name.startswith(f"{program}@")]
        mine = mine if program != "total" else list(rows.values())
        sides = []
        for side in (0, 1):
            counts = Counter(pair[side] for pair in mine)
            three = [counts[word] for word in ("pass", "fail", "skip")]
            numbers = (*three, len(mine) - sum(three))
            sides.append("".join(f"{number:5}" for number in numbers).rjust(24))
        same = sum(one == other for one, other in mine)
        lines.append(f"{program:{width}} {'   '.join(sides)}   {same} of {len(mine)}")
    return "\n".join(lines)


def written(rows: Mapping[str, tuple[str, str]], versions: Sequence[str], device: str) -> str:
    """The record: where it comes from, then a line a subtest."""
    head = [f"# {' '.join(versions)}, {device}: binary@subtest, on the driver, on the mock"]
    return "\n".join([*head, *(f"{name} {a} {b}" for name, (a, b) in rows.items())]) + "\n"


def read(text: str) -> dict[str, tuple[str, str]]:
    """The rows of a record."""
    rows = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, kernel, mock = line.split(" ")
            rows[name] = (kernel, mock)
    return rows


def tree() -> tuple[Path, str]:
    """The unpacked packages and the version of IGT."""
    place = cache_dir() / "igt"
    names = Suite("sid").unpack(place, [PACKAGE], True)
    return place, next(name for name in names if name.startswith(PACKAGE))


def _libraries(place: Path, binary: str) -> set[str]:
    """The names of the shared libraries that a program needs."""
    library_path = place / LIBRARIES
    command = [str(place / LOADER), "--library-path", str(library_path), "--list"]
    done = subprocess.run(
        [*command, str(place / PROGRAMS / binary)], capture_output=True, text=True
    )
    if done.returncode:
        raise Unavailable(f"{binary} cannot be loaded: {done.stderr.strip()[-500:]}")
    return set(re.findall(rf"=> {re.escape(str(library_path))}/(\S+)", done.stdout))


def archive(binaries: Sequence[str]) -> bytes:
    """A tar of these programs and what they load."""
    place, _ = tree()
    out = io.BytesIO()
    needed = set().union(*(_libraries(place, binary) for binary in binaries))
    with tarfile.open(fileobj=out, mode="w") as tar:
        for binary in binaries:
            tar.add(place / PROGRAMS / binary, f"{PROGRAMS}/{binary}")
        for name in sorted(needed):
            tar.add((place / LIBRARIES / name).resolve(), f"{LIBRARIES}/{name}")
        tar.add((place / LOADER).resolve(), LOADER)
        link = tarfile.TarInfo("lib64")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/lib64"
        tar.addfile(link)
    return out.getvalue()


def install(guest: Guest, binaries: Sequence[str]) -> None:
    """Puts the programs into the guest."""
    guest.agent.put("/tmp/igt.tar", archive(binaries))
    done = guest.agent.run(["/bin/tar", "-xf", "/tmp/igt.tar", "-C", "/"], seconds=120)
    guest.agent.run(["/bin/rm", "-f", "/tmp/igt.tar"])
    if done.status:
        raise GuestError(f"tar in the guest: {done.output.decode(errors='replace')}")


class OnDriver:
    """The selected subtests in guests: one that hangs takes its guest with it, the others go on."""

    def __init__(
        self, prepared: Prepared, profile: Profile, timing: Sequence[str], only: str = "*"
    ) -> None:
        self._prepared = prepared
        self._timing = timing
        self._profile = profile
        self._only = only
        self.rows: dict[str, str] = {}
        self.output: dict[str, str] = {}
        """What a subtest's program printed, of those that failed."""

    def run(self) -> None:
        left = dict(SELECTED)
        names: dict[str, list[str]] = {}
        while left:
            with session(self._prepared, self._profile) as guest:
                install(guest, list(SELECTED))
                try:
                    while left:
                        binary = next(iter(left))
                        if binary not in names:
                            names[binary] = self._names(guest, binary, left[binary].split())
                        self._program(guest, binary, names[binary])
                        del left[binary]
                except GuestError as error:
                    print(f"igt: {binary}: {error}", flush=True)
                    self._missing(binary, names[binary], error.output.decode(errors="replace"))

    def _names(self, guest: Guest, binary: str, patterns: Sequence[str]) -> list[str]:
        done = guest.agent.run([f"/{PROGRAMS}/{binary}", "--list-subtests"], seconds=60)
        return [
            name
            for name in done.output.decode(errors="replace").split("\n")
            if name
            and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            and fnmatch.fnmatchcase(f"{binary}@{name}", self._only)
        ]

    def _program(self, guest: Guest, binary: str, names: Sequence[str]) -> None:
        while left := [name for name in names if f"{binary}@{name}" not in self.rows]:
            now = left[:AT_ONCE]
            done = self._call(guest, binary, now)
            text = done.output.decode(errors="replace")
            self._verdicts(binary, now, text)
            for name in now:
                self._repeat(guest, binary, name)
            if all(f"{binary}@{name}" in self.rows for name in now):
                continue
            self._missing(binary, now, text, "timeout" if done.status == 124 else "crash")

    def _call(self, guest: Guest, binary: str, names: Sequence[str]) -> Result:
        command = [f"/{PROGRAMS}/{binary}", "--device", NODE, "--run-subtest", ",".join(names)]
        return guest.agent.run(command, seconds=SECONDS)

    def _repeat(self, guest: Guest, binary: str, name: str) -> None:
        """A test of clocks is asked again alone, up to three times, before it has failed."""
        whole = f"{binary}@{name}"
        if not any(fnmatch.fnmatchcase(whole, pattern) for pattern in self._timing):
            return
        for _ in range(ATTEMPTS):
            if self.rows.get(whole) != "fail":
                break
            done = self._call(guest, binary, [name])
            self._verdicts(binary, [name], done.output.decode(errors="replace"))

    def _verdicts(self, binary: str, names: Sequence[str], text: str) -> None:
        for name, word in VERDICT.findall(text):
            if name in names:
                self.rows[f"{binary}@{name}"] = WORDS[word]
                if word in ("FAIL", "CRASH"):
                    self.output[f"{binary}@{name}"] = text

    def _missing(self, binary: str, names: Sequence[str], text: str, word: str = "timeout") -> None:
        """The one that had begun and did not end is `word`; what has not begun may run again."""
        self._verdicts(binary, names, text)
        left = [name for name in names if f"{binary}@{name}" not in self.rows]
        begun = [name for name in left if f"Starting subtest: {name}\n" in text] or left[:1]
        for name in begun:
            self.rows[f"{binary}@{name}"] = word
            self.output[f"{binary}@{name}"] = text
