"""The table of IGT's subtests on both sides, as it was kept: complete, and with every reason."""

from __future__ import annotations

import pytest

from real.kernel import igt


@pytest.fixture(scope="module")
def rows() -> dict[str, tuple[str, str]]:
    return igt.read(igt.RECORD.read_text())


def test_every_selected_program_ran(rows: dict[str, tuple[str, str]]) -> None:
    assert igt.RECORD.read_text().startswith("# igt-gpu-tools-tests_")
    assert {name.partition("@")[0] for name in rows} == set(igt.SELECTED)
    assert len(rows) >= 400
    assert {word for pair in rows.values() for word in pair} <= set(igt.OUTCOMES)
    assert sum(pair == ("pass", "pass") for pair in rows.values()) >= 200


def test_every_difference_has_its_reason(rows: dict[str, tuple[str, str]]) -> None:
    known = igt.expected(igt.DIFFERENCES.read_text())
    assert igt.judged(rows, known) == []


def test_another_end_is_found(rows: dict[str, tuple[str, str]]) -> None:
    known = igt.expected(igt.DIFFERENCES.read_text())
    worse = {**rows, "xe_query@query-engines": ("pass", "fail")}
    assert igt.judged(worse, known) == [
        "xe_query@query-engines: pass on the driver, fail on the mock"
    ]
    better = {**rows, "xe_query@query-cs-cycles": ("pass", "pass")}
    assert len(igt.judged(better, known)) == 1
    fewer = {name: pair for name, pair in rows.items() if not name.startswith("syncobj_eventfd")}
    assert igt.judged(fewer, known) == ["syncobj_eventfd@*: matches nothing any more"]


@pytest.mark.parametrize(
    "line", ["a@b pass fail", "a@b pass fail no reason", "a@b pass maybe a reason in words"]
)
def test_a_line_without_words_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        igt.expected(line)
