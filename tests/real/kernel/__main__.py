"""`python3 -m kernel COMMAND PROFILE [PATTERN]`: bind, run scripts, or compare them with the mock."""

from __future__ import annotations

import sys

from .agent import GuestError
from .compare.common import Platform
from .compare.run import on_kernel, scripts
from .gpu.profiles import PROFILES
from .harness import Stopwatch, driver_lines, prepare, profile, session
from .packages import Unavailable

NOT_POSSIBLE = 77
"""The exit code when this machine cannot do it: what test runners take for "skipped"."""


def bind(name: str, pattern: str) -> int:
    """Boots, binds and prints the driver's own lines."""
    watch = Stopwatch()
    prepared = prepare()
    print(f"prepared in {watch}: {' '.join(prepared.versions)}")
    watch = Stopwatch()
    with session(prepared, profile(name)) as guest:
        print(f"bound in {watch}")
        print("\n".join(driver_lines(guest)))
        print(guest.gpu_log(), end="")
    return 0


def run(name: str, pattern: str) -> int:
    """Prints what the real driver answers to every script."""
    platform = Platform(name)
    wanted = list(scripts(platform, pattern))
    with session(prepare(), profile(name)) as guest:
        watch = Stopwatch()
        results = on_kernel(guest, wanted)
        for script in wanted:
            print(f"{script.name}\n  " + "\n  ".join(results.get(script.name, ["(nothing)"])))
        print(f"{len(results)} of {len(wanted)} scripts in {watch}")
        print("\n".join(driver_lines(guest)[12:]))
        print(guest.gpu_log(), end="")
    return 0


COMMANDS = {"bind": bind, "run": run}


def main() -> int:
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in COMMANDS or sys.argv[2] not in PROFILES:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return COMMANDS[sys.argv[1]](sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else "")
    except Unavailable as error:
        print(f"real-kernel: not possible here: {error}")
        return NOT_POSSIBLE
    except GuestError as error:
        print(f"real-kernel: the guest failed: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
