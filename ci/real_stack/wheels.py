"""Python clients for the root: fetched by this machine's pip, installed there without a network."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from debian_packages import cache_directory, locked
from real_stack.root import Broken, Root, Unavailable

WHEELS = ("dpctl==0.22.1", "umf==1.2.0")
# Another set of wheels is another environment: checkouts share the root.
ENVIRONMENT = f"/opt/ze-ipc-clients-{sha256(' '.join(WHEELS).encode()).hexdigest()[:8]}"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")


def install(root: Root) -> str:
    """Put WHEELS into a virtual environment of the root, once; returns its directory there."""
    wanted = " ".join(WHEELS) + "\n"
    stamp = root.path / ENVIRONMENT.lstrip("/") / ".ze-ipc-wheels"
    with locked(root.path.with_name(root.path.name + ".wheels.lock")):
        if stamp.exists() and stamp.read_text() == wanted:
            return ENVIRONMENT
        wheels = cache_directory() / "wheels"
        _download(root, wheels)
        inside = root.with_binds((wheels, "/mnt/wheels"))
        pip = [f"{ENVIRONMENT}/bin/pip", "install", "-q", "--no-index", "--find-links"]
        for command in (
            ["python3", "-m", "venv", "--clear", ENVIRONMENT],
            [*pip, "/mnt/wheels", *WHEELS],
        ):
            result = inside.run(command, limit=600)
            if not result.ok:
                raise Broken(f"{command[0]} failed in the root:\n{result.output[-2000:]}")
        stamp.write_text(wanted)
    return ENVIRONMENT


def _download(root: Root, wheels: Path) -> None:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = root.run(["python3", "-c", program], limit=60).output.strip()
    abi = "cp" + version.replace(".", "")
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:"]
    command += ["--python-version", version, "--implementation", "cp"]
    command += [item for name in (abi, "abi3", "none") for item in ("--abi", name)]
    command += [item for name in PLATFORMS for item in ("--platform", name)]
    done = subprocess.run(
        [*command, "-d", str(wheels), *WHEELS], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"pip cannot fetch {', '.join(WHEELS)}:\n{done.stderr[-2000:]}")
