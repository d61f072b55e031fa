"""The code blocks of the documentation that need the real libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.doc_blocks import blocks, pages
from helpers.doc_runner import PageRunner

PAGES = [page for page in pages() if any(block.where == "interop" for block in blocks(page))]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZE_IPC_BACKEND", "mock")
    # Ray kills its actors; the next broker removes what they leave.
    (tmp_path / "brokers").mkdir(mode=0o700)
    monkeypatch.setenv("ZE_IPC_DIR", str(tmp_path / "brokers"))
    runner = PageRunner(tmp_path)
    try:
        for block in blocks(page):
            if block.where == "interop":
                runner.run(block)
    finally:
        runner.close()
