"""The interfaces that can be checked: one row each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Subject:
    """A declarations file of ours and the package whose headers must agree with it."""

    name: str
    declarations: Path
    prelude: tuple[str, ...]
    """What our file needs to be included first, as written after #include."""
    headers: tuple[str, ...]
    """What to include of theirs."""
    package: str
    suites: tuple[str, ...]
    """Where to take the package from; the first suite's must declare all that we declare."""


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject(
            name="xe",
            declarations=ROOT / "ioctl/xe_uapi.cdef",
            prelude=("<stddef.h>", "<stdint.h>"),
            headers=(
                "<fcntl.h>",
                "<drm/drm.h>",
                "<drm/xe_drm.h>",
                "<linux/dma-buf.h>",
                "<linux/sync_file.h>",
            ),
            package="linux-libc-dev",
            suites=("sid", "bookworm-backports"),
        ),
        Subject(
            name="level_zero",
            declarations=ROOT / "native/ze/ze_api.cdef",
            prelude=("<stddef.h>", "<stdint.h>"),
            headers=(
                "<level_zero/ze_api.h>",
                "<level_zero/ze_ddi.h>",
                "<level_zero/layers/zel_tracing_api.h>",
                "<level_zero/layers/zel_tracing_register_cb.h>",
            ),
            package="libze-dev",
            suites=("sid",),
        ),
    )
}
