"""Debian packages by name, unpacked into a cache without installing anything and without root.

A private apt state (its own lists, sources and an empty dpkg status) resolves dependencies in a
suite that the machine itself does not use; the mirror is the machine's own. What is unpacked is
remembered by package version, so a second run asks nobody.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Unavailable(Exception):
    """This machine cannot provide what the run needs; the text says what."""


def cache_dir() -> Path:
    """Where everything that is fetched or made lives: $ZE_IPC_CACHE, else ~/.cache/ze_ipc."""
    base = os.environ.get("ZE_IPC_CACHE") or Path("~/.cache/ze_ipc").expanduser()
    path = Path(base) / "real-kernel"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds PATH as a lock file, so that two runs do not make the same thing at once."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, env=env, cwd=cwd, check=True, capture_output=True, text=True, timeout=900
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{command[0]} did not finish in 15 minutes") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "no message").splitlines()[-1]
        raise Unavailable(f"{' '.join(command[:3])}: {last}") from error
    return done.stdout


def _mirror() -> str:
    sites = _run(["apt-get", "indextargets", "--format", "$(SITE)"]).split()
    for site in sites:
        if site.rstrip("/").endswith("/debian"):
            return site
    raise Unavailable("apt knows no Debian mirror")


class Suite:
    """One Debian suite in the cache; `unpack` brings packages (with dependencies) into a folder."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._dir = cache_dir() / f"apt-{name}"

    def _env(self) -> dict[str, str]:
        return {**os.environ, "APT_CONFIG": str(self._dir / "apt.conf")}

    def _prepare(self) -> None:
        config = self._dir / "apt.conf"
        if (self._dir / "ready").exists():
            return
        for part in ("lists/partial", "archives/partial"):
            (self._dir / part).mkdir(parents=True, exist_ok=True)
        (self._dir / "status").touch()
        source = f"deb [signed-by={KEYRING}] {_mirror()} {self.name} main\n"
        (self._dir / "sources.list").write_text(source)
        where = self._dir
        config.write_text(
            f'Dir::State "{where}"; Dir::State::lists "{where}/lists";\n'
            f'Dir::State::status "{where}/status"; Dir::Cache "{where}";\n'
            f'Dir::Cache::archives "{where}/archives";\n'
            f'Dir::Etc::sourcelist "{where}/sources.list"; Dir::Etc::sourceparts "/dev/null";\n'
            f'Dir::Etc::preferencesparts "/dev/null"; APT::Sandbox::User "root";\n'
            'APT::Install-Recommends "0"; Acquire::Languages "none";\n'
        )
        _run(["apt-get", "update"], self._env())
        (self._dir / "ready").touch()

    def newest(self, pattern: str) -> str:
        """The name of the newest package whose whole name matches the regular expression."""
        self._prepare()
        names = _run(["apt-cache", "pkgnames"], self._env()).split()
        found = [name for name in names if re.fullmatch(pattern, name)]
        if not found:
            raise Unavailable(f"no package like {pattern} in {self.name}")
        return max(found, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])

    def unpack(self, into: Path, packages: list[str], dependencies: bool) -> list[str]:
        """Unpacks `packages` below `into`; returns their file names, which carry the versions."""
        mark = into / ("." + "+".join(packages).replace("/", "_")[:200])
        if mark.exists():
            return mark.read_text().split()
        self._prepare()
        into.mkdir(parents=True, exist_ok=True)
        for old in self._dir.glob("archives/*.deb"):
            old.unlink()  # of a run that was interrupted
        if dependencies:
            _run(["apt-get", "install", "-y", "--download-only", *packages], self._env())
        else:
            _run(["apt-get", "download", *packages], self._env(), self._dir / "archives")
        files = sorted(self._dir.glob("archives/*.deb"))
        for file in files:
            _run(["dpkg-deb", "-x", str(file), str(into)])
        names = [file.name for file in files]
        for file in files:
            file.unlink()
        mark.write_text("\n".join(names))
        return names
