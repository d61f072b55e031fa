"""The committed inputs of the targets in Python, and some random ones, without a fuzzer; those in C
are run by tests/native.
"""

from __future__ import annotations

import importlib
import random
from pathlib import Path

import pytest

from fuzzing import targets

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", targets.IN_PYTHON)
def test_inputs(name: str) -> None:
    target = importlib.import_module(f"fuzz.fuzz_{name}")
    random_bytes = random.Random(name)
    inputs = [path.read_bytes() for path in sorted((HERE / "corpus" / name).iterdir())]
    assert inputs
    inputs += [random_bytes.randbytes(random_bytes.randrange(400)) for _ in range(100)]
    try:
        for data in inputs:
            target.one_input(data)
    finally:
        getattr(target, "finish", lambda: None)()


def test_corpora_are_small() -> None:
    sizes = {path: path.stat().st_size for path in (HERE / "corpus").rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 200_000
    assert {path.parent.name for path in sizes} == {*targets.IN_C, *targets.IN_PYTHON}
