"""The layers of ze_ipc and who may import whom, read from the source by ast."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LEAVES = 0
"""errors, fds and what they need: usable by all."""

LAYER_OF = {
    # name under ze_ipc -> layer; a package's name stands for all of it
    "result": LEAVES,
    "errors": LEAVES,
    "os_errors": LEAVES,
    "fds": LEAVES,
    "_buffer": LEAVES,
    "_dlpack": LEAVES,
    "elf": LEAVES,
    "threads": LEAVES,
    "loader": LEAVES,
    "_held": 0,
    "_ze": 0,
    "_xe": 0,
    "_mock": 0,
    "backend": 1,
    "desk": 1,
    "xe": 1,
    "level_zero": 1,
    "mock": 1,
    "lanes": 2,
    "columns": 2,
    "intervals": 2,
    "chunked_rows": 2,
    "mapping_table": 2,
    "walk": 2,
    "overlay": 2,
    "manifest": 2,
    "handle": 2,
    "host": 3,
    "pidfd": 3,
    "importer": 3,
    "policy": 3,
    "socket_dir": 3,
    "transport": 3,
    "share": 4,
    "open_device": 4,
    "device": 4,
    "cli": 5,
    "__main__": 5,
    "pytest_plugin": 5,
    "interop": 5,
}
PREFIXES = {"broker": 3, "transport": 3}
"""Layers of modules by the beginning of their names."""
DEFAULT_LAYER = 4
"""A module that the table does not name: one of the owners above broker and transport."""

FOREIGN = {"_held", "_ze", "_xe", "_mock"}
MAY_USE_FOREIGN = {"xe", "level_zero", "mock"}
MAY_USE_LIBC = {"pidfd", "security", "mock_chroot", "interop"}
"""Modules that make a system call for which Python has no function; all others stay off ctypes."""
PURE_LAYER = 2
IMPURE = {"os", "socket", "fcntl", "select", "selectors", "threading", "subprocess", "mmap"}
"""What a pure module has no business with."""
ROOT = "ze_ipc"


@dataclass(frozen=True)
class Violation:
    """An import that goes up, or that only others may do."""

    module: str
    imported: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.imported}: {self.why}"


def layer_of(name: str) -> int:
    """The layer of a name under ze_ipc."""
    if name in LAYER_OF:
        return LAYER_OF[name]
    for prefix, layer in PREFIXES.items():
        if name.startswith(prefix):
            return layer
    return DEFAULT_LAYER


def modules(package: Path) -> Iterator[tuple[str, Path]]:
    """(name under the package, file) of every Python file but the package's own __init__."""
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).with_suffix("").parts
        if name != ("__init__",):
            yield ".".join(part for part in name if part != "__init__"), path


def imports(source: str, module: str) -> Iterator[tuple[str, int]]:
    """(absolute dotted name, line) of everything a module imports when it runs, in functions too.

    Imports for type checkers only are facts about annotations, not dependencies.
    """
    tree = ast.parse(source)
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for child in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = f"{ROOT}.{module}".split(".")[: -node.level]
                base = ".".join([*parents, *filter(None, [base])])
            if base == ROOT:
                yield from ((f"{ROOT}.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield base, node.lineno


def violations(source: str, module: str) -> list[Violation]:
    """What is wrong with the imports of one module of the package."""
    own = module.split(".")[0]
    layer = layer_of(own)
    found = []
    for name, line in imports(source, module):
        top, _, rest = name.partition(".")
        if top != ROOT:
            if top in ("cffi", "ctypes") and own not in MAY_USE_FOREIGN | MAY_USE_LIBC:
                found.append(Violation(module, name, line, "no foreign functions above backends"))
            if layer == PURE_LAYER and top in IMPURE:
                found.append(Violation(module, name, line, "a pure module does no I/O"))
            continue
        imported = rest.split(".")[0]
        if not imported:
            found.append(Violation(module, name, line, "import the module, not the package"))
        elif imported in FOREIGN and own not in MAY_USE_FOREIGN:
            found.append(Violation(module, name, line, "only backends use foreign code"))
        elif imported != own and layer_of(imported) > layer:
            why = f"layer {layer} imports layer {layer_of(imported)}"
            found.append(Violation(module, name, line, why))
    return found
