"""Libraries are judged by their files: what they export, what they need and do not find here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ze_ipc import elf, errors, loader

CC = shutil.which("gcc") or "cc"
USER = "int f(void); int g(void) { return f(); }"


def build(directory: Path, name: str, source: str, *flags: str) -> Path:
    target = directory / name
    (directory / f"{name}.c").write_text(source)
    command = [CC, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(target)]
    command += [str(directory / f"{name}.c"), *flags]
    subprocess.run(command, check=True, timeout=60)
    return target


def versioned(directory: Path, *versions: str) -> Path:
    """libnew.so.1 with a function f, of the last of the versions."""
    script = directory / "versions"
    blocks, before = [], ""
    for version in versions:
        blocks.append(
            f"{version} {{ {'global: f;' if version == versions[-1] else ''} }} {before};"
        )
        before = version
    script.write_text("\n".join(blocks))
    flag = f"-Wl,--version-script={script}"
    return build(directory, "libnew.so.1", "int f(void) { return 1; }", flag)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    loader._offered.cache_clear()
    return tmp_path


def test_a_library_that_loads(here: Path) -> None:
    versioned(here, "NEW_1.0", "NEW_2.0")
    source = "int f(void); int zeInit(void) { return f(); } static int hidden; int *g = &hidden;"
    build(here, "libuser.so.1.32.0", source, f"-L{here}", "-l:libnew.so.1")
    (here / "libuser.so.1").symlink_to("libuser.so.1.32.0")
    report = loader.inspect("libuser.so.1", {"zeInit": "1.0", "zeInitDrivers": "1.10"})
    assert report.loads, report.problem
    assert report.version == "1.32.0"
    assert report.path == str(here / "libuser.so.1.32.0")
    assert report.missing_entries == {"zeInitDrivers": "1.10"}
    facts = elf.read(here / "libuser.so.1")
    assert facts.needs["libnew.so.1"] == ("NEW_2.0",)
    assert "libnew.so.1" in facts.libraries
    assert {"zeInit", "g"} <= facts.exports
    assert "f" not in facts.exports
    assert elf.read(here / "libnew.so.1").offers >= {"NEW_1.0", "NEW_2.0"}


def test_a_version_that_this_system_lacks_is_named(here: Path) -> None:
    versioned(here, "NEW_1.0", "NEW_2.0")
    build(
        here,
        "libuser.so.1",
        "int f(void); int g(void) { return f(); }",
        f"-L{here}",
        "-l:libnew.so.1",
    )
    assert loader.inspect("libuser.so.1").loads
    versioned(here, "NEW_1.0")
    loader._offered.cache_clear()
    report = loader.inspect("libuser.so.1")
    assert not report.loads
    assert report.missing_versions == ("libnew.so.1: NEW_2.0",)
    assert "NEW_2.0" in report.problem


def test_a_library_that_is_missing_is_named(here: Path) -> None:
    versioned(here, "NEW_1.0")
    build(
        here,
        "libuser.so.1",
        "int f(void); int g(void) { return f(); }",
        f"-L{here}",
        "-l:libnew.so.1",
    )
    (here / "libnew.so.1").unlink()
    report = loader.inspect("libuser.so.1")
    assert (report.loads, report.missing_libraries) == (False, ("libnew.so.1",))


def test_nothing_there_and_no_library(here: Path) -> None:
    nothing = loader.inspect("libno-such-thing.so.1")
    assert (nothing.loads, nothing.path) == (False, "")
    (here / "libtext.so.1").write_text("INPUT(libc.so.6)")
    text = loader.inspect("libtext.so.1")
    assert not text.loads
    assert text.path
    with pytest.raises(errors.InvalidArgument):
        elf.read(here / "libtext.so.1")
    assert loader.first_found(["libno-such-thing.so.1", "libtext.so.1"]) == text


def test_a_damaged_library_is_refused_not_a_crash(here: Path) -> None:
    whole = versioned(here, "NEW_1.0").read_bytes()
    for size in (0, 4, 16, 63, 64, 200, len(whole) // 2, len(whole) - 70):
        (here / "libcut.so.1").write_bytes(whole[:size])
        assert not loader.inspect("libcut.so.1").loads


def test_names_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZEL_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", "/a/driver.so,libother.so.1")
    assert loader.loader_candidates()[0] == str(tmp_path / "libze_loader.so.1")
    assert loader.driver_candidates() == ["/a/driver.so", "libother.so.1"]
    monkeypatch.delenv("ZE_ENABLE_ALT_DRIVERS")
    assert loader.driver_candidates() == list(loader.DRIVERS)
