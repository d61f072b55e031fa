"""Links and images of HTML pages, and whether what they name is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ELSEWHERE = ("http", "https", "mailto", "data", "javascript")


@dataclass
class Page(HTMLParser):
    """What one page links to, and which places in it can be linked to."""

    targets: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects href, src and id."""
        for name, value in attrs:
            if value is None:
                continue
            if name in ("href", "src"):
                self.targets.append(value)
            elif name in ("id", "name"):
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """``page: link`` for every link within the site that leads nowhere."""
    pages = {path.resolve(): _read(path) for path in site.rglob("*.html")}
    return [
        f"{path.relative_to(site.resolve())}: {target}"
        for path, page in sorted(pages.items())
        for target in page.targets
        if not _is_there(target, path, site.resolve(), pages)
    ]


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text())
    page.close()
    return page


def _is_there(target: str, page: Path, site: Path, pages: dict[Path, Page]) -> bool:
    url = urlsplit(target)
    if url.scheme in ELSEWHERE or url.netloc:
        return True
    path = page
    if url.path:
        base = site if url.path.startswith("/") else page.parent
        path = (base / unquote(url.path).lstrip("/")).resolve()
        if path.is_dir():
            path /= "index.html"
    if not path.exists():
        return False
    anchor = unquote(url.fragment)
    return not anchor or path not in pages or anchor in pages[path].anchors
