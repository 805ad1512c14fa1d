"""Print the JSON Schema of the documents, made from the records; in the site it is reference/documents.schema.json.

    python tools/json_schema.py

A document has every field of its record, so all are required; fields may be added at any time, so more are allowed. What stands
under ``$defs`` by the name of a record is that record; the names in small letters are the documents, as render/json_results.py has
them. The frozen copy in the tests holds every later schema of the same number to what it promised.
"""

import inspect
import json
import re
from types import ModuleType
from typing import Any

from gpuready import model
from gpuready.check import changes
from gpuready.model import bench, contract, diagnosis, facts, fit, fleet, plan, proof, report, report_document, run
from gpuready.model.record import Record
from gpuready.render.json_document import RENAMED

MODULES = (facts, contract, report, plan, fit, diagnosis, proof, bench, fleet, report_document, changes, run)
FIELD = re.compile(r"^    ([a-z]\w*): ([^=#]+?)(?:\s*= ([^#]*?))?\s*(?:# (?!type:)(.*))?$")
WORDS: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
}
VERDICTS = {"enum": ["ready", "clear", "not-ready", "undecided"]}
HEAD = {"schema": {"const": model.SCHEMA}, "gpuready": {"type": "string"}}
TEXT, NUMBER = WORDS["str"], WORDS["int"]
SAID = {"verdict": TEXT, "exit": NUMBER}
OPTIONAL = {"FitResult": ("largest",)}
"""Fields that a document leaves out where they do not apply."""


def list_records(module: ModuleType) -> list[type[Record]]:
    found = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Record) and c is not Record]
    return [c for c in found if c.__module__ == module.__name__]


NAMES = {cls.__name__ for module in MODULES for cls in list_records(module)}


def schema() -> dict[str, Any]:
    """The whole of it. Which document a file is, its place under ``$defs`` tells better than the root, which takes them all."""
    every = documents()
    defs = {cls.__name__: of_record(cls) for module in MODULES for cls in list_records(module)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpuready documents, schema {model.SCHEMA}",
        "anyOf": [ref(name) for name in every],
        "$defs": every | parts() | defs,
    }


def parts() -> dict[str, Any]:
    """What stands alone in one document and in a list in another: a record with its verdict."""
    judged = {"verdict": VERDICTS, "exit": NUMBER, "host": TEXT, "judged_by": TEXT, "lacking": many(TEXT)}
    return {
        "judged": thing(judged, also=ref("Report")),
        "planned": thing(SAID, also=ref("Plan")),
        "measured": thing(SAID | {"kind": {"const": "bench"}, "report": ref("judged")}, also=ref("BenchResult")),
        "sized": thing(SAID | {"fits": {}, "places": many(placed()), "gpus": many(placed())}, also=ref("FitResult")),
        "fleeted": thing(SAID, also=ref("FleetReport")),
        "diagnosed": thing(SAID, also=ref("Diagnosis")),
    }


def placed() -> dict[str, Any]:
    return thing({"room": many(NUMBER)}, also=ref("GpuCandidate"))


def documents() -> dict[str, Any]:
    """The answers of the commands, by their names in render/json_results.py."""
    judged = {"verdict": VERDICTS, "exit": NUMBER}
    plans = {"plans": many(ref("planned")), "environments": many(many(TEXT)), "conflicts": many(ref("PlanConflict"))}
    compared = {"a": TEXT, "b": TEXT}
    code = dict.fromkeys(("code", "name", "severity", "title"), TEXT) | {"reads": many(TEXT), "signs": many({})}
    return {
        "check": {"anyOf": [headed(also=ref("judged")), headed(judged | {"reports": many(ref("judged"))})]},
        "prove": headed({"evidence": ref("ProofRecord"), "saved": TEXT}, also=ref("check")),
        "proofs": headed({"proofs": many(rows("name", "says", "device"))}),
        "plan": {"anyOf": [headed(also=ref("planned")), headed(SAID | plans)]},
        "install": headed(also=ref("InstallResult")),
        "fix": headed(SAID, also=ref("FixOutcome")),
        "env": headed(also=ref("EnvironmentSettings")),
        "fit": headed(also=ref("sized")),
        "diagnose": headed(also=ref("diagnosed")),
        "bench": headed(also=ref("measured")),
        "job_bench": headed({"ratio": {}, "exit": NUMBER}, also=ref("JobBench")),
        "measures": headed({"measures": many(rows("name", "says", "unit", "device"))}),
        "fleet": headed(also=ref("fleeted")),
        "exclude": headed(SAID | {"exclude": TEXT, "selector": {"type": "object"}, "blames": {"type": "object"}}),
        "report": headed(judged | whole()),
        "probe": headed({"host": TEXT, "facts": many(ref("Fact"))}),
        "recording": headed({"kind": {"const": "recording"}, "host": TEXT, "facts": many(ref("Fact"))}),
        "diff": headed(compared | {"changes": many(thing({"worse": WORDS["bool"]}, also=ref("FactChange")))}),
        "contract": headed(also=ref("Contract")),
        "contracts": headed({"contracts": many(rows("framework", "version", "variant", "distribution"))}),
        "contract_diff": headed(compared | {"changes": many({})}),
        "contract_check": headed({"exit": NUMBER}, also=ref("ContractCheck")),
        "explain": headed(code | {"text": TEXT}),
        "codes": headed({"rules": many(thing(code))}),
        "start": headed({"job": ref("LaunchJob"), "command": many(TEXT), "variables": many(ref("RankVariable")),
                         "sights": many(ref("PreflightItem"))}),
        "refused": headed(SAID | {"sights": many(ref("PreflightItem"))}),
        "run": headed(SAID, also=ref("RunOutcome")),
        "names": headed({"kind": TEXT, "names": many(TEXT)}),
        "error": headed({"error": thing({"kind": TEXT, "message": TEXT, "exit": NUMBER})}),
    }  # fmt: skip


def whole() -> dict[str, Any]:
    """The parts of a whole report, each null where it was not asked for."""
    names = {"proofs": "ProofRecord", "bench": "measured", "fit": "sized", "fleet": "fleeted"}
    asked = {part: {"anyOf": [ref(name), {"type": "null"}]} for part, name in names.items()}
    reports = {"reports": many(ref("judged")), "notes": many(TEXT), "plan": {"type": ["object", "null"]}}
    return {"kind": {"const": "report"}, "made": TEXT, **reports, **asked}


def headed(fields: dict[str, Any] | None = None, also: dict[str, Any] | None = None) -> dict[str, Any]:
    return thing(HEAD | (fields or {}), also)


def rows(*names: str) -> dict[str, Any]:
    return thing(dict.fromkeys(names, TEXT))


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def many(one: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": one}


def thing(fields: dict[str, Any], also: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object; of what was renamed it has both spellings in this release."""
    fields = fields | {new: fields[old] for old, new in RENAMED.items() if old in fields}
    fields |= {"answer": TEXT} if "verdict" in fields else {}
    return {"type": "object", "properties": fields, "required": list(fields), **({"allOf": [also]} if also else {})}


def of_record(cls: type[Record]) -> dict[str, Any]:
    """Every field of a record with its type, and its first sentence."""
    lines = (FIELD.match(line) for line in inspect.getsource(cls).splitlines())
    settings = {match[1]: match[2].strip() for match in lines if match and match[1] in cls._fields}
    fields = {name: of_field(cls, name, settings.get(name, "Any")) for name in cls._fields}
    summary = " ".join((cls.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    made = {"description": summary, **thing(fields)}
    made["required"] = [name for name in made["required"] if name not in OPTIONAL.get(cls.__name__, ())]
    return made | {"required": []} if "to_json" in vars(cls) else made  # it leaves out what does not apply


def of_field(cls: type[Record], name: str, annotation: str) -> dict[str, Any]:
    nested = cls.nested_records().get(name)
    if nested is not None:
        listed = annotation.startswith(("tuple", "list"))
        plain = many(ref(nested.__name__)) if listed else ref(nested.__name__)
        return {"anyOf": [plain, {"type": "null"}]} if "None" in annotation.split(" | ") else plain
    return many(ref("Fact")) if annotation == "Facts" else of_type(annotation)


def of_type(annotation: str) -> dict[str, Any]:
    """``tuple[str, ...]``, ``dict[str, float]``, ``int | None``; anything else may be anything."""
    if annotation.endswith("] | None"):
        return {"anyOf": [of_type(annotation.removesuffix(" | None")), WORDS["None"]]}
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


if __name__ == "__main__":
    print(text(), end="")
