"""`python3 -m kernel.gpu PROFILE SOCKET`: serve one emulated GPU to one client."""

from __future__ import annotations

import sys
from pathlib import Path

from .device import serve_once
from .profiles import PROFILES


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in PROFILES:
        print(__doc__, file=sys.stderr)
        return 2
    serve_once(PROFILES[sys.argv[1]], Path(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
