"""Validate a contract file: one sentence per problem, with the file, the table and the key."""

from __future__ import annotations

import re
from functools import cache

import gpuready.contracts.want as wants
import gpuready.contracts.when as conditions
from gpuready.contracts.toml import TABLES, toml_data
from gpuready.versions import is_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_ROWS = 2000
_NAME = r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*"
_UNSEEN = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
LEVELS = ("required", "recommended", "optional")
PLATFORMS = ("cuda", "rocm", "npu", "xpu", "hpu", "mps", "cpu", "tpu", "neuron", "mlu", "musa")
TOP = {
    "framework": str,
    "version": str,
    "variant": str,
    "distribution": str,
    "title": str,
    "origin": str,
    "page": bool,
    "extends": str,
    "platforms": list,
    "notes": list,
    **dict.fromkeys(TABLES, list),
}
ROWS: dict[str, dict[str, type]] = {
    "needs": {"key": str, "want": str, "when": str, "level": str, "cite": str},
    "capabilities": {
        "name": str,
        "level": str,
        "gate": str,
        "when": str,
        "cite": str,
        "note": str,
        "traits": list,
    },
    "variables": {
        "name": str,
        "access": str,
        "value": str,
        "when": str,
        "allowed": list,
        "required": bool,
        "cite": str,
        "note": str,
        "traits": list,
    },
    "errors": {"message": str, "cause": str, "fix": str, "code": str, "cite": str},
    "steps": {"does": str, "run": list, "safety": str, "undo": list, "note": str},
}
MUST = {
    "needs": ("key", "want"),
    "capabilities": ("name",),
    "variables": ("name", "access"),
    "errors": ("message", "cause", "fix"),
    "steps": ("does",),
}
CHOICES = {
    "level": LEVELS,
    "access": ("read", "set", "read and set"),
    "safety": ("safe", "ask", "manual"),
}


TRAITS = {
    "capabilities": ("falls-back", "moe-by-block"),
    "variables": ("forced", "emptied-for-vllm"),
}
"""What rules need to know of a row beyond its fields: the framework silently does without a capability it
lacks; fp8 for experts goes by block only; its own value of a variable overrides the user's; it empties the
variable before a vLLM engine is made.
"""


def problems(data: dict[str, Any], name: str) -> list[str]:
    """Return every problem of a contract's own rows; an empty list when it is valid."""
    found = [f"{name}: {text}" for text in _top(data)]
    for table in TABLES:
        rows = data.get(table, [])
        if isinstance(rows, list):
            if len(rows) > MOST_ROWS:
                found.append(f"{name}: there are more than {MOST_ROWS} [[{table}]], which no contract has")
                continue
            for number, row in enumerate(rows, 1):
                found += [f"{name}, [[{table}]] {number}: {text}" for text in _row(table, row)]
    return found


def _top(data: dict[str, Any]) -> Iterator[str]:
    yield from _typed(data, TOP)
    needed = ("version",) if data.get("extends") else ("framework", "version")
    yield from (f"the key {key!r} is missing" for key in needed if key not in data)
    for key in ("framework", "variant", "distribution", "extends"):
        value = data.get(key)
        if isinstance(value, str) and value and not re.fullmatch(_NAME, value):
            yield f"{key} {value!r} is not a plain name: use letters, digits, dots and hyphens"
    version = data.get("version")
    if isinstance(version, str) and not is_version(version):
        yield f"version {version!r} is not a version"
    for platform in _texts(data.get("platforms")):
        if platform not in PLATFORMS:
            yield f"platform {platform!r} is not known: it is one of {', '.join(PLATFORMS)}"


def _row(table: str, row: object) -> Iterator[str]:
    if not isinstance(row, dict):
        yield "each one must be a table"
        return
    yield from _typed(row, ROWS[table])
    yield from (f"the key {key!r} is missing" for key in MUST[table] if not row.get(key))
    for trait in row.get("traits", ()) if isinstance(row.get("traits"), list) else ():
        if trait not in TRAITS.get(table, ()):
            yield f"traits has {trait!r}: it takes {', '.join(TRAITS.get(table, ())) or 'none'}"
    for key, allowed in CHOICES.items():
        if key in ROWS[table] and isinstance(row.get(key), str) and row[key] not in allowed:
            yield f"{key} is {row[key]!r}: it is one of {', '.join(allowed)}"
    if isinstance(row.get("when"), str):
        yield from _said(conditions.check, row["when"])
        yield from _unknown_keys(row["when"])
    yield from _OF_TABLE[table](row)


def _unknown_keys(when: str) -> Iterator[str]:
    try:
        read = conditions.keys(when)
    except ValueError:
        return
    yield from (
        f"when asks for {_shown(key)}, which is not a fact that gpuready knows"
        for key in read
        if not _kind(key)
    )


def _kind(key: str) -> str:
    """Return the declared type of a fact, by its key or its family; empty where undeclared."""
    kinds = fact_kinds()
    return kinds.get(key) or kinds.get(key.partition(".")[0] + ".*", "")


def _typed(row: dict[str, Any], known: dict[str, type]) -> Iterator[str]:
    words = {str: "text", list: "a list of text", bool: "true or false"}
    for key, value in row.items():
        kind = known.get(key)
        if kind is None:
            yield f"the key {_shown(key)} is not known: {_near(key, known)}"
        elif not isinstance(value, kind) or not _all_text(key, value):
            yield f"{key} must be {words[kind]}"
        elif any(_control(text) for text in [key, *_texts(value)]):
            yield f"{key} holds a control character or an invisible one, which a contract may not"


def _all_text(key: str, value: object) -> bool:
    return key in TABLES or not isinstance(value, list) or all(isinstance(item, str) for item in value)


def _need(row: dict[str, Any]) -> Iterator[str]:
    key, want = row.get("key"), row.get("want")
    if not isinstance(key, str) or not isinstance(want, str) or not key or not want:
        return
    family, _, rest = key.partition(".")
    if family == "package":
        if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", rest):
            yield f"{_shown(rest)} is not a package name: use lower case and hyphens, as in flash-attn"
        yield from _said(wants.check, want, "version")
        return
    if not _kind(key):
        yield f"key {_shown(key)} is not a fact that gpuready knows: {_near(key, fact_kinds())}"
    yield from _said(wants.check, want, _kind(key))


def _capability(row: dict[str, Any]) -> Iterator[str]:
    name = row.get("name")
    if isinstance(name, str) and name and not re.fullmatch(r"[a-z0-9]+(?:[_-][a-z0-9]+)*", name):
        yield f"name {_shown(name)} is not a plain name: use lower-case letters, digits and hyphens"
    gate, known = row.get("gate"), features()
    if isinstance(gate, str) and gate and gate not in known:
        yield f"gate {_shown(gate)} is not a feature of the catalogue: {_near(gate, known)}"


def _variable(row: dict[str, Any]) -> Iterator[str]:
    name = row.get("name")
    if isinstance(name, str) and name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        yield f"name {_shown(name)} is not the name of an environment variable"


def _error(row: dict[str, Any]) -> Iterator[str]:
    code = row.get("code")
    if isinstance(code, str) and code and not re.fullmatch(r"[A-Z]{3}\d{3}", code):
        yield f"code {_shown(code)} is not the code of a rule, such as DRV001"


def _step(row: dict[str, Any]) -> Iterator[str]:
    for key in ("run", "undo"):
        words = _texts(row.get(key))
        for word in words:
            # A run list is never passed to a shell; shell syntax in it is a mistake.
            if not word or re.search(r"[;&|$`\\\"'{}\n\r]|[<>](?!=?\s*\d)", word):
                yield f"{key} holds {_shown(word)}: give one plain argument at a time, nothing for a shell"
        if words and not re.fullmatch(r"[A-Za-z0-9_./][A-Za-z0-9_.+/-]*", words[0]):
            yield f"{key} begins with {_shown(words[0])}, which is not a program"


_OF_TABLE = {
    "needs": _need,
    "capabilities": _capability,
    "variables": _variable,
    "errors": _error,
    "steps": _step,
}


@cache
def fact_kinds() -> dict[str, str]:
    """Return the declared type of every fact of the catalogue; families end in ``.*``."""
    return {row["key"]: row.get("type", "") for row in _catalogue("facts", "fact")}


@cache
def features() -> dict[str, str]:
    """Return the features of the catalogue, which a capability's gate names."""
    return {row["id"]: row.get("title", "") for row in _catalogue("features", "feature")}


def _catalogue(name: str, table: str) -> list[dict[str, Any]]:
    """Return rows of the catalogue, from TOML where present: the compiled form may not exist yet."""
    import os

    from gpuready import catalog

    path = os.path.join(os.path.dirname(catalog.__file__), f"{name}.toml")
    found = toml_data(path) if os.path.isfile(path) else catalog.load(name)
    return list(found.get(table, []))


def _said(check: Any, *values: str) -> Iterator[str]:
    try:
        check(*values)
    except ValueError as error:
        yield str(error)


def _texts(value: object) -> list[str]:
    many = value if isinstance(value, list) else [value]
    return [one for one in many if isinstance(one, str)]


def _control(text: str) -> bool:
    """Find control characters, and those that reorder or hide text on a screen."""
    return re.search(_UNSEEN, text) is not None


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def _near(name: str, names: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(names), n=2)
    return f"did you mean {' or '.join(near)}?" if near else f"it is one of {', '.join(sorted(names)[:12])}"
