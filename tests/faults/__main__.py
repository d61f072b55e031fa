"""The whole campaign, or a part of it, for people: ci/fault-campaign."""

from __future__ import annotations

import argparse
import sys

from faults.campaign import campaign
from faults.scenes import SIDES


def main() -> int:
    """Exit status: 0 when nothing was wrong, each time."""
    parser = argparse.ArgumentParser(prog="ci/fault-campaign", description=__doc__)
    parser.add_argument("--side", choices=SIDES, help="only this side is interfered with")
    parser.add_argument("--sample", type=int, metavar="K", help="only K cases")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default 0)")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="N times in a row")
    parser.add_argument("--workers", type=int, default=2, help="at once (default 2)")
    args = parser.parse_args()
    bad = 0
    for turn in range(args.times):
        result = campaign(
            side=args.side, sample=args.sample, seed=args.seed + turn, workers=args.workers
        )
        bad += bool(result.wrong)
        print(*result.lines(), sep="\n", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
