"""The committed pictures are those that ``ze-ipc map`` draws today."""

from __future__ import annotations

from helpers import doc_pictures
from helpers.doc_blocks import pages


def test_pictures_are_current() -> None:
    drawn = doc_pictures.drawn()
    committed = {path.name: path.read_text() for path in doc_pictures.DIRECTORY.glob("*.svg")}
    assert sorted(committed) == sorted(drawn)
    stale = [name for name in drawn if drawn[name] != committed[name]]
    assert stale == [], "draw them anew: cd tests && python -m helpers.doc_pictures"


def test_each_picture_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in pages())
    assert [path.name for path in doc_pictures.DIRECTORY.iterdir() if path.name not in text] == []
