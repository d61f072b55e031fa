"""The libraries that are installed are hardened; the checker is shown red."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.hardening import weaknesses
from helpers.repository import ROOT
from ze_ipc import _mock

INSTALLED = Path(_mock.__file__).parent
LIBRARIES = sorted(INSTALLED.glob("*.so"))
SIMPLE = {"_buffer", "_dlpack", "_held"}
"""Modules that call nothing of which there is a fortified form."""
CALL = re.compile(r"^CALL(?:_KEPT)?\([^,]*, (\w+),", re.MULTILINE)


def test_all_of_them_are_looked_at() -> None:
    names = {path.name.split(".")[0] for path in LIBRARIES}
    assert {"_xe", "_ze", "_mock", "_buffer", "libxe_mock"} <= names


@pytest.mark.parametrize("path", LIBRARIES, ids=lambda path: path.name)
def test_a_library_is_hardened(path: Path) -> None:
    preloaded = None
    if path.name == "libxe_mock.so":
        calls = (ROOT / "native" / "preload" / "calls.def").read_text()
        preloaded = frozenset(CALL.findall(calls))
        assert "open" in preloaded
    found = weaknesses(path, preloaded)
    if path.name.split(".")[0] in SIMPLE:
        found = [line for line in found if line != "no fortified call"]
    assert found == []


GOOD = (
    "-shared -fPIC -O2 -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"
    " -fvisibility=hidden -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack"
)
SOURCE = """
#include <stdio.h>
#include <string.h>
void hidden(const char *text) { char copy[16]; strcpy(copy, text); puts(copy); }
__attribute__((visibility("default"))) void PyInit_x(const char *text) { hidden(text); }
"""


@pytest.mark.parametrize(
    ("before", "after", "weakness"),
    [
        ("", "", None),
        ("-Wl,-z,relro", "-Wl,-z,norelro", "no RELRO"),
        ("-Wl,-z,now", "-Wl,-z,lazy", "symbols are bound late, so RELRO is not full"),
        ("noexecstack", "execstack", "an executable stack"),
        ("-shared", "-shared -Wl,-rpath,/nowhere", "a search path of its own"),
        ("-fstack-protector-strong", "-fno-stack-protector", "no stack protector"),
        ("-D_FORTIFY_SOURCE=2", "", "no fortified call"),
        ("-fvisibility=hidden", "", "exports hidden"),
    ],
)
def test_a_weakness_is_found(tmp_path: Path, before: str, after: str, weakness: str | None) -> None:
    compiler = shutil.which("gcc") or "cc"
    library = tmp_path / "x.so"
    (tmp_path / "x.c").write_text(SOURCE)
    flags = GOOD.replace(before, after) if before else GOOD
    command = [compiler, *flags.split(), str(tmp_path / "x.c"), "-o", str(library)]
    subprocess.run(command, check=True, timeout=60)
    assert weaknesses(library) == ([weakness] if weakness else [])
