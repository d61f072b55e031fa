"""A Python target under atheris: ``python atheris_main.py TARGET [libFuzzer's arguments]``."""

from __future__ import annotations

import gc
import importlib
import logging
import sys
from pathlib import Path
from types import FunctionType

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    target = sys.argv.pop(1)
    # What is logged about hostile peers would be most of the work.
    logging.disable(logging.CRITICAL)
    module = importlib.import_module(f"fuzz.fuzz_{target}")
    module.one_input(b"")  # imports what is imported late
    # atheris's import hook does not see through the loader of an editable install.
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and (found.__module__ or "").startswith("ze_ipc"):
            atheris.instrument_func(found)
    atheris.Setup(sys.argv, module.one_input)
    atheris.Fuzz()
