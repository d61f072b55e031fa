"""The ABI check goes red on every kind of mistake that it exists to find, and on nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DECLARATIONS = ROOT / "ioctl/xe_uapi.cdef"
HEADERS = ("drm/drm.h", "drm/xe_drm.h", "linux/dma-buf.h", "linux/sync_file.h")


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    """A header tree that says what our declarations say, in the way kernel headers say it."""
    base = tmp_path / "tree/usr/include"
    for name in HEADERS:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).touch()
    text = "#include <stddef.h>\n#include <stdint.h>\n" + DECLARATIONS.read_text()
    text = replace(text, r"#define DRM_XE_OBSERVATION_TYPE_OA 0\n", "")
    text = replace(text, r"#define DRM_XE_OBSERVATION_TYPE_EU_STALL 1\n", "")
    text += "enum drm_xe_observation_type {\n"
    text += "  DRM_XE_OBSERVATION_TYPE_OA, DRM_XE_OBSERVATION_TYPE_EU_STALL };\n"
    text = replace(text, r"(DRM_XE_VM_BIND_FLAG_NULL) 0x4", r"\1 (1 << 2)")
    (base / "drm/xe_drm.h").write_text(text)
    return tmp_path / "tree"


def replace(text: str, pattern: str, by: str) -> str:
    """TEXT with the one place that matches PATTERN replaced."""
    changed, count = re.subn(pattern, by, text)
    assert count == 1, pattern
    return changed


def run(headers: Path, declarations: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the one report of a run by hand."""
    command = [sys.executable, str(ROOT / "ci/abi-check"), "xe", "--json"]
    command += ["--headers", str(headers)]
    done = subprocess.run(
        [*command, "--declarations", str(declarations), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout, done.stderr
    (report,) = json.loads(done.stdout)["reports"]
    return done.returncode, report


def wrong(report: dict[str, Any]) -> set[str]:
    """What a report calls a disagreement."""
    return {f["subject"] for f in report["findings"] if f["kind"] == "disagrees"}


def test_our_declarations_agree_with_themselves(headers: Path) -> None:
    code, report = run(headers, DECLARATIONS, "--complete")
    assert (code, report["findings"]) == (0, [])
    assert report["structs"] > 50
    assert report["constants"] > 200


@pytest.mark.parametrize(
    ("pattern", "by", "subject"),
    [
        pytest.param(
            r"(struct drm_xe_vm_bind_op \{.*?)(    uint64_t range;\n)(    uint64_t addr;\n)",
            r"\1\3\2",
            "drm_xe_vm_bind_op.range",
            id="offset",
        ),
        pytest.param(
            r"(struct drm_xe_vm_bind_op \{.*?)uint16_t pat_index;\n    uint16_t pad;",
            r"\1uint32_t pat_index;",
            "drm_xe_vm_bind_op.pat_index",
            id="width",
        ),
        pytest.param(
            r"(struct drm_xe_wait_user_fence \{.*?)int64_t timeout",
            r"\1uint64_t timeout",
            "drm_xe_wait_user_fence.timeout",
            id="sign",
        ),
        pytest.param(
            r"(struct drm_xe_madvise \{.*?)uint16_t migration_policy;\s+uint16_t region_instance;",
            r"\1uint16_t region_instance; uint16_t migration_policy;",
            "drm_xe_madvise.preferred_mem_loc.migration_policy",
            id="offset-in-a-nameless-struct",
        ),
        pytest.param(
            r"(struct drm_xe_exec \{.*?)uint64_t reserved\[2\]",
            r"\1uint64_t reserved[3]",
            "drm_xe_exec.reserved",
            id="array-length",
        ),
        pytest.param(
            r"(struct drm_xe_query_engines \{.*?)struct drm_xe_engine engines",
            r"\1struct drm_xe_engine_class_instance engines",
            "drm_xe_query_engines.engines",
            id="element-of-a-flexible-array",
        ),
        pytest.param(
            r"(DRM_XE_VM_BIND_FLAG_READONLY) 0x1\n",
            r"\1 0x2\n",
            "DRM_XE_VM_BIND_FLAG_READONLY",
            id="constant",
        ),
        pytest.param(
            r"(DRM_XE_VM_BIND_FLAG_NULL) 0x4",
            r"\1 0x5",
            "DRM_XE_VM_BIND_FLAG_NULL",
            id="constant-that-they-write-as-an-expression",
        ),
        pytest.param(
            r"(DRM_XE_OBSERVATION_TYPE_EU_STALL) 1\n",
            r"\1 2\n",
            "DRM_XE_OBSERVATION_TYPE_EU_STALL",
            id="constant-that-they-write-as-an-enumerator",
        ),
        pytest.param(
            r"(DRM_IOCTL_XE_VM_BIND) 0x40886445",
            r"\1 0x40806445",
            "DRM_IOCTL_XE_VM_BIND",
            id="ioctl-size",
        ),
        pytest.param(
            r"(DRM_IOCTL_XE_VM_BIND) 0x40886445",
            r"\1 0xc0886445",
            "DRM_IOCTL_XE_VM_BIND",
            id="ioctl-direction",
        ),
    ],
)
def test_a_mistake_is_found(
    headers: Path, tmp_path: Path, pattern: str, by: str, subject: str
) -> None:
    doctored = tmp_path / "doctored.cdef"
    doctored.write_text(replace(DECLARATIONS.read_text(), f"(?s){pattern}", by))
    code, report = run(headers, doctored)
    assert code == 1
    assert subject in wrong(report)


def test_a_misspelt_name_is_found_where_all_must_be_there(headers: Path, tmp_path: Path) -> None:
    doctored = tmp_path / "doctored.cdef"
    text = replace(DECLARATIONS.read_text(), r"\bDRM_XE_GEM_CPU_CACHING_WB\b", "DRM_XE_CACHING_WB")
    doctored.write_text(text)
    assert run(headers, doctored)[0] == 0
    assert run(headers, doctored, "--complete")[0] == 1


def test_an_older_header_may_lack_things_and_is_believed_about_the_rest(headers: Path) -> None:
    header = headers / "usr/include/drm/xe_drm.h"
    text = header.read_text()
    text = replace(text, r"(?s)struct xe_vm_fault \{.*?\};", "")
    text = replace(text, r"    uint16_t gt_id;\n    uint16_t reserved1\[3\];\n", "")
    text = replace(text, r"(uint64_t oa_timestamp_freq;\n    uint64_t reserved)\[3\]", r"\1[4]")
    text = replace(text, r"    uint64_t point;\n\};\n\nstruct drm_syncobj_transfer",
                   "};\n\nstruct drm_syncobj_transfer")  # fmt: skip
    text = replace(text, r"(DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD) 0xc01864c1", r"\1 0xc01064c1")
    header.write_text(text)
    code, report = run(headers, DECLARATIONS)
    assert code == 0
    assert {finding["subject"] for finding in report["findings"]} == {
        "xe_vm_fault",
        "drm_xe_oa_unit.gt_id",
        "drm_syncobj_handle.point",
        "DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD",
    }


def test_a_newer_header_may_use_padding_but_not_a_field(headers: Path) -> None:
    header = headers / "usr/include/drm/xe_drm.h"
    text = header.read_text()
    grown = replace(
        text, r"(?s)(struct drm_xe_exec \{.*?)reserved\[2\]", r"\1fresh; uint64_t reserved[1]"
    )
    header.write_text(grown)
    code, report = run(headers, DECLARATIONS, "--complete")
    assert (code, [f["kind"] for f in report["findings"]]) == (0, ["newer"])

    taken = replace(text, r"(?s)(struct drm_xe_exec \{.*?)uint64_t address;", r"\1uint64_t fresh;")
    header.write_text(taken)
    code, report = run(headers, DECLARATIONS)
    assert code == 1
    assert "drm_xe_exec.fresh" in wrong(report) or "drm_xe_exec.address" in wrong(report)


def test_without_apt_it_says_so_by_a_code_of_its_own(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    environment = {**os.environ, "PATH": str(empty), "ZE_IPC_CACHE": str(tmp_path / "cache")}
    # The compiler stays reachable: what is missing is apt.
    environment["CC"] = shutil.which(os.environ.get("CC", "cc")) or ""
    for tool in ("as", "ld"):
        if found := shutil.which(tool):
            (empty / tool).symlink_to(found)
    done = subprocess.run(
        [sys.executable, str(ROOT / "ci/abi-check"), "xe"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 77, done.stderr
    assert "apt-get" in done.stderr


FUNCTIONS = ROOT / "native/ze/ze_api.cdef"


@pytest.mark.parametrize(
    ("pattern", "by", "subject"),
    [
        pytest.param("x^", "", None, id="nothing"),
        pytest.param(
            r"(\(\*ze_pfnMemFree_t\)\(ze_context_handle_t), void \*",
            r"\1, uint32_t",
            "ze_pfnMemFree_t.argument 1",
            id="width of an argument",
        ),
        pytest.param(
            r"(\(\*ze_pfnContextDestroy_t\)\(ze_context_handle_t)",
            r"\1, void *",
            "ze_pfnContextDestroy_t",
            id="one argument more",
        ),
        pytest.param(
            r"(ze_pfnMemOpenIpcHandle_t\)\(.*?), ze_ipc_mem_handle_t,",
            r"\1, ze_ipc_mem_handle_t *,",
            "ze_pfnMemOpenIpcHandle_t.argument 2",
            id="by value and by reference",
        ),
    ],
)
def test_functions_are_compared(tmp_path: Path, pattern: str, by: str, subject: str | None) -> None:
    text = FUNCTIONS.read_text()
    base = tmp_path / "usr/include/level_zero"
    base.mkdir(parents=True)
    (base / "layers").mkdir()
    for name in ("ze_ddi.h", "layers/zel_tracing_api.h", "layers/zel_tracing_register_cb.h"):
        (base / name).touch()
    changed = text if subject is None else replace(text, "(?s)" + pattern, by)
    (base / "ze_api.h").write_text("#include <stddef.h>\n#include <stdint.h>\n" + changed)
    command = [sys.executable, str(ROOT / "ci/abi-check"), "level_zero", "--json", "--complete"]
    done = subprocess.run(
        [*command, "--headers", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    (report,) = json.loads(done.stdout)["reports"]
    assert done.returncode == (0 if subject is None else 1), report
    found = {f["subject"] for f in report["findings"]}
    assert (found == set()) if subject is None else (subject in found)
