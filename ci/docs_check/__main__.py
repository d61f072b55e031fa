"""``python -m docs_check DIRECTORY``: exit code 1 with a line for every dead link in a site."""

from __future__ import annotations

import sys
from pathlib import Path

from docs_check.links import dead_links


def main() -> int:
    """Looks at every page below the directory."""
    site = Path(sys.argv[1])
    dead = dead_links(site)
    for line in dead:
        print(f"dead link: {line}")
    print(f"{len(list(site.rglob('*.html')))} pages, {len(dead)} dead links")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
