"""C programs compiled into the cache, found again by what they are made of.

The name of an output carries a digest of everything it was made from, so checkouts share the cache
without taking each other's programs, and several processes may ask at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .packages import Unavailable, cache_dir


def compiled(
    name: str, sources: Sequence[Path], flags: Sequence[str], more: Iterable[Path]
) -> Path:
    """The program made of `sources`, which include `more`; the flags follow the sources."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        raise Unavailable("no C compiler")
    total = hashlib.sha256(" ".join([compiler, *flags]).encode())
    for path in sorted({*sources, *more}):
        if path.is_file():
            total.update(path.name.encode() + b"\0" + path.read_bytes())
    folder = cache_dir() / "programs"
    folder.mkdir(exist_ok=True)
    output = folder / f"{name}-{total.hexdigest()[:16]}"
    if output.exists():
        return output
    with tempfile.TemporaryDirectory(dir=folder) as place:
        part = Path(place) / name
        command = [compiler, "-std=gnu11", "-o", str(part), *map(str, sources), *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"{name} does not compile: {done.stderr.strip()[-2000:]}")
        part.rename(output)
    return output


def compile_static(source: Path) -> Path:
    """A guest program: static, so that it needs nothing in the guest."""
    flags = ("-O2", "-static", "-Wall", "-Wextra", "-Werror")
    return compiled(source.stem, [source], flags, ())
