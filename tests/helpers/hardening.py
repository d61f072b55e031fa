"""What the linker and the compiler were asked for, read from a shared library."""

from __future__ import annotations

from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

_BIND_NOW, _NOW = 0x8, 0x1
_EXECUTABLE = 1


def weaknesses(path: Path, may_export: frozenset[str] | None = None) -> list[str]:
    """A line for each protection that the library lacks.

    ``may_export`` None: what Python looks up in an extension module, and nothing else.
    """
    with path.open("rb") as file:
        elf = ELFFile(file)
        segments = {segment["p_type"]: segment for segment in elf.iter_segments()}
        dynamic = next(part for part in elf.iter_sections() if isinstance(part, DynamicSection))
        tags = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic.iter_tags()}
        symbols = elf.get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        defined, undefined = set(), set()
        for symbol in symbols.iter_symbols():
            missing = symbol["st_shndx"] == "SHN_UNDEF"
            (undefined if missing else defined).add(symbol.name)
        stack = segments.get("PT_GNU_STACK")
        found = []
        if "PT_GNU_RELRO" not in segments:
            found.append("no RELRO")
        if not (tags.get("DT_FLAGS", 0) & _BIND_NOW or tags.get("DT_FLAGS_1", 0) & _NOW):
            found.append("symbols are bound late, so RELRO is not full")
        if stack is None or stack["p_flags"] & _EXECUTABLE:
            found.append("an executable stack")
        if "DT_TEXTREL" in tags:
            found.append("relocations in its code")
        if {"DT_RPATH", "DT_RUNPATH"} & set(tags):
            found.append("a search path of its own")
        if "__stack_chk_fail" not in undefined:
            found.append("no stack protector")
        if not any(name.endswith("_chk") for name in undefined):
            found.append("no fortified call")
        ours = ("PyInit_", "_cffi_pypyinit_") if may_export is None else ()
        more = sorted(defined - (may_export or frozenset()) - {""})
        found += [f"exports {name}" for name in more if not name.startswith(ours)]
        return found
