"""Hooks of mkdocs: the reference pages that are not committed join the site, and what lies outside docs/ is shown as a path of the repository."""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

LINK_UP = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)[^)\s]*\)")


def on_files(files: Any, config: Any) -> Any:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from reference import built_pages

    for place, text in built_pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    def show(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), link[2]))
        return f"{link[1]} (`{path.removeprefix('../')}`)" if path.startswith("../") else link[0]

    return LINK_UP.sub(show, markdown)
