"""Compare two layouts: ours, and what a header says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from abi_check.layout import Field, Layout, Struct

IOCTL = re.compile(r"_IOCTL_|_IOC_")
# Where an ioctl number carries the size of its argument.
SIZE_SHIFT, SIZE_MASK = 16, 0x3FFF


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing in which a header and our declarations are not the same."""

    kind: str
    """`disagrees`: never allowed. `absent`: the header lacks it. `newer`: we lack it."""
    subject: str
    """A constant, a struct, or `struct.field`."""
    text: str

    @property
    def is_error(self) -> bool:
        """Whether no version of the header may say this."""
        return self.kind == "disagrees"


def compare(ours: Layout, theirs: Layout) -> list[Finding]:
    """Everything that THEIRS says otherwise about what OURS declares."""
    findings = list(_compare_constants(ours, theirs))
    for name, struct in ours.structs.items():
        other = theirs.structs.get(name)
        if other is None:
            findings.append(Finding("absent", name, "no such struct"))
        else:
            findings += _compare_structs(struct, other)
    return findings


def _compare_constants(ours: Layout, theirs: Layout) -> Iterator[Finding]:
    for name, value in ours.constants.items():
        other = theirs.constants.get(name)
        if other is None:
            yield Finding("absent", name, "no such constant")
        elif other != value and _is_grown_ioctl(name, value, other, ours, theirs):
            yield Finding("absent", name, f"{other:#x}, for a struct that has grown since")
        elif other != value:
            yield Finding("disagrees", name, f"ours {value:#x}, theirs {other:#x}")


def _is_grown_ioctl(name: str, value: int, other: int, ours: Layout, theirs: Layout) -> bool:
    """Whether two ioctl numbers are the same but for the size of a struct that has grown."""
    if not IOCTL.search(name) or (value ^ other) & ~(SIZE_MASK << SIZE_SHIFT):
        return False
    sizes = tuple((number >> SIZE_SHIFT) & SIZE_MASK for number in (value, other))
    return any(
        sizes == (struct.size, theirs.structs[key].size)
        and not any(f.is_error for f in _compare_structs(struct, theirs.structs[key]))
        for key, struct in ours.structs.items()
        if key in theirs.structs
    )


def _compare_structs(ours: Struct, theirs: Struct) -> Iterator[Finding]:
    mine = {field.name: field for field in ours.fields}
    other = {field.name: field for field in theirs.fields}
    only_ours = [field for field in ours.fields if field.name not in other]
    only_theirs = [field for field in theirs.fields if field.name not in mine]
    new_ours = [field for field in only_ours if not field.is_padding]
    new_theirs = [field for field in only_theirs if not field.is_padding]
    grown = bool(new_ours or new_theirs)
    if (ours.is_function or theirs.is_function) and len(ours.fields) != len(theirs.fields):
        text = f"arguments: ours {len(ours.fields) - 1}, theirs {len(theirs.fields) - 1}"
        yield Finding("disagrees", ours.name, text)
        return

    for field in ours.fields:
        if field.name not in other or (grown and field.is_padding):
            continue
        text = _difference(field, other[field.name])
        if text:
            yield Finding("disagrees", f"{ours.name}.{field.name}", text)
    for field in new_ours:
        yield from _judge_new("absent", ours, theirs, field)
    for field in new_theirs:
        yield from _judge_new("newer", theirs, ours, field)
    if not grown:
        for field in only_ours + only_theirs:
            where = "ours" if field in only_ours else "theirs"
            yield Finding("disagrees", f"{ours.name}.{field.name}", f"only in {where}")
    else:
        yield from _compare_padding(ours, theirs, new_ours, new_theirs)
    if ours.size != theirs.size and not _explained_by_tail(ours, theirs, new_ours, new_theirs):
        text = f"size: ours {ours.size}, theirs {theirs.size}"
        yield Finding("disagrees", ours.name, text)


def _difference(ours: Field, theirs: Field) -> str:
    parts = []
    for what in ("offset", "width", "element"):
        mine, other = getattr(ours, what), getattr(theirs, what)
        if mine != other:
            parts.append(f"{what}: ours {_bits(mine)}, theirs {_bits(other)}")
    if None not in (ours.signed, theirs.signed) and ours.signed != theirs.signed:
        parts.append(f"sign: ours {_sign(ours)}, theirs {_sign(theirs)}")
    return "; ".join(parts)


def _judge_new(kind: str, has: Struct, lacks: Struct, new: Field) -> Iterator[Finding]:
    """A field that one side lacks must lie in that side's padding, or past its end."""
    covered = _cover(field for field in lacks.fields if not field.is_padding)
    common = {field.name for field in has.fields} & {field.name for field in lacks.fields}
    # A new member of a union lies over what was there before, in both.
    shared = _cover(field for field in has.fields if field.name in common and not field.is_padding)
    clash = covered & set(new.bits) - shared
    name = f"{has.name}.{new.name}"
    if clash:
        yield Finding("disagrees", name, f"lies over another field at byte {min(clash) // 8}")
    else:
        yield Finding(kind, name, "no such field" if kind == "absent" else "not declared by us")


def _compare_padding(
    ours: Struct, theirs: Struct, new_ours: list[Field], new_theirs: list[Field]
) -> Iterator[Finding]:
    mine = _cover(field for field in ours.fields if field.is_padding) - _cover(new_theirs)
    other = _cover(field for field in theirs.fields if field.is_padding) - _cover(new_ours)
    common_end = 8 * min(ours.size, theirs.size)
    wrong = {bit for bit in mine ^ other if bit < common_end}
    if wrong:
        text = f"padding differs at byte {min(wrong) // 8}"
        yield Finding("disagrees", ours.name, text)


def _explained_by_tail(
    ours: Struct, theirs: Struct, new_ours: list[Field], new_theirs: list[Field]
) -> bool:
    """Whether the longer side is longer by the fields that only it has, and by nothing else."""
    longer, new = (ours, new_ours) if ours.size > theirs.size else (theirs, new_theirs)
    tail = set(range(8 * min(ours.size, theirs.size), 8 * longer.size))
    padding = [field for field in longer.fields if field.is_padding]
    return bool(new) and tail <= _cover([*new, *padding])


def _cover(fields: Iterator[Field] | list[Field]) -> set[int]:
    return {bit for field in fields for bit in field.bits}


def _bits(count: int) -> str:
    return f"{count // 8} bytes" if count % 8 == 0 else f"{count} bits"


def _sign(field: Field) -> str:
    return "signed" if field.signed else "unsigned"
