"""The real driver's answers, kept beside the scripts: what any machine can compare the mock with.

One compressed file a device, written by the `record` command from the answers of earlier runs. An
answer is found by the text of its script, so a script that was changed has none until it is
recorded again.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path

from .script import Script

FOLDER = Path(__file__).parent.parent / "recorded"


def key(script: Script) -> str:
    return hashlib.sha256(str(script).encode()).hexdigest()[:20]


def path(device: str) -> Path:
    return FOLDER / f"{device}.json.xz"


def write(device: str, versions: Iterable[str], answers: Mapping[Script, list[str]]) -> int:
    """Writes the file; returns how many scripts it has."""
    FOLDER.mkdir(exist_ok=True)
    rows = {key(script): "\n".join(lines) for script, lines in answers.items()}
    text = json.dumps({"versions": list(versions), "answers": dict(sorted(rows.items()))})
    path(device).write_bytes(lzma.compress(text.encode(), preset=9))
    return len(rows)


class Recorded:
    """The answers of one device; `versions` names the packages they come from."""

    def __init__(self, device: str) -> None:
        data = json.loads(lzma.decompress(path(device).read_bytes()))
        self.versions: list[str] = data["versions"]
        self._answers: dict[str, str] = data["answers"]

    def get(self, script: Script) -> list[str] | None:
        text = self._answers.get(key(script))
        return None if text is None else text.split("\n")
