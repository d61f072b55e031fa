"""Page attributes by platform, against the kernel's own tables (as facts, not as code)."""

import pytest

from ze_ipc.xe.pat import pat_of, platform

# platform: (graphics reported, device id) -> indices that are at least one-way coherent, entries.
COHERENT = {
    "TGL": ((0, 0), 0x9A49, {0}),
    "DG2": ((0, 0), 0x56A0, {0}),
    "PVC": ((0, 0), 0x0BD5, {3, 5, 7}),
    "MTL": ((12, 71), 0x7D55, {3, 4}),
    "ARL": ((12, 74), 0x7D51, {3, 4}),
    "BMG": ((20, 1), 0xE20B, {1, 2, 4, 5, 7, 22, 23, 26, 27}),
    "LNL": ((20, 4), 0x64A0, {1, 2, 4, 5, 7, 22, 23, 26, 27, 30, 31}),
    "PTL": ((30, 0), 0xB080, {1, 2, 4, 5, 7, 22, 23, 26, 27, 30, 31}),
    "NVL": ((35, 10), 0xD740, {1, 2, 4, 5, 7, 19, 22, 23, 26, 27, 30, 31}),
    "CRI": ((35, 11), 0x674C, {1, 2, 4, 6, 7, 9, 10, 24, 25, 27, 28, 30, 31}),
}
COMPRESSED = {9, 10, 11, 12, 14, 15, 16, 21, 25, 29}


@pytest.mark.parametrize("name", COHERENT)
def test_every_choice_is_coherent(name: str) -> None:
    reported, device_id, coherent = COHERENT[name]
    pat = pat_of(platform(reported, device_id))
    assert {pat.own, pat.imported} <= coherent


@pytest.mark.parametrize("name", ["BMG", "LNL", "PTL"])
def test_no_choice_is_compressed(name: str) -> None:
    pat = pat_of(platform(*COHERENT[name][:2]))
    assert not {pat.own, pat.imported} & COMPRESSED


def test_a_platform_yet_unknown_is_taken_for_the_newest_known() -> None:
    assert pat_of(platform((99, 0), 0xFFFF)) == pat_of((35, 11))


def test_imports_differ_where_the_second_cache_is_flushed_lazily() -> None:
    assert pat_of((35, 10)).imported == 19


@pytest.mark.parametrize(
    ("device_id", "graphics"),
    [(0x0BD5, (12, 60)), (0x56A0, (12, 55)), (0x4F80, (12, 55)), (0x9A49, (12, 0))],
)
def test_platforms_that_report_no_version_go_by_device_id(
    device_id: int, graphics: tuple[int, int]
) -> None:
    assert platform((0, 0), device_id) == graphics
