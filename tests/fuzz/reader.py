"""Bytes of a fuzzer's input taken one after another, zeros at its end."""

from __future__ import annotations


class Reader:
    """Gives an input away in parts."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return max(0, len(self._data) - self._at)

    def raw(self, size: int) -> bytes:
        """As many bytes as there still are, ``size`` at most."""
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def number(self, size: int = 1) -> int:
        """A number of ``size`` bytes."""
        return int.from_bytes(self.raw(size), "little")

    def rest(self) -> bytes:
        """All that is left."""
        return self.raw(self.left)
