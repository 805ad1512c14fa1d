"""A one-pass XML reader: the standard library's parser costs more than all probes together.

It handles what nvidia-smi writes: elements, text, an ``id``, the five entities. No document can make it
recurse, fetch or expand.
"""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 32


def parse_xml(text: str) -> dict[str, Any]:
    """Parse elements as lists by name, attributes as ``@name``; a cut document gives what came before."""
    names: list[str] = []
    stack: list[dict[str, Any]] = [{}]
    at = 0
    while (start := text.find("<", at)) >= 0 and (end := text.find(">", start)) >= 0 and len(stack) < MAX_DEPTH:
        tag, data, at = text[start + 1 : end], text[at:start].strip(), end + 1
        if tag.startswith(("?", "!")):
            continue
        if tag.startswith("/"):
            if not names or names[-1] != tag[1:].strip():
                break
            _close_element(names, stack, data)
        elif tag.strip():
            names.append(tag.split()[0].rstrip("/"))
            stack.append(_parse_attributes(tag))
            if tag.endswith("/"):
                _close_element(names, stack, "")
    while names:
        _close_element(names, stack, "")
    return stack[0]


def _close_element(names: list[str], stack: list[dict[str, Any]], data: str) -> None:
    node = stack.pop()
    stack[-1].setdefault(names.pop(), []).append(node or _unescape_entities(data))


def _parse_attributes(tag: str) -> dict[str, Any]:
    _, marker, rest = tag.partition(' id="')
    return {"@id": [rest.partition('"')[0]]} if marker else {}


def _unescape_entities(text: str) -> str:
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
        text = text.replace(entity, character)
    return text


def find_text(node: dict[str, Any], *paths: str) -> str | None:
    """Return the text at the first path that exists."""
    for path in paths:
        *folders, name = path.split("/")
        inside = find_element(node, "/".join(folders)) if folders else node
        value = inside.get(name, [None])[0]
        if isinstance(value, str):
            return value
    return None


def find_element(node: dict[str, Any], *paths: str) -> dict[str, Any]:
    """Return the element at the first path that exists, or an empty one."""
    for path in paths:
        element: Any = node
        for name in path.split("/"):
            element = element.get(name, [None])[0] if isinstance(element, dict) else None
        if isinstance(element, dict):
            return element
    return {}
