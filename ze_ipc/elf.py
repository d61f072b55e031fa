"""What a shared library is and needs, read from its file without loading it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ze_ipc.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

    from elftools.elf.elffile import ELFFile


@dataclass(frozen=True, slots=True)
class ElfFacts:
    """One library."""

    path: Path
    """The file itself, behind all links."""
    soname: str
    """Empty where it has none."""
    machine: str
    """As in ``EM_X86_64``."""
    exports: frozenset[str]
    """Names of the functions and objects that it defines for others."""
    libraries: tuple[str, ...]
    """Sonames of what it is linked with."""
    needs: dict[str, tuple[str, ...]]
    """Symbol versions by the soname of the library that must have them."""
    offers: frozenset[str]
    """Symbol versions that it defines."""

    @property
    def version(self) -> str:
        """What follows ``.so.`` in the name of the file, or empty."""
        return self.path.name.partition(".so.")[2]


def read(path: Path) -> ElfFacts:
    """The facts of one file; InvalidArgument when it is no shared library, OSError as open()."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        try:
            elf = ELFFile(stream)
            libraries, soname = _dynamic(elf)
            return ElfFacts(
                path=path.resolve(),
                soname=soname,
                machine=str(elf["e_machine"]),
                exports=_exports(elf),
                libraries=libraries,
                needs=_needs(elf),
                offers=_offers(elf),
            )
        except (ELFError, ValueError, KeyError) as error:
            raise InvalidArgument(
                f"it is no shared library: {error}",
                path=str(path),
                hint="reinstall the package that it belongs to",
            ) from error


def _dynamic(elf: ELFFile) -> tuple[tuple[str, ...], str]:
    from elftools.elf.dynamic import DynamicSection

    section = elf.get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        raise ValueError("it has no dynamic section")
    tags = list(section.iter_tags())
    named = {
        kind: [str(getattr(tag, name)) for tag in tags if tag.entry.d_tag == kind]
        for kind, name in (("DT_NEEDED", "needed"), ("DT_SONAME", "soname"))
    }
    return tuple(named["DT_NEEDED"]), "".join(named["DT_SONAME"])


def _exports(elf: ELFFile) -> frozenset[str]:
    from elftools.elf.sections import SymbolTableSection

    section = elf.get_section_by_name(".dynsym")
    if not isinstance(section, SymbolTableSection):
        return frozenset()
    return frozenset(
        symbol.name
        for symbol in section.iter_symbols()
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
    )


def _needs(elf: ELFFile) -> dict[str, tuple[str, ...]]:
    from elftools.elf.gnuversions import GNUVerNeedSection

    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return {}
    return {
        str(needed.name): tuple(str(version.name) for version in versions)
        for needed, versions in section.iter_versions()
    }


def _offers(elf: ELFFile) -> frozenset[str]:
    from elftools.elf.gnuversions import GNUVerDefSection

    section = elf.get_section_by_name(".gnu.version_d")
    if not isinstance(section, GNUVerDefSection):
        return frozenset()
    # The first name of an entry is its own; the others are those it builds upon.
    return frozenset(str(next(iter(names)).name) for _, names in section.iter_versions())
