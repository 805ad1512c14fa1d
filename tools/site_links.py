"""A hook of mkdocs: what a page links to outside docs/ is no page of the site, and is shown as a path of the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK_UP = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)[^)\s]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    def show(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), link[2]))
        return f"{link[1]} (`{path.removeprefix('../')}`)" if path.startswith("../") else link[0]

    return LINK_UP.sub(show, markdown)
