"""Read structs, function types and enumerators out of an object file's DWARF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

from abi_check.layout import Field, Layout, Struct

AGGREGATES = {"DW_TAG_structure_type", "DW_TAG_union_type"}
TRANSPARENT = {
    "DW_TAG_typedef",
    "DW_TAG_const_type",
    "DW_TAG_volatile_type",
    "DW_TAG_atomic_type",
}
ATE_SIGNED = {5, 6, 13}
ATE_UNSIGNED = {2, 7, 8, 14}
POINTER_BITS = 64


def read_types(path: Path) -> Layout:
    """Every named struct, every named pointer to a function (its arguments are its fields) and
    every enumerator that the object file describes.
    """
    layout = Layout()
    with path.open("rb") as stream:
        for unit in ELFFile(stream).get_dwarf_info().iter_CUs():
            for die in unit.iter_DIEs():
                if die.tag in AGGREGATES:
                    _add_struct(layout, _text(die, "DW_AT_name"), die)
                elif die.tag == "DW_TAG_typedef":
                    target = _resolve(die)
                    if target is not None and target.tag in AGGREGATES:
                        _add_struct(layout, _text(die, "DW_AT_name"), target)
                    elif target is not None and target.tag == "DW_TAG_pointer_type":
                        _add_function(layout, _text(die, "DW_AT_name"), _resolve(target))
                elif die.tag == "DW_TAG_enumerator":
                    value = int(die.attributes["DW_AT_const_value"].value)
                    layout.constants[_text(die, "DW_AT_name")] = value % 2**64
    return layout


def _add_struct(layout: Layout, name: str, die: DIE) -> None:
    if name and "DW_AT_byte_size" in die.attributes:
        size = int(die.attributes["DW_AT_byte_size"].value)
        layout.structs[name] = Struct(name, size, tuple(_fields(die, "", 0)))


def _add_function(layout: Layout, name: str, die: DIE | None) -> None:
    if not name or die is None or die.tag != "DW_TAG_subroutine_type":
        return
    arguments = [child for child in die.iter_children() if child.tag == "DW_TAG_formal_parameter"]
    fields, offset = [], 0
    # The result first, as an argument of its own.
    for label, what in [("result", die), *((f"argument {i}", d) for i, d in enumerate(arguments))]:
        width, element, signed = _measure(_resolve(what))
        fields.append(Field(label, offset, width, element, signed))
        offset += width
    layout.structs[name] = Struct(name, offset // 8, tuple(fields), is_function=True)


def _fields(die: DIE, prefix: str, base: int) -> Iterator[Field]:
    for member in die.iter_children():
        if member.tag != "DW_TAG_member":
            continue
        name = _text(member, "DW_AT_name")
        offset = base + _bit_offset(member)
        target = _resolve(member)
        nameless = target is not None and target.tag in AGGREGATES and not _typename(member)
        if nameless and target is not None:
            yield from _fields(target, f"{prefix}{name}." if name else prefix, offset)
            continue
        width, element, signed = _measure(target)
        if "DW_AT_bit_size" in member.attributes:
            width = element = int(member.attributes["DW_AT_bit_size"].value)
        yield Field(prefix + name, offset, width, element, signed)


def _bit_offset(member: DIE) -> int:
    if "DW_AT_data_bit_offset" in member.attributes:
        return int(member.attributes["DW_AT_data_bit_offset"].value)
    if "DW_AT_data_member_location" in member.attributes:
        return 8 * int(member.attributes["DW_AT_data_member_location"].value)
    return 0


def _measure(target: DIE | None) -> tuple[int, int, bool | None]:
    """Width, element width (bits) and sign of a type without its typedefs."""
    if target is None:
        return 0, 0, None
    if target.tag == "DW_TAG_array_type":
        _, element, signed = _measure(_resolve(target))
        count = 1
        for dimension in target.iter_children():
            if dimension.tag == "DW_TAG_subrange_type":
                count *= _count(dimension)
        return element * count, element, signed
    if target.tag == "DW_TAG_pointer_type":
        return POINTER_BITS, POINTER_BITS, None
    width = 8 * int(target.attributes["DW_AT_byte_size"].value)
    signed = None
    if target.tag == "DW_TAG_base_type":
        encoding = int(target.attributes["DW_AT_encoding"].value)
        signed = True if encoding in ATE_SIGNED else False if encoding in ATE_UNSIGNED else None
    return width, width, signed


def _count(dimension: DIE) -> int:
    if "DW_AT_count" in dimension.attributes:
        return int(dimension.attributes["DW_AT_count"].value)
    if "DW_AT_upper_bound" in dimension.attributes:
        return int(dimension.attributes["DW_AT_upper_bound"].value) + 1
    return 0


def _resolve(die: DIE) -> DIE | None:
    """The type of DIE, seen through typedefs and qualifiers."""
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag not in TRANSPARENT:
            return die
    return None


def _typename(member: DIE) -> str:
    """The name that the type of MEMBER has on the way through its typedefs, if any."""
    die = member
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        if name := _text(die, "DW_AT_name"):
            return name
        if die.tag not in TRANSPARENT:
            break
    return ""


def _text(die: DIE, attribute: str) -> str:
    value = die.attributes[attribute].value if attribute in die.attributes else b""
    return value.decode() if isinstance(value, bytes) else str(value)
