"""Packages of other Debian suites, from the mirror that this machine's own apt uses."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FRESH_SECONDS = 24 * 3600


class NoPackages(Exception):
    """This machine cannot fetch Debian packages; the message says why."""


def cache_directory() -> Path:
    """Where things that are made once live: outside every checkout."""
    if own := os.environ.get("ZE_IPC_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ze_ipc"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold PATH as a lock file, so that two runs do not make the same thing at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mirror() -> str:
    """The address of the Debian archive in this machine's apt configuration."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(COMPONENT)|$(REPO_URI)"]
    try:
        found = subprocess.run(
            [*command, "Created-By: Packages"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoPackages(f"apt-get does not work here: {error}") from error
    for line in found.stdout.splitlines():
        origin, component, address = line.split("|", 2)
        if (origin, component) == ("Debian", "main") and "security" not in address:
            return address.rstrip("/")
    raise NoPackages("apt's configuration names no Debian archive (or its lists are empty)")


@dataclass(frozen=True, slots=True)
class AptRoot:
    """A private apt state for foreign suites; the machine's own is never touched."""

    root: Path
    """A directory of ours."""
    suites: tuple[str, ...]

    def update(self, *, force: bool = False) -> None:
        """Fetch the package lists unless they are younger than a day."""
        stamp = self.root / "updated"
        if not force and stamp.exists() and time.time() - stamp.stat().st_mtime < FRESH_SECONDS:
            return
        for name in ("lists/partial", "cache/archives/partial", "etc"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "status").touch()
        signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
        address = mirror()
        lines = [f"deb {signed}{address} {suite} main\n" for suite in self.suites]
        (self.root / "sources.list").write_text("".join(lines))
        done = self._apt("apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any")
        if done.returncode != 0:
            raise NoPackages(f"the package lists cannot be fetched: {_last_line(done)}")
        stamp.touch()

    def version(self, package: str, suite: str) -> str:
        """The version of PACKAGE that SUITE has."""
        done = self._apt("apt-cache", "madison", package)
        for line in done.stdout.splitlines():
            _, version, source = (part.strip() for part in line.split("|"))
            if f" {suite}/" in source:
                return version
        raise NoPackages(f"{suite} has no {package}")

    def unpack(self, package: str, suite: str, into: Path) -> Path:
        """Download PACKAGE of SUITE and unpack it, once a version; no installation."""
        version = self.version(package, suite)
        tree = into / f"{package}_{version}"
        if tree.is_dir():
            return tree
        into.mkdir(parents=True, exist_ok=True)
        archives = self.root / "debs"
        archives.mkdir(exist_ok=True)
        done = self._apt("apt-get", "download", "-q", f"{package}={version}", cwd=archives)
        if done.returncode != 0:
            raise NoPackages(f"{package} {version} cannot be fetched: {_last_line(done)}")
        (archive,) = archives.glob(f"{package}_*.deb")
        partial = into / f".{package}_{version}.{os.getpid()}"
        subprocess.run(["dpkg-deb", "-x", archive, partial], check=True)
        archive.unlink()
        partial.rename(tree)
        return tree

    def _apt(
        self, program: str, *arguments: str, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        options = {
            "Dir::State": self.root,
            "Dir::State::status": self.root / "status",
            "Dir::State::lists": self.root / "lists",
            "Dir::Cache": self.root / "cache",
            "Dir::Etc::sourcelist": self.root / "sources.list",
            "Dir::Etc::sourceparts": self.root / "etc",
            "Dir::Etc::preferences": self.root / "etc/none",
            "Dir::Etc::preferencesparts": self.root / "etc",
            "Acquire::Languages": "none",
        }
        if os.geteuid() == 0:
            options["APT::Sandbox::User"] = Path("root")
        settings = [item for key, value in options.items() for item in ("-o", f"{key}={value}")]
        command = [program, *settings, *arguments]
        environment = {**os.environ, "LC_ALL": "C"}
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines: Sequence[str] = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"apt exited with {done.returncode}"
