"""What a process holds, as the kernel sees it, so that a test can prove to give it all back.

The fixture ``no_leaks`` of the pytest plugin asks it.
"""

from __future__ import annotations

import gc
import os
import re
import socket
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ze_ipc.policy import peer_of

SETTLE_SECONDS = 3.0
"""Threads and children may take so long to end after a test; only a red check waits."""

MEMORY_MARKS = ("/dmabuf", "/memfd:", "/ze-ipc-mock-", "/dev/dri/")
"""Parts of the names that mappings of device memory have in /proc/self/maps."""

PROCESS_WIDE_FD = re.compile(r"/ze-ipc-mock-\d+/[^/]+(/\.?lock)?$|/libffi[\w.-]*\.so[\d.]*$")
"""The mock's one descriptor a process at rest: its own directory or the lock in it. And libffi's,
which keeps its file open to map trampolines from it: since ctypes was imported."""


@dataclass(frozen=True)
class Snapshot:
    """Everything this process holds that a test could leave behind."""

    fds: frozenset[str]
    """``number -> target``."""
    threads: frozenset[str]
    """Kernel task ids, native threads included."""
    mappings: Counter[str]
    """Mappings of device memory by file."""
    children: frozenset[str]
    """Processes, also dead ones that nobody waited for."""
    sockets: frozenset[str]
    """Socket files in the broker directories."""
    mock_files: frozenset[str]
    """Bytes of mock objects of this process."""
    mock_holdings: Counter[str]
    """Open files, GEM handles, VMs, objects and mappings of this process's mock devices."""

    def new_in(self, after: Snapshot) -> list[str]:
        """What ``after`` has and this has not, one line each."""
        mappings = after.mappings - self.mappings
        held = after.mock_holdings - self.mock_holdings
        return [
            *(f"fd {name}" for name in sorted(after.fds - self.fds)),
            *(f"thread {name}" for name in sorted(after.threads - self.threads)),
            *(f"memory mapping {name} x{count}" for name, count in sorted(mappings.items())),
            *(f"child process {name}" for name in sorted(after.children - self.children)),
            *(f"socket file {name}" for name in sorted(after.sockets - self.sockets)),
            *(f"mock object {name}" for name in sorted(after.mock_files - self.mock_files)),
            *(f"{name} x{count}" for name, count in sorted(held.items())),
        ]


def take(before: Snapshot | None = None) -> Snapshot:
    """What this process holds now; what ``before`` has as well is not looked at closely."""
    return Snapshot(
        fds=frozenset(_fds()),
        threads=frozenset(_names("/proc/self/task")),
        mappings=_mappings(),
        children=frozenset(_children()),
        sockets=frozenset(_socket_files(before.sockets if before else frozenset())),
        mock_files=frozenset(_mock_files()),
        mock_holdings=_mock_holdings(),
    )


def collect() -> list[str]:
    """Collect garbage; a line for every object that had to be closed by the collector."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        gc.collect()
    return [f"ResourceWarning {w.message}" for w in seen if issubclass(w.category, ResourceWarning)]


def left_behind(before: Snapshot) -> list[str]:
    """What is held now and was not before, after waiting SETTLE_SECONDS for it to go."""
    warned = collect()
    deadline = time.monotonic() + SETTLE_SECONDS
    while (leaks := before.new_in(take(before))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return warned + leaks


def broker_directories() -> list[Path]:
    """Where brokers of this environment put their sockets."""
    env = os.environ
    if env.get("ZE_IPC_DIR"):
        return [Path(env["ZE_IPC_DIR"])]
    runtime = env.get("XDG_RUNTIME_DIR")
    return ([Path(runtime, "ze_ipc")] if runtime else []) + [Path(f"/tmp/ze_ipc-{os.getuid()}")]


def mock_directories() -> list[Path]:
    """Where this process's mock keeps the bytes of its objects."""
    names = ("ZE_IPC_MOCK_DIR", "XDG_RUNTIME_DIR", "TMPDIR")
    bases = {"/dev/shm", "/tmp", *filter(None, map(os.environ.get, names))}
    pattern = f"ze-ipc-mock-{os.getuid()}/{os.getpid()}-*"
    return [path for base in bases for path in Path(base).glob(pattern)]


def _fds() -> list[str]:
    found = []
    tracker = str(getattr(_resource_tracker(), "_fd", None))
    for number in _names("/proc/self/fd"):
        if number == tracker:
            continue
        try:
            target = str(Path("/proc/self/fd", number).readlink())
        except FileNotFoundError:  # what listed the directory, or what a thread has just closed
            continue
        if not PROCESS_WIDE_FD.search(target):
            found.append(f"{number} -> {target}")
    return found


def _mappings() -> Counter[str]:
    found: Counter[str] = Counter()
    for line in Path("/proc/self/maps").read_text().splitlines():
        name = line.split(None, 5)[5:]
        if name and any(mark in name[0] for mark in MEMORY_MARKS):
            found[name[0]] += 1
    return found


def _children() -> list[str]:
    tracker = str(getattr(_resource_tracker(), "_pid", None))
    children = (child for task in _names("/proc/self/task") for child in _children_of(task))
    return [child for child in children if child != tracker]


def _children_of(task: str) -> list[str]:
    try:
        return Path(f"/proc/self/task/{task}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        if task == str(os.getpid()):
            raise  # the kernel has no such file: better no check than one that sees nothing
        return []  # that thread has just ended


def _names(directory: str) -> list[str]:
    return [path.name for path in Path(directory).iterdir()]


def _socket_files(known: frozenset[str]) -> list[str]:
    """Those of living processes other than this one are theirs: tests may run side by side."""
    return [
        str(path)
        for directory in broker_directories()
        if directory.is_dir()
        for path in directory.iterdir()
        if str(path) in known or (path.is_socket() and not _is_anothers(path))
    ]


def _is_anothers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
            return peer_of(probe).pid != os.getpid()
        except OSError:
            return False


def _mock_files() -> list[str]:
    return [
        str(path)
        for directory in mock_directories()
        for path in directory.rglob("*")
        if path.is_file() and path.stat().st_size
    ]


def _mock_holdings() -> Counter[str]:
    if "ze_ipc._mock" not in sys.modules:  # then nobody has a mock device
        return Counter()
    from ze_ipc import mock

    return Counter(
        {
            f"mock device {index}: {kind.rstrip('s')}": getattr(stats, kind)
            for index, stats in mock.held().items()
            for kind in ("files", "handles", "vms", "objects", "mappings")
        }
    )


def _resource_tracker() -> object:
    """multiprocessing's: a child and a descriptor that live as long as this process."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return getattr(module, "_resource_tracker", None)
