"""The JSON Schema of the documents, written from the nouns: docs/reference/documents.schema.json.

    python tools/json_schema.py [--check]

A document has every field of its noun, so all are required; fields may be added at any time, so more are allowed. What stands
under ``$defs`` by the name of a noun is that noun; ``check`` and ``recording`` are the documents of `tarmac check --json` and of
`tarmac probe -o`. The frozen copy in the tests holds every later schema of the same number to what it promised.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from json_page import FIELD, nouns, title

from tarmac import benched, diagnosed, fitted, fleeted, model, planned, proven, reported
from tarmac.noun import Noun

PATH = Path(__file__).parent.parent / "docs" / "reference" / "documents.schema.json"
MODULES = (model, planned, fitted, diagnosed, proven, benched, fleeted, reported)
WORDS: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
}
NAMES = {title(cls) for module in MODULES for cls in nouns(module)}
VERDICTS = {"enum": ["ready", "clear", "not-ready", "undecided"]}
HEAD = {"schema": {"const": model.SCHEMA}, "tarmac": {"type": "string"}}


def schema() -> dict[str, Any]:
    """The whole of it."""
    defs = {title(cls): of_noun(cls) for module in MODULES for cls in nouns(module)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tarmac documents, schema {model.SCHEMA}",
        "$ref": "#/$defs/check",
        "$defs": documents() | defs,
    }


def documents() -> dict[str, Any]:
    judged = {"verdict": VERDICTS, "exit": {"type": "integer"}}
    one = thing(judged | {"host": {"type": "string"}}, also=ref("Report"))
    several = thing(HEAD | judged | {"reports": {"type": "array", "items": ref("judged")}})
    recorded = HEAD | {"kind": {"const": "recording"}, "host": {"type": "string"}, "facts": many(ref("Fact"))}
    return {
        "check": {"anyOf": [thing(HEAD, also=ref("judged")), several]},
        "judged": one,
        "recording": thing(recorded),
    }


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def many(one: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": one}


def thing(fields: dict[str, Any], also: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        **({"allOf": [also]} if also else {}),
    }


def of_noun(cls: type[Noun]) -> dict[str, Any]:
    """Every field of a noun with its type, and its first sentence."""
    lines = (FIELD.match(line) for line in inspect.getsource(cls).splitlines())
    told = {match[1]: match[2].strip() for match in lines if match and match[1] in cls._fields}
    fields = {name: of_field(cls, name, told.get(name, "Any")) for name in cls._fields}
    story = " ".join((cls.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    made = {"description": story, **thing(fields)}
    return made | {"required": []} if "to_json" in vars(cls) else made  # it leaves out what does not apply


def of_field(cls: type[Noun], name: str, annotation: str) -> dict[str, Any]:
    nested = cls._nested.get(name)
    if nested is not None:
        listed = annotation.startswith(("tuple", "list"))
        plain = many(ref(title(nested))) if listed else ref(title(nested))
        return {"anyOf": [plain, {"type": "null"}]} if "None" in annotation.split(" | ") else plain
    return many(ref("Fact")) if annotation == "Facts" else of_type(annotation)


def of_type(annotation: str) -> dict[str, Any]:
    """``tuple[str, ...]``, ``dict[str, float]``, ``int | None``; anything else may be anything."""
    if match := re.fullmatch(r"(?:tuple|list)\[([\w ]+), \.\.\.\]", annotation):
        return many(of_type(match[1]))
    if annotation.startswith(("tuple", "list")):
        return {"type": "array"}
    if annotation.startswith(("dict", "Mapping")):
        return {"type": "object"}
    words = [word.strip() for word in annotation.split("|")]
    known = WORDS | {name: ref(name) for name in NAMES}
    if all(word in known for word in words):
        kinds = [known[word] for word in words]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {}


def text() -> str:
    return json.dumps(schema(), indent=1) + "\n"


def main() -> None:
    if "--check" in sys.argv[1:]:
        fresh = PATH.exists() and PATH.read_text() == text()
        print("" if fresh else f"stale: {PATH.name}", end="" if fresh else "\n")
        sys.exit(0 if fresh else 1)
    PATH.write_text(text())


if __name__ == "__main__":
    main()
