"""For every test: a broker directory of its own process, and proof that nothing is left behind."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from multiprocessing import resource_tracker

import pytest
from hypothesis import HealthCheck, settings

# A machine that does other things too must not turn a correct test red.
settings.register_profile(
    "shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("shared")


def pytest_configure(config: pytest.Config) -> None:
    # The sockets of processes that test at the same time must not look like leaks of each other.
    directory = tempfile.mkdtemp(prefix="zeipc-")
    os.environ["ZE_IPC_DIR"] = directory
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    # One process for the whole session, started by multiprocessing at its first spawn.
    resource_tracker.ensure_running()


def pytest_collection_finish() -> None:
    # What exists now lives to the end; frozen, it costs the collection after each test nothing.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_left_behind(no_leaks: None) -> None:
    """Every test gives back all fds, threads, mappings, children and files, as the plugin sees."""
