"""Every code block of the documentation does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.doc_blocks import blocks, pages
from helpers.doc_runner import PageRunner

PAGES = [page for page in pages() if any(not block.shown for block in blocks(page))]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZE_IPC_BACKEND", "mock")
    runner = PageRunner(tmp_path)
    try:
        for block in blocks(page):
            if not block.shown and block.where == "default":
                runner.run(block)
    finally:
        runner.close()
