"""What this machine lets a test do, asked once each."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache

OTHER_UID = 4242
"""A uid that is nobody's."""


@lru_cache(maxsize=1)
def may_change_uid() -> bool:
    """Whether a child may become another user."""
    pid = os.fork()
    if not pid:
        try:
            os.setuid(OTHER_UID)
        except OSError:
            os._exit(1)
        os._exit(0)
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
