"""The program ``ze-ipc``; one module a verb."""

from ze_ipc.cli.main import main

__all__ = ["main"]
