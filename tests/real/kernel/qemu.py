"""QEMU from unpacked Debian packages: a process, its control socket, and snapshots.

The packages' own dynamic loader starts QEMU, so it needs neither root nor this system's libraries.
Guest memory is a shared memfd because the emulated GPU (another process) reads and writes it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .agent import Agent, GuestError
from .gpu.profiles import Profile

MEMORY = "1536M"
PORT = (
    "x-do-not-expose-native-hotplug-cap=on,power_controller_present=off,"
    "mem-reserve=64M,pref64-reserve=1G"
)
"""A slot that is always powered and is plugged through ACPI: the guest sees the device at once."""
ROOT_PORTS = [
    "-device", f"pcie-root-port,id=slot0,slot=1,chassis=1,{PORT}",
    "-device", f"pcie-root-port,id=slot1,slot=2,chassis=2,{PORT}",
]  # fmt: skip
SWITCH = [
    "-device", "pcie-root-port,id=up,slot=1,chassis=1",
    "-device", "x3130-upstream,id=switch,bus=up",
    "-device", "xio3130-downstream,id=slot0,bus=switch,chassis=2,slot=0",
    "-device", "xio3130-downstream,id=slot1,bus=switch,chassis=2,slot=1",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """What a guest is made of: the unpacked QEMU, a kernel image and an initramfs."""

    qemu_root: Path
    kernel: Path
    initramfs: Path
    peers: bool = False
    """Whether the slots are ports of one switch, so that their devices reach each other. Such ports
    have no room for what is plugged later: plug before the start."""

    def command(self, work: Path) -> list[str]:
        root = self.qemu_root
        libraries = root / "usr/lib/x86_64-linux-gnu"
        return [
            str(root / "usr/lib64/ld-linux-x86-64.so.2"),
            "--library-path", str(libraries),
            str(root / "usr/bin/qemu-system-x86_64"),
            "-L", str(root / "usr/share/seabios"), "-L", str(root / "usr/share/qemu"),
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-accel", "tcg", "-cpu", "Nehalem-v1", "-smp", "1",
            "-m", MEMORY, "-object", f"memory-backend-memfd,id=ram,size={MEMORY},share=on",
            "-machine", "q35,memory-backend=ram,usb=off,hpet=off",
            "-kernel", str(self.kernel), "-initrd", str(self.initramfs),
            "-append", "console=ttyS0 loglevel=6 panic=-1 mitigations=off random.trust_cpu=on "
            "nokaslr no_timer_check audit=0 cryptomgr.notests "
            "printk.devkmsg=on log_buf_len=4M",
            "-chardev", f"file,id=console,path={work}/console", "-serial", "chardev:console",
            "-device", "virtio-serial-pci,id=vser",
            "-chardev", f"socket,id=agent,path={work}/agent,server=on,wait=off",
            "-device", "virtserialport,bus=vser.0,chardev=agent,name=agent",
            "-chardev", f"socket,id=qmp,path={work}/qmp,server=on,wait=off",
            "-mon", "chardev=qmp,mode=control",
            *(SWITCH if self.peers else ROOT_PORTS),
        ]  # fmt: skip


class Monitor:
    """QEMU's control socket (QMP): one command at a time."""

    def __init__(self, path: Path, deadline: float) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            try:
                self._sock.connect(str(path))
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise GuestError(f"no QMP socket: {error}") from error
                time.sleep(0.02)
        self._sock.settimeout(120)
        self._file = self._sock.makefile("rwb", 0)
        self._readline()
        self.ask("qmp_capabilities")

    def ask(self, command: str, **arguments: object) -> Any:
        """The command's return value; an error of QEMU is a GuestError."""
        request = {"execute": command, "arguments": arguments}
        self._write(json.dumps(request).encode() + b"\n")
        while True:
            line = self._readline()
            if not line:
                raise GuestError(f"QEMU is gone during {command}")
            answer = json.loads(line)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise GuestError(f"{command}: {answer['error']['desc']}")

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise GuestError(f"QEMU is gone: {error}") from error

    def _readline(self) -> bytes:
        try:
            return self._file.readline()
        except OSError as error:
            raise GuestError(f"QEMU does not answer: {error}") from error

    def close(self) -> None:
        self._file.close()
        self._sock.close()


def start_gpu(
    work: Path, profile: Profile, slot: int, fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """An emulated GPU that listens; `fds`: its device memory and another GPU's."""
    path = work / f"gpu{slot}"
    path.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "kernel.gpu", profile.name, str(path), *map(str, fds)]
    with (work / f"gpu{slot}.log").open("wb") as log:
        gpu = subprocess.Popen(command, stdout=log, stderr=log, env=environment, pass_fds=fds)
    deadline = time.monotonic() + 60
    while not path.exists():
        if gpu.poll() is not None or time.monotonic() > deadline:
            gpu.kill()
            gpu.wait()
            raise GuestError(f"no emulated GPU: {(work / f'gpu{slot}.log').read_text()}")
        time.sleep(0.02)
    return gpu


def device(work: Path, slot: int) -> dict[str, Any]:
    """QEMU's description of the emulated GPU in a slot."""
    socket_path = {"type": "unix", "path": str(work / f"gpu{slot}")}
    return {
        "driver": "vfio-user-pci", "id": f"gpu{slot}", "bus": f"slot{slot}", "socket": socket_path,
    }  # fmt: skip


class Guest:
    """A running guest; use `start` or `restore`, which see to its end."""

    def __init__(
        self, work: Path, process: subprocess.Popen[bytes], deadline: float,
        gpus: Sequence[subprocess.Popen[bytes]] = (),
    ) -> None:  # fmt: skip
        self.work = work
        self._process = process
        self._gpus = list(gpus)
        self.monitor = Monitor(work / "qmp", deadline)
        self.agent = Agent(work / "agent", deadline)

    def console(self) -> str:
        return (self.work / "console").read_text(errors="replace")

    def plug(self, profile: Profile, slot: int = 0) -> None:
        """Starts an emulated GPU and hot-plugs it; returns at once."""
        self._gpus.append(start_gpu(self.work, profile, slot))
        self.monitor.ask("device_add", **device(self.work, slot))

    def gpu_log(self, slot: int = 0) -> str:
        return (self.work / f"gpu{slot}.log").read_text(errors="replace")

    def save(self, path: Path) -> None:
        """Writes the state of the whole (GPU-less) guest to `path`; the guest stays stopped."""
        self.monitor.ask("stop")
        self.monitor.ask("migrate", uri=f"file:{path}")
        deadline = time.monotonic() + 120
        while True:
            status = self.monitor.ask("query-migrate").get("status")
            if status == "completed":
                return
            if status in ("failed", "cancelled") or time.monotonic() > deadline:
                raise GuestError(f"snapshot: {status}")
            time.sleep(0.1)

    def close(self) -> None:
        self.agent.close()
        self.monitor.close()
        for process in (self._process, *self._gpus):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def start(
    machine: Machine, work: Path, *extra: str, seconds: float = 30,
    gpus: Sequence[subprocess.Popen[bytes]] = (),
) -> Iterator[Guest]:  # fmt: skip
    """A guest from its first instruction on (or from `-incoming` in `extra`).

    `gpus` are emulated GPUs that `extra` plugs; they end with the guest.
    """
    work.mkdir(parents=True, exist_ok=True)
    for name in ("qmp", "agent", "console"):
        (work / name).unlink(missing_ok=True)
    with (work / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            [*machine.command(work), *extra], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    guest = None
    try:
        guest = Guest(work, process, time.monotonic() + seconds, gpus)
        yield guest
    finally:
        if guest is not None:
            guest.close()
        else:
            for one in (process, *gpus):
                one.kill()
                one.wait()


@contextmanager
def restore(machine: Machine, snapshot: Path, work: Path) -> Iterator[Guest]:
    """A guest that goes on where `snapshot` was made."""
    with start(machine, work, "-incoming", f"file:{snapshot}") as guest:
        deadline = time.monotonic() + 60
        while guest.monitor.ask("query-status")["status"] == "inmigrate":
            if time.monotonic() > deadline:
                raise GuestError("the snapshot did not load")
            time.sleep(0.02)
        guest.monitor.ask("cont")
        yield guest
