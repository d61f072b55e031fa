"""A pytest plugin: what asks for the mock gets render nodes, through libc's own ioctls.

Under libxe_mock.so those nodes are the mock's. It runs the device tests once more, with the code
that talks to a kernel: ``pytest -p helpers.on_nodes``, with ``ZE_IPC_TEST_BACKEND=xe`` for peers.
"""

from __future__ import annotations

from ze_ipc.open_device import OPENERS

OPENERS["mock"] = OPENERS["xe"]
