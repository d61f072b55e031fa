"""What this machine lets a test do, asked once each."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache

from helpers import seccomp

OTHER_UID = 4242
"""A uid that is nobody's."""


@lru_cache(maxsize=1)
def may_change_uid() -> bool:
    """Whether a child may become another user."""
    return _succeeds(lambda: os.setuid(OTHER_UID))


@lru_cache(maxsize=1)
def may_make_user_namespace() -> bool:
    """Whether another user may have a user namespace of its own."""

    def work() -> None:
        os.setuid(OTHER_UID)
        if ctypes.CDLL(None).unshare(0x10000000):
            raise OSError

    return _succeeds(work)


def _succeeds(work: Callable[[], None]) -> bool:
    with warnings.catch_warnings():
        # 3.12 warns of fork() beside threads; this child takes no lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        status = 1
        with contextlib.suppress(OSError):
            work()
            status = 0
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


@lru_cache(maxsize=1)
def pid_namespace_prefix() -> tuple[str, ...] | None:
    """What to put before a command to run it in a pid namespace of its own; None: not allowed."""
    prefixes = (("unshare", "-pf"), ("unshare", "--user", "--map-root-user", "-pf"))
    return next(filter(_runs, prefixes), None)


def _runs(prefix: tuple[str, ...]) -> bool:
    tool = shutil.which(prefix[0])
    return (
        tool is not None
        and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    )


@lru_cache(maxsize=1)
def container_prefix() -> tuple[str, ...] | None:
    """What to put before a command to run it as in a container: user, pid, mount, network, ipc and
    uts namespaces of its own, under a filter like Docker's; None: not allowed.
    """
    spaces = ("--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc")
    spaces = (*spaces, "--net", "--ipc", "--uts", "--kill-child")
    filtered = (sys.executable, seccomp.__file__, "docker")
    prefix = ("unshare", *spaces, *filtered)
    return prefix if seccomp.machine_is_known() and _runs(prefix) else None


@lru_cache(maxsize=1)
def may_filter() -> bool:
    """Whether a process may have a filter of system calls."""
    return seccomp.machine_is_known() and _runs((sys.executable, seccomp.__file__, "docker"))
