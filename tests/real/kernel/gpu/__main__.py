"""`python3 -m kernel.gpu PROFILE SOCKET [VRAM PEER]`: serve one emulated GPU to one client.

VRAM and PEER are inherited descriptors: of its own device memory, and of another GPU's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .device import serve_once
from .profiles import PROFILES


def main() -> int:
    if len(sys.argv) not in (3, 5) or sys.argv[1] not in PROFILES:
        print(__doc__, file=sys.stderr)
        return 2
    vram, peer = (int(word) for word in sys.argv[3:] or ("-1", "-1"))
    serve_once(PROFILES[sys.argv[1]], Path(sys.argv[2]), vram, peer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
