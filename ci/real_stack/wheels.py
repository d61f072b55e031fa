"""Python clients for the root: fetched by this machine's pip, installed there without a network."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from debian_packages import cache_directory, locked
from real_stack.root import Broken, Root, Unavailable

WHEELS = ("dpctl==0.22.1", "umf==1.2.0")
OWN_WHEELS = ("cffi", "psutil", "pyelftools", "rich", "pytest", "pytest-timeout", "hypothesis")
"""What this package and its tests need."""


def environment_of(names: tuple[str, ...]) -> str:
    """Another set of wheels is another environment: checkouts share the root."""
    return f"/opt/ze-ipc-clients-{sha256(' '.join(names).encode()).hexdigest()[:8]}"


ENVIRONMENT = environment_of(WHEELS)
OWN_ENVIRONMENT = environment_of(OWN_WHEELS)
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")


def install(root: Root, names: tuple[str, ...] = WHEELS) -> str:
    """Put wheels into a virtual environment of the root, once; returns its directory there."""
    environment = environment_of(names)
    wanted = " ".join(names) + "\n"
    stamp = root.path / environment.lstrip("/") / ".ze-ipc-wheels"
    with locked(root.path.with_name(root.path.name + ".wheels.lock")):
        if stamp.exists() and stamp.read_text() == wanted:
            return environment
        wheels = cache_directory() / "wheels"
        _download(root, wheels, names)
        inside = root.with_binds((wheels, "/mnt/wheels"))
        pip = [f"{environment}/bin/pip", "install", "-q", "--no-index", "--find-links"]
        for command in (
            ["python3", "-m", "venv", "--clear", environment],
            [*pip, "/mnt/wheels", *names],
        ):
            result = inside.run(command, limit=600)
            if not result.ok:
                raise Broken(f"{command[0]} failed in the root:\n{result.output[-2000:]}")
        stamp.write_text(wanted)
    return environment


def _download(root: Root, wheels: Path, names: tuple[str, ...]) -> None:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = root.run(["python3", "-c", program], limit=60).output.strip()
    abi = "cp" + version.replace(".", "")
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:"]
    command += ["--python-version", version, "--implementation", "cp"]
    command += [item for name in (abi, "abi3", "none") for item in ("--abi", name)]
    command += [item for name in PLATFORMS for item in ("--platform", name)]
    done = subprocess.run(
        [*command, "-d", str(wheels), *names], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"pip cannot fetch {', '.join(names)}:\n{done.stderr[-2000:]}")
