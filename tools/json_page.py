"""The pages of the JSON documents, one for each module of records, written from the records themselves; used by reference.py."""

from __future__ import annotations

import functools
import inspect
import re
from types import ModuleType

from gpuready import model
from gpuready.model import bench, contract, diagnosis, facts, fit, fleet, plan, proof, report, report_document
from gpuready.model.record import Record

MODULES = (facts, contract, report, plan, fit, diagnosis, proof, bench, fleet, report_document)
"""In the order of the index."""
COMMANDS = """\
| command | document |
|---|---|
| `check` | [Report](#report) of one framework, else `reports`: a list; with `verdict`, `exit`, `host` |
| `plan` | [Plan](#plan) of one framework, else `plans`: a list; with `exit` |
| `install` | [InstallResult](#installresult) |
| `fix` | [FixOutcome](#fixoutcome); with `exit` |
| `env` | [EnvironmentSettings](#environmentsettings) |
| `fit` | [FitResult](#fitresult) |
| `diagnose` | [Diagnosis](#diagnosis) |
| `prove` | [Report](#report), with `evidence` ([ProofRecord](#proofrecord)) and `saved`, the file that it is kept in |
| `bench` | [BenchResult](#benchresult) |
| `fleet` | [FleetReport](#fleetreport); with `--exclude` only `exclude`, `selector` and `blames` |
| `run` | how it ended: `verdict`, `exit`, `says`, `attempts`, `diagnosis`; with `--dry-run` what would start: `job`, `command`, `variables`, `sights`; where it is refused, `sights` |
| `report --json` | [ReportDocument](#reportdocument): each part as its own command writes it |
| `probe` | `host` and `facts`: a list of [Fact](#fact); with `-o` also `tape`, the redacted answers that they were read from |
| `contract show` | [Contract](#contract) |
| `contract list`, `diff`, `import` | `contracts`; `a`, `b` and `changes`; `contract` and `unplaced` |
| `explain` | `code`, `name`, `severity`, `title`, `text`, `reads`, `signs`; without a code `rules`: a list |
| `prove --list`, `bench --list` | `proofs`; `measures` |
| `diff` | `a`, `b` and `changes` |
| any, without an answer | `error`: `kind` (refused, failed, timeout, interrupted), `message`, `exit` |

An error is such a document on stdout, also where the command line itself is wrong, and the same sentence on stderr; the exit code is that of
the document: 2 refused or failed, 124 timeout, 130 interrupted (143 and 129 where a signal of the system ended it). stdout has one document or none.
"""
INTRODUCTION = f"""\
# JSON

`--json` gives the same answer as the screen. Every document has `schema`, today {model.SCHEMA}; it is raised when a field changes its
meaning. Fields may be added: leave aside what you do not know. Sizes are bytes, times seconds, power watts. The documents of
Python (`answer.json()`), MCP (with `detail=full`) and the web are the same, byte for byte. [documents.schema.json](../documents.schema.json) is their JSON
Schema, each under `$defs` by its name: `check`, `plan`, `fit`, `run`.

{COMMANDS}
"""
FIELD = re.compile(r"^    ([a-z]\w*): ([^=#]+?)(?:\s*= ([^#]*?))?\s*(?:# (?!type:)(.*))?$")
DEFAULTS = {"field(default_factory=dict)": "{}"}
WORDS = {"str": "text", "int": "number", "float": "number", "bool": "true or false", "Any": "any"}


def index_page() -> str:
    """What each command writes, and the pages of the records."""
    pages = record_files()
    listed = [
        f"| [{module_title(module)}]({module_file(module)}) | {', '.join(cls.__name__ for cls in records(module))} |"
        for module in MODULES
    ]
    documents = re.sub(r"\]\(#(\w+)\)", lambda link: f"]({pages[link[1]]}#{link[1]})", INTRODUCTION)
    return "\n".join([documents, "## The records\n", "| page | records |\n|---|---|", *listed]) + "\n"


def record_pages() -> dict[str, str]:
    """Each page by its file name. A link to a record of another page names that page."""
    pages = record_files()

    def put(here: str, link: re.Match[str]) -> str:
        return link[0] if pages[link[1]] == here else f"]({pages[link[1]]}#{link[1]})"

    made = {}
    for module in MODULES:
        here = module_file(module)
        text = "\n".join([f"# JSON: {module_title(module)}\n", *(of_record(cls, module) for cls in records(module))])
        made[here] = re.sub(r"\]\(#(\w+)\)", functools.partial(put, here), text)
    return made


def record_files() -> dict[str, str]:
    """The anchor of each record -> the file name of its page."""
    return {cls.__name__.lower(): module_file(module) for module in MODULES for cls in records(module)}


def module_file(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2].replace("_", "-") + ".md"


def module_title(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2].replace("_", " ")


def records(module: ModuleType) -> list[type[Record]]:
    found = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Record) and c is not Record]
    return [c for c in found if c.__module__ == module.__name__]


def of_record(cls: type[Record], module: ModuleType) -> str:
    summary = " ".join((cls.__doc__ or "").split())
    lines = [
        f"## {cls.__name__}\n",
        f"{summary.replace('``', '`').replace('<', '&lt;')}\n",
        "| field | type | default | meaning |",
        "|---|---|---|---|",
    ]
    fields = [m for line in inspect.getsource(cls).splitlines() if (m := FIELD.match(line)) and m[1] in cls._fields]
    for match in fields:
        nested = cls.nested_records().get(match[1])
        kind = kind_of(match[2].strip(), nested, cls)
        default = "" if match[3] is None else f"`{DEFAULTS.get(match[3], match[3].strip('()')) or 'empty'}`"
        meaning = re.sub(r"^type: .*?#\s*", "", match[4] or "")
        lines.append(
            f"| `{match[1]}` | {kind} | {default if match[3] else 'required'} | {meaning.replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


def kind_of(annotation: str, nested: type[Record] | None, cls: type[Record]) -> str:
    if nested is not None:
        link = f"[{nested.__name__}](#{nested.__name__.lower()})"
        return f"list of {link}" if annotation.startswith(("tuple", "list")) else link
    if annotation == "Facts":
        return "list of [Fact](#fact)"
    text = annotation.replace("Mapping", "dict")
    if match := re.fullmatch(r"(?:tuple|list)\[(\w+), \.\.\.\]", text):
        return f"list of {WORDS.get(match[1], match[1])}"
    if text.startswith(("tuple", "list")):
        return "list"
    if text.startswith("dict"):
        return "object"
    words = [WORDS.get(w.strip(), "null" if w.strip() == "None" else w.strip()) for w in text.split("|")]
    return " or ".join(words)
