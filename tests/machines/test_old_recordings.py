"""Recordings of every schema that there was stay readable, and the documents keep what their schema promised.

``schema-N.json`` is a small recording as schema N wrote it, ``documents-N.schema.json`` the JSON Schema of its documents; both are
frozen. A change that breaks them needs a new number, and new files beside the old ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tarmac.model import SCHEMA
from tarmac.render import json as render
from tarmac.workflow import Refused, check
from tests.machines import goldens

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "docs" / "reference" / "documents.schema.json").read_text())
FROZEN = json.loads((HERE / f"documents-{SCHEMA}.schema.json").read_text())
OLD = sorted(HERE.glob("schema-*.json"))


def changed(tmp_path: Path, **fields: object) -> str:
    data = json.loads((HERE / f"schema-{SCHEMA}.json").read_text()) | fields
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(data))
    return str(path)


# -- recordings ---------------------------------------------------------------------------------------------


def test_there_is_a_frozen_recording_of_every_schema():
    assert [json.loads(path.read_text())["schema"] for path in OLD] == list(range(1, SCHEMA + 1))


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_an_old_recording_is_read_and_judged(path):
    (report,) = check(["transformers"], on=str(path))
    assert report.verdict == "clear" and len(report.judged) > 40
    assert report.facts.value("gpu.name") == ("NVIDIA H200",)


def test_a_recording_of_the_future_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(Refused) as refused:
        check(["transformers"], on=changed(tmp_path, schema=SCHEMA + 1))
    assert f"has schema {SCHEMA + 1} and this tarmac reads {SCHEMA}: upgrade tarmac" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("schema", [None, "1", 0.5, -1, 0, True])
def test_a_schema_that_is_none_is_refused(tmp_path, schema):
    with pytest.raises(Refused):
        check(["transformers"], on=changed(tmp_path, schema=schema))


def test_keys_that_nobody_knows_change_nothing(tmp_path):
    plain = check(["transformers"], on=changed(tmp_path))
    facts = [
        fact | {"later": [1, 2]} for fact in json.loads((HERE / f"schema-{SCHEMA}.json").read_text())["facts"]
    ]
    more = check(["transformers"], on=changed(tmp_path, facts=facts, later={"a": 1}, tape=None))
    assert render.reports(plain) == render.reports(more)


# -- the schema of the documents ------------------------------------------------------------------------------


def test_the_published_schema_is_made_from_the_nouns():
    argv = [sys.executable, str(ROOT / "tools" / "json_schema.py"), "--check"]
    ran = subprocess.run(argv, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}: python tools/json_schema.py writes it"


def broken(old: dict, new: dict, at: str = "") -> list[str]:
    """Where a schema no longer promises what an older one of the same number did; additions break nothing."""
    found = []
    for name, then in old.get("properties", {}).items():
        now = new.get("properties", {}).get(name)
        if now is None:
            found.append(f"{at}.{name} is gone")
        elif {k: v for k, v in then.items() if k != "description"} != {
            k: v for k, v in now.items() if k != "description"
        }:
            found.append(f"{at}.{name} is of another type")
    return found + [
        f"{at}.{name} may be missing"
        for name in old.get("required", ())
        if name not in new.get("required", ())
    ]


def test_the_documents_keep_what_this_schema_promised():
    gone = [f"{name} is gone" for name in FROZEN["$defs"] if name not in PUBLISHED["$defs"]]
    kept = {name: old for name, old in FROZEN["$defs"].items() if name in PUBLISHED["$defs"]}
    wrong = [row for name, old in kept.items() for row in broken(old, PUBLISHED["$defs"][name], name)]
    assert not gone + wrong, "raise SCHEMA in model.py, or keep it"


def test_a_change_without_a_new_number_is_seen():
    old = FROZEN["$defs"]["Finding"]
    less = old | {
        "properties": {k: v for k, v in old["properties"].items() if k != "so"},
        "required": ["code"],
    }
    other = old | {"properties": old["properties"] | {"code": {"type": "integer"}}}
    more = old | {"properties": old["properties"] | {"new": {}}, "required": [*old["required"], "new"]}
    assert broken(old, less) and broken(old, other) and not broken(old, more)


def held_to(document: object, name: str) -> None:
    for schema in (FROZEN, PUBLISHED):
        jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{name}"}).validate(document)


@pytest.mark.parametrize("name", ["h100", "lost", "halves", "bare", "apple", "h200-real"])
def test_real_outputs_fit_the_schema(name):
    report = goldens.report(name, "transformers")
    held_to(json.loads(render.document(render.report(report))), "check")
    held_to(json.loads(render.document(render.reports([report, report]))), "check")
    held_to(goldens.recorded(name), "recording")


def test_a_document_that_is_wrong_does_not_fit():
    document = json.loads(render.document(render.report(goldens.report("bare-real", "vllm"))))
    for wrong in ({"verdict": "fine"}, {"findings": [{"code": 7}]}, {"facts": {}}, {"schema": SCHEMA + 1}):
        with pytest.raises(jsonschema.ValidationError):
            held_to(document | wrong, "check")
