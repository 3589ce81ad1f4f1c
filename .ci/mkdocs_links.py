"""Hooks of mkdocs: pages in the sections of docs/README.md; what they link outside docs/ stands there as its path."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)(#[^)]*)?\)")

ROW = re.compile(r"^\| \[([^\]]+)\]\(([^.)][^)]*)\)", re.MULTILINE)


def on_config(config: Any) -> None:
    """List the pages in the sections of docs/README.md; the others are reached by links."""
    docs, sections = Path(config["docs_dir"]), [{"Pages": "README.md"}]
    for section in (docs / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        pages = [{title: page} for title, page in ROW.findall(section)]
        sections.append({section.partition("\n")[0]: pages})
    config["nav"] = sections


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace links that leave docs/ by their text and path."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def without_link(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        return link[0] if path.startswith("docs/") else f"{link[1]} (`{path}`)"

    return LINK.sub(without_link, markdown)
