"""Short forms on every test run, long ones where ZE_IPC_STRESS=long asks for them."""

from __future__ import annotations

import os

LONG = os.environ.get("ZE_IPC_STRESS") == "long"


def times(short: int, long: int) -> int:
    """How often."""
    return long if LONG else short
