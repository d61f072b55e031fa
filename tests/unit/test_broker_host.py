"""The host's identity, and facts about processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ze_ipc import host
from ze_ipc.errors import KernelError

BOOT = "6f2d5b5e-6b1c-4d6e-9a57-0d3d5f1b2c3a"


def test_identity_is_of_the_boot_and_the_kernel() -> None:
    one = host.identity_of(BOOT + "\n", "6.1", "#1")
    assert len(one) == host.HOST_IDENTITY_SIZE
    assert one == host.identity_of(BOOT.upper(), "6.1", "#1")
    others = {
        host.identity_of(BOOT.replace("6f", "7f"), "6.1", "#1"),
        host.identity_of(BOOT, "6.2", "#1"),
        host.identity_of(BOOT, "6.1", "#2"),
        host.identity_of(BOOT, "6.1#", "1"),
    }
    assert len(others | {one}) == 5


def test_identity_is_the_same_in_another_process() -> None:
    code = "from ze_ipc.host import host_identity; print(host_identity().hex())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == host.host_identity().hex()


def test_identity_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "_BOOT_ID", str(tmp_path / "none"))
    host.host_identity.cache_clear()
    with pytest.raises(KernelError):
        host.host_identity()
    monkeypatch.undo()
    assert host.host_identity()


def test_start_time() -> None:
    ours = host.start_time(os.getpid())
    assert ours is not None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        theirs = host.start_time(child.pid)
        assert theirs is not None
        assert theirs >= ours
        child.communicate(b"\n")
    assert host.start_time(child.pid) is None


def test_start_time_of_a_process_with_a_strange_name(tmp_path: Path) -> None:
    program = tmp_path / "a) b (c"
    program.write_text("#!/bin/sh\nread line\n")
    program.chmod(0o700)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as child:
        ours, theirs = host.start_time(os.getpid()), host.start_time(child.pid)
        assert ours is not None
        assert theirs is not None
        assert theirs >= ours
        child.communicate(b"\n")


def test_seccomp_mode_is_what_the_kernel_says() -> None:
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("Seccomp:"))
    assert host.seccomp_mode() == int(line.split()[1])
