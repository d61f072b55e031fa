"""The contract's range tests, all of them, on a Level Zero driver."""

from device.test_ranges import *  # noqa: F403
