"""Short answers for an agent: the document of a command without its background, and what was left out, counted."""

from __future__ import annotations

import json
from typing import Any

MAX_SUMMARY = 8000
"""Letters of a summary. A document that is not longer stays whole."""
MAX_SHORT_TEXT = 160
"""Letters of a value that stays in a row of a long list."""
_BACKGROUND = ("facts", "contract", "other_variables", "judged", "fell", "tape", "stacks", "figures", "pairs")
"""What a document was made from: left out first."""
_ANSWER = ("schema", "gpuready", "verdict", "exit", "host", "framework", "version", "code", "says", "so")
"""What stays in every summary."""
_SOURCES = ("cite", "reads", "schema", "signs", "source", "text")
"""What a row of a long list is without: where it comes from, and its explanation."""


def summarize_answer(text: str) -> str:
    """Return the document whole where it is short, else what answers the question, with ``left_out``."""
    if len(text) <= MAX_SUMMARY:
        return text
    short = _summarize_fields(json.loads(text), MAX_SUMMARY)
    return json.dumps({**short, "more": "detail=full gives all of it"}, ensure_ascii=False) + "\n"


def _summarize_fields(fields: dict[str, Any], limit: int) -> dict[str, Any]:
    kept, left_out = dict(fields), {}
    for name in ("reports", "plans"):  # one for each framework
        if several := kept.get(name):
            kept[name] = [_summarize_fields(one, limit // len(several)) for one in several]
    for name in _BACKGROUND:
        if name in kept and _length(kept) > limit:
            left_out[name] = _count_items(kept.pop(name))
            kept |= {name: _name_contract(fields[name])} if name == "contract" else {}
    long = sorted((name for name in kept if name not in _ANSWER), key=lambda name: -_length(kept[name]))[:4]
    long = [name for name in long if _length(kept[name]) > limit // 16] if _length(kept) > limit else []
    room = limit - 200 - _length({name: value for name, value in kept.items() if name not in long})
    for name in long:
        kept[name], left_out[name] = _shorten_value(kept[name], room // len(long))
    return {**kept, "left_out": left_out} if left_out else kept


def _name_contract(contract: dict[str, Any]) -> dict[str, Any]:
    return {name: contract.get(name, "") for name in ("framework", "version")}


def _shorten_value(value: Any, room: int) -> tuple[Any, str]:
    """Return as much as has room, and words for what is missing."""
    if isinstance(value, str):
        return f"{value[: max(room, 0)]} ...", f"{len(value):,} letters"
    if not isinstance(value, list):
        return {}, _count_items(value)
    rows: list[Any] = []
    for row in map(_shorten_row, value):
        room -= _length(row) + 2
        if room < 0:
            break
        rows.append(row)
    return rows, f"{len(rows)} of {len(value)} shown, shortened"


def _shorten_row(row: Any) -> Any:
    """Keep the short values of an object; what is empty, long or a source is left out."""
    if isinstance(row, str):
        return row[:MAX_SHORT_TEXT]
    if not isinstance(row, dict):
        return row
    short = {name: value for name, value in row.items() if name not in _SOURCES}
    return {name: value for name, value in short.items() if value and _length(value) <= MAX_SHORT_TEXT}


def _count_items(value: Any) -> str:
    return f"{len(value)} items" if isinstance(value, list | dict) else f"{_length(value):,} letters"


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))
