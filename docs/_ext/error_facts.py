"""Adds to each error class of the reference its Level Zero code and its hint, from the class."""

from __future__ import annotations

from typing import Any

from ze_ipc.errors import ZeIpcError


def _add_facts(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what != "exception" or not (isinstance(obj, type) and issubclass(obj, ZeIpcError)):
        return
    lines += ["", f":Level Zero code: ``ZE_RESULT {obj.default_result.name}``"]
    if obj.default_hint:
        lines += [f":What fixes it: {obj.default_hint}"]
    lines += [""]


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _add_facts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
