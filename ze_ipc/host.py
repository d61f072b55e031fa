"""Which machine and boot this is, and the facts about a process that outlive the reuse of its pid.

The identity of a host is a hash of ``/proc/sys/kernel/random/boot_id`` (122 random bits that the
kernel draws once a boot) and of the running kernel's release and version. No namespace hides or
changes any of them, so every container and user of one boot computes the same 8 bytes, and a
reboot or another machine gives others. ``/etc/machine-id`` and the host's name are left out on
purpose: containers have their own.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache

from ze_ipc.os_errors import error_of_os

HOST_IDENTITY_SIZE = 8
"""Bytes."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def identity_of(boot_id: str, release: str, version: str) -> bytes:
    """The identity that these three facts give: 8 bytes, the same wherever it is computed."""
    facts = "\0".join((boot_id.strip().lower(), release, version)).encode()
    return hashlib.blake2b(facts, digest_size=HOST_IDENTITY_SIZE, person=b"ze_ipc host").digest()


@lru_cache(maxsize=1)
def host_identity() -> bytes:
    """This host in this boot, 8 bytes; KernelError where /proc is not mounted."""
    try:
        boot_id = _read(_BOOT_ID)
    except OSError as error:
        raise error_of_os(error, "open", f"cannot read {_BOOT_ID}", hint="mount /proc") from error
    system = os.uname()
    return identity_of(boot_id, system.release, system.version)


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot (proc(5), field 22); None if it is gone.

    (pid, start time) names a process for as long as the host is up; a pid alone does not.
    """
    try:
        stat = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    return int(stat[stat.rindex(")") + 2 :].split()[19])


def yama_scope() -> int | None:
    """Yama's ptrace_scope: 0 classic, 1 descendants, 2 admin, 3 nobody; None: no Yama."""
    try:
        return int(_read("/proc/sys/kernel/yama/ptrace_scope"))
    except (OSError, ValueError):
        return None


def seccomp_mode() -> int:
    """Seccomp of this thread: 0 none, 1 strict, 2 filtered."""
    return _status_number("Seccomp")


def maps_every_uid() -> bool:
    """Whether every uid of the host has a number of its own in our user namespace."""
    try:
        rows = _read("/proc/self/uid_map").split("\n")
    except OSError:
        return False
    return any(row.split() == ["0", "0", "4294967295"] for row in rows)


@lru_cache(maxsize=1)
def overflow_uid() -> int:
    """The uid that stands for all uids without a number in our user namespace, as it was once."""
    try:
        return int(_read("/proc/sys/kernel/overflowuid"))
    except (OSError, ValueError):
        return 65534


def _status_number(field: str) -> int:
    try:
        lines = _read("/proc/thread-self/status").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def _read(path: str) -> str:
    """A short file of /proc: three system calls, where Python's files make nine."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Names of processes may be any bytes.
        return os.read(number, 1 << 16).decode("utf-8", "replace")
    finally:
        os.close(number)
