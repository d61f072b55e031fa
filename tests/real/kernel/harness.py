"""A guest with the real driver bound to an emulated GPU, in seconds.

`prepare` fetches and builds what is missing (into the cache); `session` restores a snapshot of the
booted guest with all modules loaded, plugs the GPU and waits for its render node.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import initramfs
from .agent import GuestError
from .gpu.profiles import PROFILES, Profile
from .packages import Suite, Unavailable, cache_dir, locked
from .qemu import Guest, Machine, device, restore, start, start_gpu

MODULES = ("xe", "vgem")
UNUSED_SECONDS = 24 * 3600
"""After so long a snapshot goes when another is made: other checkouts may use it."""
FIRST_NODE = 129
"""vgem, loaded into the snapshot, has taken renderD128."""
FIRST_OF_PEERS = 128
"""What is there from the beginning comes before vgem."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel to test on: a Debian suite and a pattern for its versioned packages."""

    suite: str
    packages: tuple[str, ...]
    without_sriov: tuple[str, ...] = ()
    """Devices that this kernel drives, but not as virtual functions: they need the patch."""
    sriov_bit: int | None = None
    """Which bit of a device's description that is, if the module itself does not show it."""
    unknown: tuple[str, ...] = ()
    """Devices that this kernel does not drive at all."""


_VERSION = r"[\d.]+\+deb\d+-amd64"
KERNELS = {
    "sid": Kernel("sid", (f"linux-binary-{_VERSION}", f"linux-modules-{_VERSION}")),
    "trixie": Kernel(
        # In 6.12 the bit follows has_llc, which the integrated devices share, and has_mmio_ext.
        "trixie",
        (f"linux-image-{_VERSION}",),
        ("bmg",),
        8 * 36 + 7,
        ("ptl",),
    ),
}
REFERENCE = "sid"
"""The kernel that the mock must agree with; the others are second opinions."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything on disk: the machine, its snapshot and the versions that were fetched."""

    machine: Machine
    snapshot: Path
    versions: tuple[str, ...]


def _digest(*paths: Path) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def _versions(names: Sequence[str], *wanted: str) -> list[str]:
    return [name for name in names if name.startswith(wanted)]


def prepare(profile: Profile, kernel: str = REFERENCE) -> Prepared:
    """Fetches QEMU, a kernel and busybox, builds the initramfs and makes the snapshot.

    The driver is unmodified unless it needs the SR-IOV bit of this device. Several may prepare at
    once: one makes what the others then find.
    """
    with locked(cache_dir() / "prepare.lock"):
        return _prepare(profile, kernel)


def _prepare(profile: Profile, kernel: str) -> Prepared:
    wanted = KERNELS[kernel]
    if profile.name in wanted.unknown:
        raise Unavailable(f"the kernel of {wanted.suite} does not drive {profile.name} at all")
    patched = profile.needs_sriov_patch or profile.name in wanted.without_sriov
    patch = profile.name if patched else ""
    cache = cache_dir()
    sid = Suite("sid")
    root = cache / "qemu"
    programs = sid.unpack(root, ["qemu-system-x86", "seabios", "busybox-static"], True)
    versions = _versions(programs, "qemu-system-x86_", "busybox-static_")
    suite = Suite(wanted.suite)
    tree = cache / f"linux-{kernel}"
    mark = tree / "names"
    if not mark.exists():
        tree.mkdir(parents=True, exist_ok=True)
        mark.write_text("\n".join(suite.newest(pattern) for pattern in wanted.packages))
    versions += suite.unpack(tree, mark.read_text().split(), False)
    modules = next(iter([*tree.glob("usr/lib/modules/*"), *tree.glob("lib/modules/*")]), None)
    image = next(iter([*tree.rglob("vmlinuz*")]), None)
    if modules is None or image is None:
        raise Unavailable(f"no kernel in {versions}")
    work = cache / "-".join(part for part in ("guest", kernel, patch) if part)
    work.mkdir(exist_ok=True)
    archive = initramfs.build(
        modules, root / "usr/bin/busybox", MODULES, work, patch, wanted.sriov_bit
    )
    machine = Machine(root, image, archive)
    snapshot = work / f"snapshot-{_digest(archive, Path(__file__).parent / 'qemu.py')}"
    if not snapshot.exists():
        _make_snapshot(machine, work, snapshot)
    snapshot.touch()
    if patch:
        versions.append(f"xe.ko with the SR-IOV bit of {patch}")
    return Prepared(machine, snapshot, tuple(versions))


def _make_snapshot(machine: Machine, work: Path, snapshot: Path) -> None:
    for old in work.glob("snapshot-*"):
        if time.time() - old.stat().st_mtime > UNUSED_SECONDS:
            old.unlink()
    folder = Path(tempfile.mkdtemp(prefix="zeipc-boot-"))
    try:
        with start(machine, folder) as guest:
            guest.agent.wait_ready(180)
            part = snapshot.with_name("part")
            guest.save(part)
            part.rename(snapshot)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def session(prepared: Prepared, *profiles: Profile) -> Iterator[Guest]:
    """A guest whose driver has bound every profile, in this order (node 0, 1, ...)."""
    folder = Path(tempfile.mkdtemp(prefix="zeipc-guest-"))
    try:
        with restore(prepared.machine, prepared.snapshot, folder) as guest:
            for slot, profile in enumerate(profiles):
                guest.plug(profile, slot)
                node = f"/dev/dri/renderD{FIRST_NODE + slot}"
                if not guest.agent.wait_for(node, 60):
                    log = guest.agent.run(["/bin/dmesg"]).output.decode(errors="replace")
                    raise GuestError(
                        f"{profile.name} did not bind: {log[-3000:]}\n{guest.gpu_log(slot)}"
                    )
            yield guest
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def session_of_peers(prepared: Prepared, *profiles: Profile) -> Iterator[Guest]:
    """Two GPUs behind one switch, which reach each other's memory: from the first instruction on.

    Their memories have different sizes. Nodes begin at renderD128 here.
    """
    folder = Path(tempfile.mkdtemp(prefix="zeipc-peers-"))
    memories = []
    gpus = []
    try:
        for profile in profiles:
            memories.append(os.memfd_create(f"vram-{profile.name}", os.MFD_CLOEXEC))
            os.ftruncate(memories[-1], profile.vram_size)
        plugged = []
        for slot, profile in enumerate(profiles):
            gpus.append(start_gpu(folder, profile, slot, (memories[slot], memories[1 - slot])))
            plugged += ["-device", json.dumps(device(folder, slot))]
        machine = dataclasses.replace(prepared.machine, peers=True)
        with start(machine, folder, *plugged, seconds=60, gpus=gpus) as guest:
            guest.agent.wait_ready(300)
            for slot in range(len(profiles)):
                if not guest.agent.wait_for(f"/dev/dri/renderD{FIRST_OF_PEERS + slot}", 60):
                    raise GuestError(f"GPU {slot} did not bind: {guest.console()[-3000:]}")
            yield guest
    finally:
        for gpu in gpus:
            gpu.kill()
            gpu.wait()
        for fd in memories:
            os.close(fd)
        shutil.rmtree(folder, ignore_errors=True)


def driver_lines(guest: Guest) -> list[str]:
    """What the driver itself said, without the emulated device's fused-off engines."""
    log = guest.agent.run(["/bin/dmesg"]).output.decode(errors="replace")
    wanted = ("xe 0000", "Initialized xe", "WARNING", "BUG", "Oops")
    return [
        line for line in log.splitlines() if any(word in line for word in wanted)
        and "fused off" not in line
    ]  # fmt: skip


def profile(name: str) -> Profile:
    return PROFILES[name]


class Stopwatch:
    """Seconds since it was made, for the lines that say how long something took."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __str__(self) -> str:
        return f"{time.monotonic() - self._start:.1f} s"
