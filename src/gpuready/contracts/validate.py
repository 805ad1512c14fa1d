"""Validate a contract file: one sentence per problem, with the file, the table and the key."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import gpuready.contracts.want as wants
import gpuready.contracts.when as conditions
from gpuready.catalog import facts, gpus
from gpuready.contracts.pin_conflicts import can_hold_together
from gpuready.contracts.toml import TABLES
from gpuready.model import Contract, Record
from gpuready.model.versions import is_version

MOST_ROWS = 2000
_NAME = r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*"
_INVISIBLE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
LEVELS = ("required", "recommended", "optional")
PLATFORMS = ("cuda", "rocm", "npu", "xpu", "hpu", "mps", "cpu", "tpu", "neuron", "mlu", "musa")


def _field_types(record_type: type[Record]) -> dict[str, type]:
    """The TOML type of each field: a tuple is written as a list."""
    kinds: dict[str, type] = {"str": str, "bool": bool}
    return {field: kinds.get(record_type.__annotations__[field], list) for field in record_type._fields}


ROW_KEYS = {table: _field_types(record_type) for table, record_type in Contract.nested_records().items()}
TOP_KEYS = {key: kind for key, kind in _field_types(Contract).items() if key not in ("says", "basis")} | {
    "page": bool,
    "extends": str,
}
ALLOWED_VALUES = {"level": LEVELS, "access": ("read", "set", "read and set"), "safety": ("safe", "ask", "manual")}


TRAITS = {
    "capabilities": ("falls-back", "moe-by-block"),
    "variables": ("forced", "yields", "emptied-for-vllm", "own-default"),
}
"""What rules need to know of a row beyond its fields: the framework silently does without a capability it
lacks; fp8 for experts goes by block only; its own value of a variable overrides the user's; it empties the
variable before a vLLM engine is made; its code chooses among values where the variable is unset.
"""


def find_problems(data: dict[str, Any], name: str) -> list[str]:
    """Return every problem of a contract's own rows; an empty list when it is valid."""
    found = [f"{name}: {text}" for text in _check_top_level(data)]
    for table in TABLES:
        rows = data.get(table, [])
        if isinstance(rows, list):
            if len(rows) > MOST_ROWS:
                found.append(f"{name}: there are more than {MOST_ROWS} [[{table}]], which no file of requirements has")
                continue
            for number, row in enumerate(rows, 1):
                found += [f"{name}, [[{table}]] {number}: {text}" for text in _check_table_row(table, row)]
    return found


def _check_top_level(data: dict[str, Any]) -> Iterator[str]:
    yield from _check_types(data, TOP_KEYS)
    needed = ("version",) if data.get("extends") else ("framework", "version")
    yield from (f"the key {key!r} is missing" for key in needed if key not in data)
    for key in ("framework", "variant", "distribution", "extends"):
        value = data.get(key)
        if isinstance(value, str) and value and not re.fullmatch(_NAME, value):
            yield f"{key} {value!r} is not a plain name: use letters, digits, dots and hyphens"
    version = data.get("version")
    if isinstance(version, str) and not is_version(version):
        yield f"version {version!r} is not a version"
    for platform in _text_items(data.get("platforms")):
        if platform not in PLATFORMS:
            yield f"platform {platform!r} is not known: it is one of {', '.join(PLATFORMS)}"


def _check_table_row(table: str, row: object) -> Iterator[str]:
    if not isinstance(row, dict):
        yield "each one must be a table"
        return
    yield from _check_types(row, ROW_KEYS[table])
    yield from (f"the key {key!r} is missing" for key in _required_keys(table) if not row.get(key))
    for trait in row.get("traits", ()) if isinstance(row.get("traits"), list) else ():
        if trait not in TRAITS.get(table, ()):
            yield f"traits has {trait!r}: it takes {', '.join(TRAITS.get(table, ())) or 'none'}"
    for key, allowed in ALLOWED_VALUES.items():
        if key in ROW_KEYS[table] and isinstance(row.get(key), str) and row[key] not in allowed:
            yield f"{key} is {row[key]!r}: it is one of {', '.join(allowed)}"
    if isinstance(row.get("when"), str):
        yield from _error_messages(conditions.check_condition, row["when"])
        yield from _unknown_fact_keys(row["when"])
    yield from _ROW_CHECKS[table](row)


def _required_keys(table: str) -> list[str]:
    record_type = Contract.nested_records()[table]
    return [field for field in record_type._fields if field not in record_type._defaults]


def _unknown_fact_keys(when: str) -> Iterator[str]:
    try:
        read = conditions.condition_keys(when)
    except ValueError:
        return
    yield from (
        f"when asks for {_quote_text(key)}, which is not a fact that gpuready knows"
        for key in read
        if not _declared_kind(key)
    )


def _declared_kind(key: str) -> str:
    """Return the declared type of a fact, by its key or its family; empty where undeclared."""
    return str((facts.find_declaration(key) or {}).get("type", ""))


def _check_types(row: dict[str, Any], known: dict[str, type]) -> Iterator[str]:
    words = {str: "text", list: "a list of text", bool: "true or false"}
    for key, value in row.items():
        kind = known.get(key)
        if kind is None:
            yield f"the key {_quote_text(key)} is not known: {_suggest_keys(key, known)}"
        elif not isinstance(value, kind) or not _is_all_text(key, value):
            yield f"{key} must be {words[kind]}"
        elif any(has_control_characters(text) for text in [key, *_text_items(value)]):
            yield f"{key} holds a control character or an invisible one, which requirements may not"


def _is_all_text(key: str, value: object) -> bool:
    return key in TABLES or not isinstance(value, list) or all(isinstance(item, str) for item in value)


def _check_need(row: dict[str, Any]) -> Iterator[str]:
    key, want = row.get("key"), row.get("want")
    if not isinstance(key, str) or not isinstance(want, str) or not key or not want:
        return
    family, _, rest = key.partition(".")
    if not can_hold_together(rest, want, want):
        yield f"nothing meets {key} {_quote_text(want)}: its bounds exclude each other"
    if family == "package":
        if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", rest):
            yield f"{_quote_text(rest)} is not a package name: use lower case and hyphens, as in flash-attn"
        yield from _error_messages(wants.check_want, want, "version")
        return
    if not _declared_kind(key):
        yield f"key {_quote_text(key)} is not a fact that gpuready knows: {_suggest_keys(key, facts.list_fact_keys())}"
    yield from _error_messages(wants.check_want, want, _declared_kind(key))


def _check_capability(row: dict[str, Any]) -> Iterator[str]:
    name = row.get("name")
    if isinstance(name, str) and name and not re.fullmatch(r"[a-z0-9]+(?:[_-][a-z0-9]+)*", name):
        yield f"name {_quote_text(name)} is not a plain name: use lower-case letters, digits and hyphens"
    gate, known = row.get("gate"), gpus.list_features()
    if isinstance(gate, str) and gate and gate not in known:
        yield f"gate {_quote_text(gate)} is not a feature of the catalogue: {_suggest_keys(gate, known)}"


def _check_variable(row: dict[str, Any]) -> Iterator[str]:
    name = row.get("name")
    if isinstance(name, str) and name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        yield f"name {_quote_text(name)} is not the name of an environment variable"


def _check_error(row: dict[str, Any]) -> Iterator[str]:
    code = row.get("code")
    if isinstance(code, str) and code and not re.fullmatch(r"[A-Z]{3}\d{3}", code):
        yield f"code {_quote_text(code)} is not the code of a rule, such as DRV001"


def _check_step(row: dict[str, Any]) -> Iterator[str]:
    for key in ("run", "undo"):
        words = _text_items(row.get(key))
        for word in words:
            # A run list is never passed to a shell; shell syntax in it is a mistake.
            if not word or re.search(r"[;&|$`\\\"'{}\n\r]|[<>](?!=?\s*\d)", word):
                yield f"{key} holds {_quote_text(word)}: give one plain argument at a time, nothing for a shell"
        if words and not re.fullmatch(r"[A-Za-z0-9_./][A-Za-z0-9_.+/-]*", words[0]):
            yield f"{key} begins with {_quote_text(words[0])}, which is not a program"


_ROW_CHECKS = {
    "needs": _check_need,
    "capabilities": _check_capability,
    "variables": _check_variable,
    "errors": _check_error,
    "steps": _check_step,
}


def _error_messages(check: Any, *values: str) -> Iterator[str]:
    try:
        check(*values)
    except ValueError as error:
        yield str(error)


def _text_items(value: object) -> list[str]:
    many = value if isinstance(value, list) else [value]
    return [one for one in many if isinstance(one, str)]


def has_control_characters(text: str) -> bool:
    """Find control characters, and those that reorder or hide text on a screen."""
    return re.search(_INVISIBLE, text) is not None


def _quote_text(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def _suggest_keys(name: str, names: Any) -> str:
    matches = get_close_matches(name, list(names), n=2)
    return f"did you mean {' or '.join(matches)}?" if matches else f"it is one of {', '.join(sorted(names))}"
