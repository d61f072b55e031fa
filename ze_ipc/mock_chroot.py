"""Enters a chroot and becomes a command; run as a script of its own, standard library only.

Its arguments are two descriptors: one to read the plan from (JSON: root, command, environment), one
to report a failure on (JSON: [stage, errno]); nothing comes on success, it closes at exec.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_MS_NOSUID_NODEV = 0x2 | 0x4


def _enter(root: str) -> None:
    """chroot, in a mount namespace of its own with /proc and a memory file system on /dev/shm."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, kind: str, flags: int, options: str | None = None) -> bool:
        data = options.encode() if options else None
        result: int = libc.mount(
            source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data
        )
        return result == 0

    # Without the right to mount, a chroot alone must do: programs find what the root itself has.
    if libc.unshare(_CLONE_NEWNS) == 0 and mount("none", "/", "none", _MS_REC | _MS_PRIVATE):
        if not Path(root, "proc/self").exists():
            mount("proc", f"{root}/proc", "proc", 0)
        shm = Path(root, "dev/shm")
        if shm.is_dir() and not shm.is_mount():
            mount("tmpfs", str(shm), "tmpfs", _MS_NOSUID_NODEV, "mode=1777")
    os.chroot(root)
    os.chdir("/")


def main() -> None:
    report = int(sys.argv[2])
    os.set_inheritable(report, False)
    with open(int(sys.argv[1]), "rb") as file:  # noqa: PTH123
        plan = json.load(file)
    stage = "chroot"
    try:
        _enter(plan["root"])
        stage = "exec"
        os.execvpe(plan["command"][0], plan["command"], plan["environment"])
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(report, json.dumps([stage, error.errno]).encode())
    sys.exit(127)


if __name__ == "__main__":
    main()
