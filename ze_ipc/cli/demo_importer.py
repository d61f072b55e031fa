"""The other process of the demo: it opens the handle, checks every byte and answers with bytes of
its own.

Reads one JSON object from standard input and prints one to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from ze_ipc.cli.demo_pattern import Pattern
from ze_ipc.errors import ZeIpcError
from ze_ipc.open_device import open_device


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Do the importer's half of one demo."""
    pattern = Pattern(job["seed"], job["objects"], job["object_size"])
    answer = Pattern(job["answer_seed"], job["objects"], job["object_size"])
    with open_device(job["backend"], job["device"]) as device:
        begin = time.perf_counter()
        with device.open_ipc_handle(bytes.fromhex(job["handle"]), timeout=job["timeout"]) as view:
            open_us = (time.perf_counter() - begin) * 1e6
            described = device.address_range(view.ptr) == (view.ptr, pattern.size)
            difference = pattern.first_difference(device, view.ptr, lambda _: None)
            gpu_difference, gpu_bytes = pattern.first_gpu_difference(device, view.ptr)
            answer.write(device, view.ptr, lambda _: None)
            return {
                "pid": os.getpid(),
                "open_us": open_us,
                "self_describing": described,
                "difference": difference,
                "gpu_difference": gpu_difference,
                "gpu_bytes": gpu_bytes,
                "transport": view.transport,
                "ptr": view.ptr,
            }


def main() -> None:
    """Entry of the process."""
    try:
        json.dump(run(json.load(sys.stdin)), sys.stdout)
    except ZeIpcError as error:
        sys.exit(f"ze-ipc: in the importing process: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
