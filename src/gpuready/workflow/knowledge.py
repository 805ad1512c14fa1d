"""Knowledge files: the tables of gpuready as one dated JSON file, verified before any of it is used.

``{"kind": "gpuready-knowledge", "schema": 2, "date": "2026-11-15", "parts": {"catalog/torch": {"sha256": …, "data": …}}}``

A file replaces what gpuready knows of GPUs, CUDA, torch, packages, kernels, causes and frameworks. It never brings an
index, a proof, a program that is run, or an address outside the projects that gpuready already knows.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from gpuready import catalog, rules
from gpuready.contracts.contract_file import freeze_contract_rows, make_index_row
from gpuready.contracts.validate import find_problems
from gpuready.logs.pattern_index import build_pattern_table
from gpuready.model import Record
from gpuready.workflow.knowledge_shape import describe_shape, find_shape_problems, find_text_problems
from gpuready.workflow.refusal import Refused, read_named_file

Tables = dict[tuple[str, str], Any]


KIND, SCHEMA = "gpuready-knowledge", 3
"""The schema goes up when a table is added or gets a key, or a key another meaning."""
CATALOG_PARTS = (
    "accelerators", "aftermath", "architectures", "bands", "causes", "cuda", "features", "gpus", "job_keys", "kernels",
    "log_rules", "lookalikes", "models", "overheads", "packages", "patterns", "releases", "roles", "serving", "systems",
    "torch", "xids",
)  # fmt: skip
"""Not among them: indexes, proofs, programs, launch commands, images, driver installation, facts and variables."""
PARTS_SINCE = {"releases": 3, "systems": 2, "xids": 2}
"""The schema that brought a part; beside a file of an older one, gpuready's own part counts."""
MAX_BYTES, MAX_PATTERNS = 16 << 20, 20_000


class Knowledge(Record):
    """A verified knowledge file."""

    date: str
    tables: Tables


def use_knowledge_file(name: str) -> str:
    """Verify ``FILE`` or ``FILE#sha256=HEX`` and use it from now on; return a sentence that says which is in use."""
    own = catalog.catalog_date()
    path, text = _read_with_digest(name)
    known = verify_knowledge(text, path)
    catalog.replace_tables(known.tables)
    age = "newer than" if known.date > own else "as old as" if known.date == own else "OLDER than"
    return f"knowledge of {known.date} from {path}, {age} gpuready's own of {own}"


def _read_with_digest(name: str) -> tuple[str, str]:
    """Return the path and the text of ``FILE`` or ``FILE#sha256=HEX``; Refused where the text has another hash."""
    path, mark, digest = name.partition("#sha256=")
    if mark and not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise Refused(f"--knowledge {path}#sha256= needs 64 hexadecimal digits, not {digest[:70]!a}")
    text = read_named_file(path)
    if mark and digest.lower() != _hash_text(text):
        raise Refused(f"{path} has the SHA-256 {_hash_text(text)}, not {digest}: fetch it again")
    return path, text


def pack_for_nodes(name: str) -> str:
    """Return the text of ``FILE`` or ``FILE#sha256=HEX``, compressed to printable letters: a line of a fleet's request."""
    _, text = _read_with_digest(name)
    return base64.b85encode(zlib.compress(text.encode("utf-8", "surrogateescape"), 9)).decode()


def use_sent_knowledge(packed: str) -> None:
    """Verify and use the knowledge that a controller sent; ValueError, in a sentence, where it is not as it must be."""
    try:
        data = zlib.decompressobj().decompress(base64.b85decode(packed), MAX_BYTES + 1)
        known = verify_knowledge(data.decode("utf-8", "surrogateescape"), "the knowledge that was sent along")
    except (ValueError, zlib.error, Refused) as error:
        raise ValueError(f"the controller's knowledge is not used here: {error}") from None
    catalog.replace_tables(known.tables)


def _hash_text(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def hash_part(data: Any) -> str:
    """Return the SHA-256 of a part: of its JSON with sorted keys and without spaces."""
    return _hash_text(json.dumps(data, sort_keys=True, separators=(",", ":")))


def pack_knowledge() -> dict[str, Any]:
    """Return gpuready's own tables as a knowledge file; the index of the patterns is rebuilt by its reader."""
    tables = {f"catalog/{name}": catalog.load_catalog(name) for name in CATALOG_PARTS}
    tables["catalog/patterns"] = {"rows": tables["catalog/patterns"]["rows"]}
    tables["catalog/systems"] = _with_drivers(tables["catalog/systems"], {})
    files = [row["file"] for row in catalog.load_table("contracts", "index")]
    tables |= {f"contracts/{name}": catalog.load_table("contracts", name) for name in sorted(files)}
    plain = json.loads(json.dumps(tables))
    parts = {name: {"sha256": hash_part(data), "data": data} for name, data in plain.items()}
    return {"kind": KIND, "schema": SCHEMA, "date": catalog.catalog_date(), "parts": parts}


def _with_drivers(table: dict[str, Any], drivers: dict[str, Any]) -> dict[str, Any]:
    """Return the systems with these commands that install a driver, by name: a file never brings them."""
    rows = [{key: value for key, value in row.items() if key != "driver"} for row in table["system"]]
    named = [row | ({"driver": drivers[row["name"]]} if row["name"] in drivers else {}) for row in rows]
    return table | {"system": named}


# -- verification ---------------------------------------------------------------------------------------


def verify_knowledge(text: str, path: str) -> Knowledge:
    """Return the tables of a knowledge file; Refused, with the first problem, where one is not as it must be."""
    document = _decode_document(text, path)
    parts = _check_parts(document, path)
    problem = next(_find_problems(parts), "")
    if problem:
        raise Refused(f"{path} is refused: {problem[:300]}; get a new one, or leave --knowledge out")
    if parts["catalog/cuda"]["as_of"] != document["date"]:
        raise Refused(f"{path} is refused: its date is not that of its tables; get a new one")
    return Knowledge(document["date"], _make_tables(parts, path))


def _decode_document(text: str, path: str) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise Refused(f"{path} has more than {MAX_BYTES >> 20} MiB, which no knowledge file has")
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Refused(f"{path} is not JSON: --knowledge takes a file of tools/pack_knowledge.py") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise Refused(f"{path} is not a knowledge file of gpuready: its kind must be {KIND!r}")
    schema = document.get("schema")
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        hint = "upgrade gpuready to use it" if type(schema) is int and schema > SCHEMA else "get a whole file"
        raise Refused(f"{path} has schema {ascii(schema)[:20]}, and this gpuready reads 1 to {SCHEMA}: {hint}")
    if not _is_date(document.get("date")):
        raise Refused(f"{path} has no date such as 2026-11-15")
    return document


def _refuse_constant(word: str) -> None:
    raise ValueError(word)


def _is_date(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", value) is not None


def _check_parts(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the data of all parts, each of which has its hash; Refused where one is missing, unknown or altered."""
    parts = document.get("parts")
    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise Refused(f"{path} has no parts: it is not a whole knowledge file")
    expected = [name for name in CATALOG_PARTS if PARTS_SINCE.get(name, 1) <= document["schema"]]
    missing = [name for name in expected if f"catalog/{name}" not in parts]
    if missing:
        raise Refused(f"{path} lacks the part catalog/{missing[0]}: it is not a whole knowledge file")
    for name, part in parts.items():
        if name.removeprefix("catalog/") not in CATALOG_PARTS and not _is_contract_part(name):
            raise Refused(f"{path} has the part {ascii(name)[:60]}, which a knowledge file may not bring")
        if part.get("sha256") != hash_part(part.get("data")):
            raise Refused(f"{path} was altered or damaged: the hash of {name} does not match; fetch it again")
    return {name: part["data"] for name, part in parts.items()}


def _is_contract_part(name: str) -> bool:
    return re.fullmatch(r"contracts/[a-z][a-z0-9_]{0,80}", name) is not None and name != "contracts/index"


def _find_problems(parts: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the tables, the cheap questions first; those that are as ours are right."""
    own = {name: part["data"] for name, part in pack_knowledge()["parts"].items()}
    changed = {name: data for name, data in parts.items() if data != own.get(name)}
    for name, data in changed.items():
        yield from find_text_problems(data, name)
    for name, data in changed.items():
        if name.startswith("catalog/") and name != "catalog/patterns":
            yield from find_shape_problems(describe_shape([own[name]]), data, name.removeprefix("catalog/"))
    yield from _find_contract_problems(parts, changed)
    yield from find_command_problems(parts, own)
    yield from _find_rule_problems(parts)


def _find_contract_problems(parts: dict[str, Any], changed: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of contracts, whose gates are features of the same file."""
    if not any(name.startswith("contracts/") for name in parts):
        yield "it has no contract"
    catalog.replace_tables({("catalog", "features"): parts["catalog/features"]})
    try:
        for name, data in changed.items():
            if name.startswith("contracts/"):
                yield from find_problems(data, name) if isinstance(data, dict) else [f"{name} is not a table"]
    finally:
        catalog.replace_tables({})


def _find_rule_problems(parts: dict[str, Any]) -> Iterator[str]:
    """Yield patterns that are not pairs, too many, or of a rule or a cause that nobody knows."""
    codes = {"", *rules.list_codes(), *parts["catalog/log_rules"]}
    slugs = {row["slug"] for row in parts["catalog/causes"]["cause"]}
    table = parts["catalog/patterns"]
    rows = table.get("rows") if isinstance(table, dict) and set(table) == {"rows"} else None
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
        yield "its patterns are not a list of codes and patterns"
        return
    if len(rows) > MAX_PATTERNS:
        yield f"it has more than {MAX_PATTERNS} patterns"
    for code, pattern in rows:
        if code not in codes or not isinstance(pattern, (str, dict)):
            yield f"a pattern belongs to {ascii(code)[:20]}, which is no rule"
        elif isinstance(pattern, dict) and code and pattern.get("cause") not in slugs:
            yield f"a pattern of {code} belongs to a cause that the file does not have"


def _make_tables(parts: dict[str, Any], path: str) -> Tables:
    """Return the tables as the compiled ones are: tuples in contracts, an index of them, the index of the patterns."""
    tables: Tables = {}
    index = []
    for name, data in parts.items():
        package, _, table = name.partition("/")
        tables[package, table] = freeze_contract_rows(data) if package == "contracts" else data
        index += [make_index_row(table, data)] if package == "contracts" else []
    tables["contracts", "index"] = sorted(index, key=lambda row: (row["framework"], row["version"], row["variant"]))
    tables["catalog", "patterns"] = _index_patterns(parts["catalog/patterns"]["rows"], path)
    if "catalog/systems" in parts:
        own = catalog.load_catalog("systems")["system"]
        drivers = {row["name"]: row["driver"] for row in own if "driver" in row}
        tables["catalog", "systems"] = _with_drivers(parts["catalog/systems"], drivers)
    return tables


def _index_patterns(rows: list[Any], path: str) -> dict[str, Any]:
    """Compile the patterns by the rules of the shipped ones: bounded, with a literal, no slow regular expression."""
    own: dict[str, Any] = catalog.load_catalog("patterns")
    if json.loads(json.dumps(own["rows"])) == rows:
        return own
    try:
        return build_pattern_table([(code, row) for code, row in rows])
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused(f"{path} is refused: {str(error)[:300]}; get a new one, or leave --knowledge out") from None


COMMAND_KEYS = ("run", "undo", "address", "git", "wheel", "tries", "requirement", "requirement_cuda13", "build_needs", "environment", "force", "prebuild")  # fmt: skip
_ORIGIN = r"(?:git\+)?(https://[a-z0-9.-]+)(?=/)(/[\w.-]+/[\w.-]+)?"
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._,\[\]=<>!~ -]*"
_ASSIGNMENT = r"(?!UV_|PIP_|LD_|PYTHON|PATH=|HOME=|BASH)[A-Z][A-Z0-9_]*=[A-Za-z0-9._;:+-]*"
_SHAPES = {
    **dict.fromkeys(("requirement", "requirement_cuda13", "build_needs"), _REQUIREMENT),
    **dict.fromkeys(("environment", "force", "prebuild"), _ASSIGNMENT),
}
_PLACEHOLDERS = ("{version}", "{tag}", "{wheel}", "{cuda}", "{torch}", "{build}", "{abi}", "{python}", "{machine}")


def find_command_problems(parts: dict[str, Any], own: dict[str, Any]) -> Iterator[str]:
    """Yield the texts that would bring an unknown address, an option, or a variable of an installer into a command."""
    known = {origin for text in _own_texts(own) for origin in _list_origins(text)}
    for name, data in parts.items():
        for key, text in _list_command_texts(data):
            yield from (f"{name} {key}: {problem}" for problem in _find_text_problems(key, text, known))


def _own_texts(own: dict[str, Any]) -> Iterator[str]:
    yield from (row["url"] for row in catalog.load_catalog("indexes")["index"])
    yield from (text for data in own.values() for _, text in _list_command_texts(data))


def _list_command_texts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts under keys that become words of commands."""
    if isinstance(value, list):
        for item in value:
            yield from _list_command_texts(item)
    elif isinstance(value, dict):
        for key, inner in value.items():
            texts = inner if isinstance(inner, list) else [inner]
            if key in COMMAND_KEYS:
                yield from ((key, text) for text in texts if isinstance(text, str))
            yield from _list_command_texts(inner)


def _list_origins(text: str) -> list[str]:
    """Return the projects (on GitHub) or hosts (elsewhere) of the addresses in a text."""
    found = re.findall(_ORIGIN, text)
    return [host + project if host == "https://github.com" else host for host, project in found]


def _find_text_problems(key: str, text: str, known: set[str]) -> Iterator[str]:
    if text.count("://") != len(_list_origins(text)) or not set(_list_origins(text)) <= known:
        yield f"the address {text[:120]!a} is of no project that gpuready knows"
    if key in _SHAPES and not re.fullmatch(_SHAPES[key], text):
        yield f"{text[:60]!a} is neither a package nor a setting that a build may have"
    if key in ("wheel", "tries", "address") and set(re.findall(r"{[^}]*}?|}", text)) - set(_PLACEHOLDERS):
        yield f"{text[:120]!a} has a placeholder that gpuready does not fill"
