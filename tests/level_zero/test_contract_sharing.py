"""The contract's tests of ranges between processes, all of them, on a Level Zero driver."""

from device.test_sharing import *  # noqa: F403
