"""Say in sentences what changed between two knowledge files: the text of the change that a refresh opens."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAME_KEYS = ("name", "version", "slug", "id", "type", "key", "cuda", "target", "gen", "code", "does", "message", "says")
"""The keys by which a row of a list is called, the first that it has."""
UNTOLD = ("as_of", "source", "cite", "schema")
MOST_NAMED, LONGEST = 12, 100


def main(words: list[str]) -> int:
    if len(words) != 2:
        print("usage: knowledge_summary.py OLD NEW", file=sys.stderr)
        return 2
    old, new = (json.loads(Path(word).read_text(encoding="utf-8")) for word in words)
    print(summarize_changes(old, new))
    return 0


def summarize_changes(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Return Markdown: a heading with both days, then a list of sentences for each part that changed."""
    sections = []
    for part in sorted({*old["parts"], *new["parts"]}):
        lines = list(_part_changes(part, old["parts"].get(part, {}), new["parts"].get(part, {})))
        if lines:
            sections.append("\n".join([f"### {part.partition('/')[2]}", "", *(f"- {line}" for line in lines), ""]))
    head = f"Knowledge of {new['date']} (before: {old['date']})."
    return "\n".join([head, "", *(sections or ["Nothing changed but the day.\n"])])


def _part_changes(part: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    if not old or not new:
        word = "contract" if part.startswith("contracts/") else "table"
        yield f"The {word} {part.partition('/')[2]} is {'new' if new else 'gone'}."
    elif part == "catalog/patterns":
        yield from _count_patterns(old["data"]["rows"], new["data"]["rows"])
    else:
        yield from list_changes(old["data"], new["data"], "")


def _count_patterns(old: list[Any], new: list[Any]) -> Iterator[str]:
    before, after = ({json.dumps(row, sort_keys=True) for row in rows} for rows in (old, new))
    for code in sorted({json.loads(row)[0] for row in before ^ after}):
        more, less = (sum(json.loads(row)[0] == code for row in rows) for rows in (after - before, before - after))
        yield f"{code or 'Consequences'}: {more} log patterns are new, {less} are gone."


def list_changes(old: Any, new: Any, place: str) -> Iterator[str]:
    """Yield a sentence for each row or field that differs."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new} - {*UNTOLD}):
            yield from _field_changes(old, new, key, place)
    elif _are_rows(old) and _are_rows(new):
        if any("versions" in row and "name" in row for row in (*old, *new)):
            yield from _release_changes(_rows_by_release(old), _rows_by_release(new))
        else:
            yield from _row_changes(_named_rows(old), _named_rows(new), place)
    else:
        yield f"{place or 'It'} was {_shorten(old)}, and is {_shorten(new)}."


def _field_changes(old: dict[str, Any], new: dict[str, Any], key: str, place: str) -> Iterator[str]:
    where = f"{place}, {key}" if place else key
    if key not in old:
        yield f"{where} is new: {_shorten(new[key])}."
    elif key not in new:
        yield f"{where} is gone (it was {_shorten(old[key])})."
    else:
        yield from list_changes(old[key], new[key], where)


def _row_changes(old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[str]:
    for word, names in (("new", [n for n in new if n not in old]), ("gone", [n for n in old if n not in new])):
        if names:
            yield f"{place}: {_join_names(names)} {'is' if len(names) == 1 else 'are'} {word}."
    for name in new:
        if name in old:
            yield from list_changes(old[name], new[name], f"{place} {name}")


def _release_changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Yield what is new and gone, and each change once with the releases that it is about: rows share what neighbours say alike."""
    for word, names in (("new", [n for n in new if n not in old]), ("gone", [n for n in old if n not in new])):
        if names:
            yield f"{_join_names(names)} {'is' if len(names) == 1 else 'are'} {word}."
    sentences: dict[str, list[str]] = {}
    for name in (name for name in new if name in old):
        for sentence in list_changes(old[name], new[name], ""):
            sentences.setdefault(sentence, []).append(name)
    for sentence, names in sentences.items():
        yield f"{_join_names(names)}: {sentence}"


def _rows_by_release(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        f"{row['name']} {version}": {k: v for k, v in row.items() if k != "versions"}
        for row in rows
        for version in row["versions"]
    }


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _named_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows by name; where two have the same one, it gets a number."""
    named: dict[str, Any] = {}
    for row in rows:
        name = _shorten(next((row[key] for key in NAME_KEYS if row.get(key)), row))
        count = sum(known == name or known.startswith(f"{name} (") for known in named)
        named[f"{name} ({count + 1})" if count else name] = row
    return named


def _shorten(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, (str, int, float)) for item in value):
        text = ", ".join(map(str, value)) or "empty"
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
