"""Compile a probe that includes headers, and read back what they declare."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from abi_check.dwarf import read_types
from abi_check.layout import Layout

MACRO = re.compile(r"^#define[ \t]+([A-Za-z_]\w*)(?=\s|$)", re.MULTILINE)
# All types of a header, whether a variable has them or not.
TYPES = ("-g", "-gdwarf-4", "-gno-strict-dwarf", "-fno-eliminate-unused-debug-types")


class CompileError(Exception):
    """The compiler refused a probe; the message is what it said."""


def declared_macros(path: Path) -> list[str]:
    """The names that a declarations file #defines, in its order."""
    return MACRO.findall(path.read_text())


def probe(
    includes: Sequence[str], search: Sequence[Path], macros: Iterable[str], scratch: Path
) -> Layout:
    """Everything that INCLUDES declare, with the values of those MACROS that they define.

    SEARCH holds the include directories that come before the compiler's own; SCRATCH is an
    empty directory for the probe's files.
    """
    head = "".join(f"#include {name}\n" for name in includes)
    flags = [item for path in search for item in ("-isystem", str(path))]
    types = scratch / "types.o"
    _compile(head + "int abi_probe;\n", [*flags, *TYPES, "-c", "-o", str(types)], scratch)
    layout = read_types(types)

    defined = set(MACRO.findall(_compile(head, [*flags, "-E", "-dM"], scratch)))
    wanted = sorted(set(macros) & defined)
    lines = [
        f"const unsigned long long abi_{name} = (unsigned long long)({name});\n" for name in wanted
    ]
    values = scratch / "values.o"
    _compile(head + "".join(lines), [*flags, "-c", "-o", str(values)], scratch)
    layout.constants.update(_read_values(values))
    return layout


def _compile(text: str, flags: Sequence[str], scratch: Path) -> str:
    source = scratch / "probe.c"
    source.write_text(text)
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-std=gnu11", "-O0", "-fno-lto", *flags, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(done.stderr)
    return done.stdout


def _read_values(path: Path) -> dict[str, int]:
    values: dict[str, int] = {}
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        symbols = elf.get_section_by_name(".symtab")
        assert isinstance(symbols, SymbolTableSection)
        for symbol in symbols.iter_symbols():
            index = symbol["st_shndx"]
            if symbol.name.startswith("abi_") and isinstance(index, int):
                offset = symbol["st_value"]
                section = elf.get_section(index)
                zero = section["sh_type"] == "SHT_NOBITS"
                data = bytes(8) if zero else section.data()[offset : offset + 8]
                values[symbol.name.removeprefix("abi_")] = struct.unpack("<Q", data)[0]
    return values
