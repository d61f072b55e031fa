"""The doctor: its verdicts, their fixes, exit codes, and the self-test."""

from __future__ import annotations

import grp
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ze_ipc import xe
from ze_ipc.cli import doctor_gpu
from ze_ipc.xe.nodes import Looked


def doctor(*arguments: str, fds: int | None = None, **env: str) -> tuple[int, dict[str, Any]]:
    def limit() -> None:
        if fds is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (fds, fds))

    done = subprocess.run(
        [sys.executable, "-m", "ze_ipc", "doctor", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        cwd="/",
        env={**os.environ, "ZE_IPC_BACKEND": "mock", **env},
        preexec_fn=limit,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def named(report: dict[str, Any], name: str) -> dict[str, Any]:
    found = [check for check in report["checks"] if check["name"] == name]
    assert found, f"{name} is not among {report['checks']}"
    return dict(found[0])


def test_the_self_test_shares_memory_between_two_processes() -> None:
    code, report = doctor("--selftest")
    assert (code, report["ok"]) == (0, True)
    assert named(report, "self-test")["verdict"] == "ok"
    assert named(report, "device")["verdict"] == "note"
    assert "mock" in named(report, "device")["found"]


def test_without_it_nothing_is_shared() -> None:
    _, report = doctor()
    assert "self-test" not in {check["name"] for check in report["checks"]}


def test_what_is_not_right_has_a_fix(tmp_path: Path) -> None:
    open_to_all = tmp_path / "sockets"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    code, report = doctor("--selftest", fds=200, ZE_IPC_DIR=str(open_to_all))
    assert (code, report["ok"]) == (1, False)
    assert named(report, "broker directory")["verdict"] == "failure"
    assert named(report, "self-test")["verdict"] == "failure"
    assert named(report, "descriptors")["verdict"] == "warning"
    for check in report["checks"]:
        assert check["fix"] or check["verdict"] in ("ok", "failure"), check
    assert named(report, "broker directory")["fix"]


def test_who_may_open_and_who_is_believed() -> None:
    uid = os.geteuid()
    _, report = doctor(ZE_IPC_EXPORTER_UIDS="4242")
    assert f"uid {uid}" in named(report, "may open ours")["found"]
    assert "4242" in named(report, "believed exporters")["found"]
    code, report = doctor(ZE_IPC_EXPORTER_UIDS="somebody")
    wrong = named(report, "believed exporters")
    assert (code, wrong["verdict"]) == (1, "failure")
    assert "somebody" in wrong["found"]
    assert wrong["fix"]


def test_a_node_that_cannot_be_opened_names_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "renderD128"
    node.touch()
    shared = Looked(str(node), "", "open: Permission denied")
    monkeypatch.setattr(os, "getegid", lambda: node.stat().st_gid + 1)
    monkeypatch.setattr(os, "getgroups", list)
    group = grp.getgrgid(node.stat().st_gid).gr_name
    for seen, fix in (
        (shared, f"-aG {group} "),
        (Looked(str(node), "i915", "driver i915"), "xe driver"),
        (Looked(str(tmp_path / "renderD129"), "", "gone"), "--device"),
    ):
        monkeypatch.setattr(xe, "look", lambda seen=seen: [seen])
        (check,) = doctor_gpu.render_nodes()
        assert check.verdict == "warning"
        assert fix in check.fix
    monkeypatch.setattr(os, "getgroups", lambda: [node.stat().st_gid])
    monkeypatch.setattr(xe, "look", lambda: [shared])
    (check,) = doctor_gpu.render_nodes()
    assert "chmod" in check.fix


def test_a_loader_that_cannot_load_says_why(tmp_path: Path) -> None:
    (tmp_path / "libze_loader.so.1").write_bytes(b"\x7fELF nothing more")
    code, report = doctor(ZEL_LIBRARY_PATH=str(tmp_path), LD_LIBRARY_PATH=str(tmp_path))
    assert code == 0
    loader = named(report, "Level Zero loader")
    assert loader["verdict"] == "warning"
    assert str(tmp_path) in loader["found"]
    assert named(report, "way of sharing")["verdict"] == "note"
    strict, again = doctor("--strict", ZEL_LIBRARY_PATH=str(tmp_path))
    assert (strict, again["ok"]) == (1, False)


def test_a_device_that_cannot_be_opened_is_a_failure() -> None:
    code, report = doctor(ZE_IPC_BACKEND="no-such-backend")
    assert code == 1
    assert named(report, "device")["verdict"] == "failure"
