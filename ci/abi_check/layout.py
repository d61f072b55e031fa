"""What a compiled header says: structs with their fields, and constants with their values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Field:
    """One named member, however deep in unnamed structs and unions it was written."""

    name: str
    """Dotted where an enclosing member has a name but its type has none."""
    offset: int
    """Bits from the start of the struct."""
    width: int
    """Bits; 0 for a flexible array."""
    element: int
    """Bits of one element: the width, but for an array."""
    signed: bool | None
    """None where a sign means nothing: structs, pointers, enumerations."""

    @property
    def is_padding(self) -> bool:
        """Whether a later header may give this room to a new field."""
        last = self.name.rpartition(".")[2]
        return last.rstrip("0123456789") in {"pad", "reserved", "rsvd", "mbz"}

    @property
    def bits(self) -> range:
        """The bits it covers."""
        return range(self.offset, self.offset + self.width)


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct or union; or a pointer to a function, with its result and arguments as fields."""

    name: str
    size: int
    """Bytes."""
    fields: tuple[Field, ...]
    is_function: bool = False
    """Whether it may not grow."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything one side declares, by name."""

    structs: dict[str, Struct] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    """Values modulo 2**64."""
