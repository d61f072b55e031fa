"""Constants and struct layouts read from ioctl/xe_uapi.cdef, which C and cffi parse, too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CDEF = Path(__file__).parents[4] / "ioctl" / "xe_uapi.cdef"
_BASIC = {
    "uint8_t": 1, "int8_t": 1, "char": 1, "uint16_t": 2, "int16_t": 2, "uint32_t": 4, "int32_t": 4,
    "int": 4, "uint64_t": 8, "int64_t": 8, "size_t": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A scalar of a struct: bytes from its start, and bytes wide."""

    offset: int
    width: int

    def __str__(self) -> str:
        return f"{self.offset}:{self.width}"


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct's scalars by dotted path; elements of an array are `name[0]`, ..."""

    name: str
    size: int
    align: int
    fields: dict[str, Field]

    def __getitem__(self, path: str) -> Field:
        return self.fields[path]


@dataclass(frozen=True, slots=True)
class _Member:
    width: int
    align: int
    fields: dict[str, Field]


class Uapi:
    """The parsed file: `constants` by name, `structs` by name without "struct"."""

    def __init__(self, path: Path = CDEF) -> None:
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        self.constants = {
            name: int(value, 0)
            for name, value in re.findall(r"^#define (\w+) (-?\w+)$", text, re.MULTILINE)
        }
        self.structs: dict[str, Struct] = {}
        self._tokens: list[str] = re.findall(
            r"\w+|[{};\[\]*]", re.sub(r"^#.*$", "", text, flags=re.M)
        )
        self._at = 0
        while self._at < len(self._tokens):
            if self._tokens[self._at] == "struct" and self._tokens[self._at + 2] == "{":
                name = self._tokens[self._at + 1]
                self._at += 3
                body = self._body(union=False)
                self.structs[name] = Struct(name, body.width, body.align, body.fields)
            self._at += 1

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _member(self) -> _Member:
        kind = self._take()
        if kind in ("struct", "union"):
            name = self._take()
            if name == "{":
                return self._body(kind == "union")
            inner = self.structs[name]
            member = _Member(inner.size, inner.align, inner.fields)
        else:
            member = _Member(_BASIC[kind], _BASIC[kind], {"": Field(0, _BASIC[kind])})
        if self._tokens[self._at] == "*":
            self._at += 1
            return _Member(8, 8, {"": Field(0, 8)})
        return member

    def _count(self) -> int | None:
        """The number of elements if an array's bounds come next; None if they do not."""
        if self._tokens[self._at] != "[":
            return None
        self._at += 1
        if self._tokens[self._at] == "]":
            self._at += 1
            return 0
        count = int(self._take(), 0)
        self._at += 1
        return count

    def _body(self, union: bool) -> _Member:
        """Everything up to the closing brace, which is consumed."""
        end = size = 0
        align = 1
        fields: dict[str, Field] = {}
        while self._tokens[self._at] != "}":
            member = self._member()
            name = "" if self._tokens[self._at] == ";" else self._take()
            count = self._count()
            self._at += 1  # the semicolon
            align = max(align, member.align)
            start = 0 if union else -(-end // member.align) * member.align
            for index in range(1 if count is None else count):
                prefix = name if count is None else f"{name}[{index}]"
                for path, scalar in member.fields.items():
                    key = ".".join(part for part in (prefix, path) if part)
                    offset = start + index * member.width + scalar.offset
                    fields[key] = Field(offset, scalar.width)
            end = start + (1 if count is None else count) * member.width
            size = max(size, end)
        self._at += 1
        return _Member(-(-size // align) * align, align, fields)


UAPI = Uapi()
