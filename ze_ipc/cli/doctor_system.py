"""What the system permits: descriptors, maps, directories, tracing."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from ze_ipc import socket_dir, transport_dial, transport_pidfd
from ze_ipc.cli.doctor_check import Check
from ze_ipc.errors import ZeIpcError
from ze_ipc.policy import admits_own_uid

FEW_FDS = 256
"""What a range of any length needs at most, beside what the program itself has open."""
FEW_MAPS = 65530
"""The kernel's default."""
MOCK_MEMORY = 1 << 30
"""Free bytes from which on the mock takes a file system without looking at others."""


def checks() -> Iterator[Check]:
    """All of them."""
    yield _fds()
    yield _maps()
    yield _broker_directory()
    yield _importers()
    yield _exporters()
    yield _pidfd()
    yield _mock_memory()


def _fds() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"RLIMIT_NOFILE {_limit(soft)} (hard {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < FEW_FDS:
        return Check("descriptors", "warning", found, f"ulimit -n {FEW_FDS} or more")
    return Check("descriptors", "ok", found)


def _limit(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else f"{number:,}"


def _maps() -> Check:
    try:
        count = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError) as error:
        return Check("memory maps", "note", f"vm.max_map_count cannot be read: {error}")
    found = f"vm.max_map_count {count:,}: a CPU view needs one map an extent"
    if count < FEW_MAPS:
        return Check("memory maps", "warning", found, f"sysctl vm.max_map_count={FEW_MAPS}")
    return Check("memory maps", "ok", found)


def _broker_directory() -> Check:
    try:
        with socket_dir.exporter_dir() as directory:
            return Check("broker directory", "ok", str(directory.path))
    except (ZeIpcError, OSError) as error:
        fix = error.hint if isinstance(error, ZeIpcError) else ""
        where = socket_dir.candidate_dirs()[0]
        return Check(
            "broker directory",
            "failure",
            f"{where}: {error}",
            fix or "set ZE_IPC_DIR to a directory of yours with mode 0700",
        )


def _importers() -> Check:
    """Who may open what is exported here."""
    uid = os.geteuid()
    if admits_own_uid():
        found = f"processes of uid {uid}, where get_ipc_handle() is given no other policy"
        return Check("may open ours", "ok", found)
    return Check(
        "may open ours",
        "warning",
        f"nobody by default: uid {uid} stands for every user whom this user namespace lacks",
        "map this user into the namespace, or name who may: policy=Policy(pids=...)",
    )


def _exporters() -> Check:
    """Whose exports are opened from a directory that is shared with others."""
    try:
        others = sorted(transport_dial.exporter_uids())
    except ZeIpcError as error:
        return Check("believed exporters", "failure", error.cause, error.hint)
    uids = ", ".join(map(str, sorted({0, os.geteuid(), *others})))
    found = f"of uid {uids}" + (" (with ZE_IPC_EXPORTER_UIDS)" if others else "")
    return Check("believed exporters", "ok", found)


def _pidfd() -> Check:
    try:
        obstacle = transport_pidfd.obstacle()
    except ZeIpcError as error:
        return Check("pidfd transport", "warning", str(error), error.hint)
    if obstacle is None:
        return Check("pidfd transport", "ok", "pidfd_getfd works (only used when asked for)")
    return Check(
        "pidfd transport",
        "note",
        f"in its way: {obstacle}; the broker, which is the default, needs it not",
        "nothing, unless ZE_IPC_TRANSPORT=pidfd is wanted",
    )


def _mock_memory() -> Check:
    """As the mock chooses; it says nothing of a machine with a GPU."""
    own = os.environ.get("ZE_IPC_MOCK_DIR")
    wanted = [own] if own else ["/dev/shm", os.environ.get("XDG_RUNTIME_DIR"), _temporary()]
    rooms = []
    for name in filter(None, wanted):
        try:
            status = os.statvfs(name)
        except OSError:
            continue
        rooms.append((status.f_bavail * status.f_frsize, name))
        if rooms[-1][0] >= MOCK_MEMORY:
            return Check("memory of the mock", "ok", f"{name}, {_gib(rooms[-1][0])} free")
    if not rooms:
        fix = "set ZE_IPC_MOCK_DIR to a directory on a tmpfs"
        return Check("memory of the mock", "warning", f"none of {wanted} is there", fix)
    most, name = max(rooms)
    return Check(
        "memory of the mock",
        "note",
        f"{name}, only {_gib(most)} free: larger objects fail when they are written",
        "give /dev/shm more room (docker run --shm-size=4g), or set ZE_IPC_MOCK_DIR",
    )


def _temporary() -> str:
    return os.environ.get("TMPDIR") or "/tmp"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB"
