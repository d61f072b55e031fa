"""A Debian sid root: made once, kept outside the checkout, and a way to run programs in it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from debian_packages import NoPackages, cache_directory, locked, mirror

SUITE = "sid"
BASE = ("python3", "python3-cffi", "python3-venv", "libze1", "libze-dev", "libze-intel-gpu1")
# Without recommends and without libigc2: work that needs the compute engine must abort, not guess.
EXTRA = (
    "igt-gpu-tools-tests",
    "gcc",
    "libc6-dev",
    "python3-pip",
    "python3-numpy",
    "mesa-vulkan-drivers",
    "libvulkan-dev",
    "vulkan-tools",
)
FORBIDDEN = ("libigc2",)
OUTPUT_LIMIT = 1 << 20
SETUP_FAILED = 125
NETWORK = re.compile(r"Acquire::(https?|Check-Valid-Until|Retries|ForceIPv[46])\b")

# The network's for its abstract sockets: the driver names them by process ids, which start anew
# in each run.
NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--net", "--fork", "--kill-child")

# In fresh namespaces: what a program needs in the root, then the program.
# $1 is the root, $2 the size of /dev/shm; binds follow as pairs up to "--".
SETUP = r"""
root=$1 shm=$2; shift 2
mount -t proc proc "$root/proc" || exit 125
mount -t tmpfs -o "size=$shm,mode=1777" tmpfs "$root/dev/shm" || exit 125
mount -t tmpfs -o size=2g,mode=1777 tmpfs "$root/tmp" || exit 125
while [ "$1" != -- ]; do
    mkdir -p "$root$2" || exit 125
    mount --bind "$1" "$root$2" || exit 125
    shift 2
done
shift
# Tests of several devices want more room in their message queues than a kernel gives by default.
echo 1000000 > "$root/proc/sys/kernel/msgmnb" || :
# Not by exec: to the first process of a namespace signals are not what they are to others.
chroot "$root" "$@" || exit $?
exit 0
"""


class Unavailable(Exception):
    """The real stack cannot run on this machine; the message says why."""


class Broken(Exception):
    """The real stack is here, but something of it or of ours does not work at all."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a program in the root ended."""

    code: int
    """Exit status; negative: the signal that ended it."""
    output: str
    """Standard output and error, mixed; only the end of it if there is much."""
    timed_out: bool

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.code == 0 and not self.timed_out


def probe() -> None:
    """Raise Unavailable if this machine cannot have a root: the one place where that is decided."""
    if os.geteuid() != 0:
        raise Unavailable("the real stack needs root (debootstrap, chroot, namespaces)")
    for tool in ("unshare", "chroot", "mount"):
        if shutil.which(tool) is None:
            raise Unavailable(f"{tool} is not installed")
    command = [*NAMESPACES, "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"no namespaces here: {done.stderr.strip()}")
    if Root.default().is_complete:
        return
    if shutil.which("debootstrap") is None:
        raise Unavailable("debootstrap is not installed")
    try:
        mirror()
    except NoPackages as error:
        raise Unavailable(str(error)) from error


@dataclass(frozen=True, slots=True)
class Root:
    """A directory with a Debian sid in it."""

    path: Path
    binds: tuple[tuple[Path, str], ...] = field(default=())
    """Directories of this machine and where they are seen in the root."""

    @classmethod
    def default(cls) -> Root:
        """The one in the cache."""
        return cls(cache_directory() / f"{SUITE}-root")

    def with_binds(self, *binds: tuple[Path, str]) -> Root:
        """The same root with more of this machine's directories in it."""
        return Root(self.path, (*self.binds, *binds))

    @property
    def is_complete(self) -> bool:
        """Whether it has been made and has the packages of this version of the script."""
        stamp = self.path / ".ze-ipc-packages"
        return stamp.exists() and stamp.read_text() == _wanted()

    def make(self) -> None:
        """Make it, or bring it up to the packages wanted; takes minutes the first time."""
        with locked(self.path.with_name(self.path.name + ".lock")):
            if self.is_complete:
                return
            if not (self.path / "etc/debian_version").exists():
                self._bootstrap()
            self._install()
            (self.path / ".ze-ipc-packages").write_text(_wanted())

    def versions(self) -> dict[str, str]:
        """The versions of what is tested."""
        query = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *BASE, *EXTRA]
        lines = self.run(query, limit=60).output.splitlines()
        return dict(line.split(" ", 1) for line in lines if " " in line)

    def run(
        self,
        command: Sequence[str],
        *,
        limit: float,
        env: Mapping[str, str] | None = None,
        shm: str = "16g",
    ) -> Result:
        """Run COMMAND in the root, in namespaces of its own, for at most LIMIT seconds.

        Whatever it started is killed at the end. ENV is the whole environment beside PATH and HOME.
        """
        binds = [item for source, target in self.binds for item in (str(source), target)]
        wrapper = [*NAMESPACES, "sh", "-c", SETUP, "sh", str(self.path), shm]
        wrapper += [*binds, "--", *command]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **(env or {})}
        preload = environment.pop("LD_PRELOAD", None)
        if preload is not None:
            # For the program only: what sets the root up is of this machine, and has its own libc.
            place = wrapper.index("--") + 1
            wrapper[place:place] = ["/usr/bin/env", f"LD_PRELOAD={preload}"]
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                wrapper,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code, timed_out = child.wait(limit), False
            except subprocess.TimeoutExpired:
                code, timed_out = -signal.SIGKILL, True
            finally:
                _end(child)
            end = output.seek(0, os.SEEK_END)
            output.seek(max(0, end - OUTPUT_LIMIT))
            text = output.read().decode(errors="replace")
        if code == SETUP_FAILED:
            raise Broken(f"the root cannot be set up for {command[0]}: {text.strip()}")
        # unshare reports a child's signal as a shell does.
        return Result(code if code <= 128 else 128 - code, text, timed_out)

    def _bootstrap(self) -> None:
        partial = self.path.with_name(self.path.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        include = f"--include={','.join(BASE)}"
        command = ["debootstrap", "--variant=minbase", include, SUITE, str(partial), mirror()]
        _checked(command)
        partial.rename(self.path)

    def _install(self) -> None:
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *BASE, *EXTRA]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        resolver = Path("/etc/resolv.conf")
        if resolver.exists():
            shutil.copy(resolver, self.path / "etc/resolv.conf")
        # Proxies, certificates and whatever else this machine needs to reach its mirror.
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
        settings = [line for line in dump.stdout.splitlines(True) if NETWORK.match(line)]
        (self.path / "etc/apt/apt.conf.d/50ze-ipc").write_text("".join(settings))
        for command in (["apt-get", "update", "-q"], install):
            _checked(["chroot", str(self.path), *command], environment)
        query = ["chroot", str(self.path), "dpkg-query", "-W", *FORBIDDEN]
        if subprocess.run(query, capture_output=True, check=False).returncode == 0:
            raise Unavailable(f"{FORBIDDEN} came into the root and would hide wrong results")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill what is left, and wait until the kernel has taken the whole namespace down."""
    handles = []
    with contextlib.suppress(OSError):
        first = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        handles = [os.pidfd_open(int(pid)) for pid in first]
    child.kill()
    child.wait()
    for handle in handles:
        # The first process of a namespace ends after all others in it.
        select.select([handle], [], [], 10)
        os.close(handle)


def _wanted() -> str:
    return " ".join((SUITE, *BASE, *EXTRA)) + "\n"


def _checked(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise Unavailable(f"{command[0]} failed:\n{tail}")
