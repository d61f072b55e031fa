"""The table of functions: what a loader lacks is named, and taken from a driver that has it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ze_ipc import errors, loader
from ze_ipc._ze import ffi, lib
from ze_ipc.level_zero import table as tables

HERE = Path(__file__).parent


def compiled(name: str, directory: Path) -> str:
    target = directory / f"{name}.so"
    command = [shutil.which("gcc") or "cc", "-shared", "-fPIC", "-o", str(target)]
    subprocess.run([*command, str(HERE / f"{name}.c")], check=True, timeout=60)
    return str(target)


@pytest.fixture
def old_loader(tmp_path: Path) -> tables.Table:
    return tables.Table(compiled("old_loader", tmp_path))


def test_every_type_is_what_the_compiler_says() -> None:
    typedefs, structs, unions = ffi.list_types()
    opaque = {"ze_space"}
    names = [*typedefs, *(f"struct {name}" for name in set(structs) - opaque)]
    assert len(names) > 60
    assert not unions
    for name in names:
        assert ffi.sizeof(name) > 0


def test_missing_entries_are_named_with_their_version(old_loader: tables.Table) -> None:
    missing = old_loader.missing()
    assert "zeInit" not in missing
    assert len(missing) == lib.ze_entry_count() - 2
    assert missing["zePhysicalMemGetProperties"] == "1.15"
    assert missing["zeInitDrivers"] == "1.10"
    assert old_loader.has("Init")
    assert not old_loader.has("InitDrivers")
    with pytest.raises(errors.UnsupportedFeature) as caught:
        old_loader.call("InitDrivers", ffi.NULL, ffi.NULL, ffi.NULL)
    assert caught.value.call == "zeInitDrivers"


def test_results_become_errors(old_loader: tables.Table) -> None:
    old_loader.call("Init", 1)
    with pytest.raises(errors.InvalidArgument) as caught:
        old_loader.call("Init", 2)
    assert caught.value.result == errors.Result.INVALID_ARGUMENT
    assert old_loader.result("MemFree", ffi.NULL, ffi.NULL) == 0x78000005


def test_an_old_loader_is_completed_by_its_driver(old_loader: tables.Table, tmp_path: Path) -> None:
    driver = compiled("new_driver", tmp_path)
    assert not old_loader.complete_from(driver), "it is not loaded yet"
    assert "zeMemGetIpcHandleWithProperties" in old_loader.missing()
    keep = ffi.dlopen(driver)
    assert old_loader.complete_from(driver)
    assert set(old_loader.from_driver) == {
        "zeMemGetIpcHandleWithProperties",
        "zePhysicalMemGetProperties",
    }
    null = ffi.NULL
    assert old_loader.result("MemGetIpcHandleWithProperties", null, null, null, null) == 15
    assert old_loader.result("PhysicalMemGetProperties", null, null, null) == 16
    assert "zeMemPutIpcHandle" in old_loader.missing()
    ffi.dlclose(keep)


def test_what_no_driver_implements_is_missing(old_loader: tables.Table, tmp_path: Path) -> None:
    (tmp_path / "driver").mkdir()
    driver, empty = compiled("new_driver", tmp_path), compiled("old_loader", tmp_path / "driver")
    keep = [ffi.dlopen(name) for name in (driver, empty)]
    old_loader.complete_from(driver)
    old_loader.trim([str(tmp_path / "not-loaded.so")])
    assert old_loader.has("PhysicalMemGetProperties")
    old_loader.trim([empty, driver])  # one of them has it
    assert old_loader.has("PhysicalMemGetProperties")
    old_loader.trim([empty])
    assert not old_loader.has("PhysicalMemGetProperties")
    assert not old_loader.has("MemGetIpcHandleWithProperties")
    for library in keep:
        ffi.dlclose(library)


def test_handles_of_the_loader_are_translated(old_loader: tables.Table) -> None:
    library = old_loader.library.encode()
    wrapped = ffi.cast("void *", 0x1001)
    assert int(ffi.cast("uintptr_t", lib.ze_raw_handle(library, 13, wrapped))) == 0x1000
    assert lib.ze_raw_handle(library, 99, wrapped) == wrapped
    assert lib.ze_raw_handle(b"no-such-library.so", 13, wrapped) == wrapped


def test_no_loader_is_a_device_not_visible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZEL_LIBRARY_PATH", str(tmp_path))
    assert loader.loader_candidates()[0] == str(tmp_path / "libze_loader.so.1")
    monkeypatch.setattr(loader, "LOADERS", ("libno-such-loader.so.1",))
    with pytest.raises(errors.DeviceNotVisible) as caught:
        tables.open_table()
    assert str(tmp_path) in str(caught.value.values["tried"])
