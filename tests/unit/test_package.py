"""The package's face: every name is there, and none costs anything before it is used."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import ze_ipc


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize("name", ze_ipc.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(ze_ipc, name)
    assert callable(value)
    assert value.__name__ == name
    assert name in dir(ze_ipc)


def test_the_names_for_type_checkers_are_the_names_at_run_time() -> None:
    assert sorted(ze_ipc._HOME) == sorted(ze_ipc.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = ze_ipc.nothing  # type: ignore[attr-defined]
    assert not hasattr(ze_ipc, "TYPE")


@pytest.mark.parametrize(
    "first",
    ["import ze_ipc.open_device", "from ze_ipc.open_device import list_devices", "import ze_ipc"],
)
def test_a_module_does_not_hide_the_function_of_its_name(first: str) -> None:
    code = f"{first}; import ze_ipc; print(type(ze_ipc.open_device).__name__)"
    assert python(code).strip() == "function"


def test_all_names_come_with_a_star() -> None:
    assert python("from ze_ipc import *; print(type(open_device).__name__)").strip() == "function"


@pytest.mark.parametrize("module", ["ze_ipc", "ze_ipc.pytest_plugin"])
def test_importing_it_imports_no_device_code(module: str) -> None:
    loaded = set(python(f"import sys, {module}; print(*sys.modules)").split())
    assert {name for name in loaded if name.startswith("ze_ipc")} <= {"ze_ipc", module}
    assert not {"cffi", "rich", "psutil", "_cffi_backend"} & loaded


def test_the_package_is_pickled_by_its_name() -> None:
    """cloudpickle does that with what functions of a program use."""
    assert pickle.loads(pickle.dumps(ze_ipc)) is ze_ipc
