"""The checks of the documentation can fail: marks, blocks, outputs, links."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_check.links import dead_links
from helpers.doc_blocks import Block, blocks, missing_lines, pages
from helpers.doc_runner import BlockFailed, PageRunner


def parsed(tmp_path: Path, text: str) -> list[Block]:
    page = tmp_path / "page.md"
    page.write_text(text)
    return list(blocks(page))


@pytest.mark.parametrize(
    "text",
    [
        "```yaml\na: 1\n```\n",
        "```\nwords\n```\n",
        "<!-- test: outptu -->\n```text\n1\n```\n",
        "<!-- test: where=nowhere -->\n```python\n1\n```\n",
        "<!-- test: output -->\n\n```text\n1\n```\n",
        "<!-- test: file=x -->\n```{literalinclude} x\n```\n",
    ],
)
def test_a_block_that_nothing_runs_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="page"):
        parsed(tmp_path, text)


def test_every_block_that_is_only_shown_says_why() -> None:
    shown = [block for page in pages() for block in blocks(page) if block.shown]
    assert shown
    assert [str(block) for block in shown if len(block.shown.split()) < 2] == []


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("```python\nx = 1\n```\n\n```python\nassert x == 1\n```\n", True),
        ("```python\nassert 1 == 2\n```\n", False),
        ("<!-- test: fails -->\n```python\nassert 1 == 2\n```\n", True),
        ("<!-- test: fails -->\n```python\npass\n```\n", False),
        ("```sh\nfalse\ntrue\n```\n", False),
        ("```sh\nfalse | true\n```\n", False),
        ("<!-- test: fails -->\n```sh\nfalse\n```\n", True),
        ("```sh\necho one; echo two\n```\n\n<!-- test: output -->\n```text\none\ntwo\n```\n", True),
        (
            "```sh\necho one; echo two\n```\n\n<!-- test: output -->\n```text\ntwo\none\n```\n",
            False,
        ),
        (
            "<!-- test: file=a/b.txt -->\n```text\nhello\n```\n\n```sh\ngrep hello a/b.txt\n```\n",
            True,
        ),
        ("```toml\na = \n```\n", False),
        ("```json\n{}\n```\n", True),
    ],
)
def test_blocks_do_what_the_page_says_or_are_red(tmp_path: Path, text: str, good: bool) -> None:
    runner = PageRunner(tmp_path)
    try:
        for block in parsed(tmp_path, text):
            runner.run(block)
    except (BlockFailed, ValueError):
        assert not good
    else:
        assert good
    finally:
        runner.close()


@pytest.mark.parametrize(
    ("expected", "missing"),
    [("a", []), ("b\na", ["a"]), ("a...c", []), ("...\nd", ["d"]), ("abc\nb b", [])],
)
def test_missing_lines(expected: str, missing: list[str]) -> None:
    assert missing_lines(expected, "abc\nb b\n") == missing


@pytest.mark.parametrize(
    ("link", "dead"),
    [
        ("there/", False),
        ("there/#place", False),
        ("there/#nowhere", True),
        ("gone/", True),
        ("#here", False),
        ("#gone", True),
        ("/there/", False),
        ("https://example.invalid/", False),
        ("picture.svg", True),
    ],
)
def test_a_dead_link_is_found(tmp_path: Path, link: str, dead: bool) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "index.html").write_text('<h1 id="place">x</h1>')
    (tmp_path / "index.html").write_text(f'<p id="here"></p><a href="{link}">x</a>')
    assert bool(dead_links(tmp_path)) is dead
