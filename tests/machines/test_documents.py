"""Every answer in JSON keeps what its schema promised.

``documents-N.schema.json`` is the JSON Schema of the documents of schema N, frozen. A change that breaks it needs a new number, and
a new file beside the old one. Additions break nothing; `make docs` publishes them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from benchmarks.simulated_fleet import SimulatedTransport

import gpuready
from gpuready import workflow
from gpuready.model import SCHEMA, FixStep
from gpuready.model.bench import BenchMeasure, BenchResult, JobBench
from gpuready.model.fit import TimePrediction
from gpuready.model.plan import FixItem, FixOutcome, InstallFault, InstallResult
from gpuready.model.proof import ProofRecord
from gpuready.model.report_document import ReportDocument, parse_report_document
from gpuready.model.run import LaunchAttempt, LaunchJob, PreflightItem, RankEnd, RankVariable, RunNote, RunOutcome
from gpuready.render import fleet as fleet_screen
from gpuready.render import json_document, json_results
from gpuready.render import json_document as render
from gpuready.workflow import bench, catalog_lists, prove
from gpuready.workflow.contract_draft import check_contract_file
from tests.fleet import worlds
from tests.machines import goldens

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
SCHEMA_TOOL = [sys.executable, str(ROOT / "tools" / "json_schema.py")]
PUBLISHED = json.loads(subprocess.run(SCHEMA_TOOL, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True).stdout)
FROZEN = json.loads((HERE / f"documents-{SCHEMA}.schema.json").read_text())
H200, OLDER = str(HERE / "h200.json"), str(HERE / "old-driver.json")
KITE = 'framework = "kite"\nversion = "1.2"\norigin = "its README"\n'


def broken(old: dict, new: dict, at: str = "") -> list[str]:
    """Where a schema no longer promises what an older one of the same number did; additions break nothing."""
    found = []
    for name, then in old.get("properties", {}).items():
        now = new.get("properties", {}).get(name)
        if now is None:
            found.append(f"{at}.{name} is gone")
        elif without(then) != without(now):
            found.append(f"{at}.{name} is of another type")
    for key in ("anyOf", "allOf"):
        others = [*new.get(key, ()), *[{}] * len(old.get(key, ()))]
        for then, now in zip(old.get(key, ()), others, strict=False):
            found += broken(then, now, f"{at}.{key}")
    if old.get("$ref") != new.get("$ref"):
        found.append(f"{at} is no {old.get('$ref')}")
    return found + [
        f"{at}.{name} may be missing" for name in old.get("required", ()) if name not in new.get("required", ())
    ]


def without(field: dict) -> dict:
    return {key: value for key, value in field.items() if key != "description"}


def test_the_documents_keep_what_this_schema_promised():
    gone = [f"{name} is gone" for name in FROZEN["$defs"] if name not in PUBLISHED["$defs"]]
    kept = {name: old for name, old in FROZEN["$defs"].items() if name in PUBLISHED["$defs"]}
    wrong = [row for name, old in kept.items() for row in broken(old, PUBLISHED["$defs"][name], name)]
    assert not gone + wrong, "raise SCHEMA in model.py, or keep it"


def test_a_change_without_a_new_number_is_seen():
    old = FROZEN["$defs"]["Finding"]
    less = old | {"properties": {k: v for k, v in old["properties"].items() if k != "so"}, "required": ["code"]}
    other = old | {"properties": old["properties"] | {"code": {"type": "integer"}}}
    more = old | {"properties": old["properties"] | {"new": {}}, "required": [*old["required"], "new"]}
    assert broken(old, less) and broken(old, other) and not broken(old, more)
    plan, fit = FROZEN["$defs"]["plan"], FROZEN["$defs"]["fit"]
    assert broken(plan, plan | {"anyOf": plan["anyOf"][:1]}) and broken(fit, fit | {"allOf": []})


def test_an_old_report_is_read_with_all_its_parts():
    """``report-N.json`` is a report as schema N wrote it, with every part: what other commands wrote is read back from it."""
    old = json.loads((HERE / f"report-{SCHEMA}.json").read_text())
    check_against(old, "report", FROZEN)
    found = parse_report_document(old)
    (judged,), (plan,) = found.reports, found.plans
    assert (found.verdict, judged.verdict, found.fleet.verdict) == ("not-ready",) * 3
    assert judged.contract.framework == "colossalai" and judged.facts.value("gpu.name") == ("NVIDIA H200",)
    assert (len(found.proofs.proofs), len(found.bench.measures), found.fit.verdict) == (2, 1, "fits")
    assert plan.torch and found.fleet.nodes == 6 and found.notes == ("a note",)
    assert not lost(old | {"gpuready": ""}, json.loads(json_results.render_json("report", found)) | {"gpuready": ""})


def lost(old: object, new: object, at: str = "") -> list[str]:
    """What an old document says and the same one read and written again does not; fields that came since are no loss."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [row for key, value in old.items() for row in lost(value, new.get(key), f"{at}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [row for at_, pair in enumerate(zip(old, new, strict=True)) for row in lost(*pair, f"{at}[{at_}]")]
    return [] if old == new else [f"{at}: {old!r} is {new!r}"]


# -- every answer there is ------------------------------------------------------------------------------------


def a_report():
    return goldens.report("lost", "transformers")


def evidence() -> ProofRecord:
    first = (ROOT / "benchmarks" / "results" / "prove-h200.jsonl").read_text().partition("\n")[0]
    return ProofRecord.from_json(json.loads(first))


def measured() -> BenchResult:
    rows = (BenchMeasure("matmul-bf16", "as-expected", "gpu 0", 7.0e14, "FLOP/s", 9.9e14, 0.7, (0.6, 0.8)),)
    return BenchResult("host", "/usr/bin/python3", a_report(), rows)


def fleet():
    nodes = worlds.names(6)
    deviating = {nodes[2]: {"driver.version": "550.54.15"}}
    return worlds.judge_all(SimulatedTransport(nodes, worlds.machine(), deviating, dead=nodes[4:5]))


def outcome() -> RunOutcome:
    job = LaunchJob("local", "/usr/bin/python3", "script", ("train.py",), 2, variables=(RankVariable("A", "1", "why"),))
    ends = (RankEnd(0, "host", 7, 1, last=("Traceback",)), RankEnd(1, "host", 8, stopped=True))
    return RunOutcome(
        job, (LaunchAttempt(ends, (0,), notes=(RunNote("hint", "slow"),), code=1),), 1, "failed", "rank 0 failed"
    )


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


ANSWERS = {
    "check": lambda at: [json_document.render_check_json([a_report()], True), json_document.render_check_json([a_report()] * 2, False)],
    "prove": lambda at: [json_results.render_json("prove", SimpleNamespace(reports=[a_report()], evidence=evidence(), saved="x"))],
    "error": lambda at: [json_document.render_error_json("refused", "m.json does not exist", 2)],
    "proofs": lambda at: [json_results.render_json("proofs", prove.list_proofs())],
    "plan": lambda at: [gpuready.plan("vllm", on=H200, resolve=False).json(),
                        gpuready.plan("vllm", "trl", on="h100", resolve=False).json()],
    "install": lambda at: [json_results.render_json("install", InstallResult("damaged", "/venv", steps=(FixStep("a"),), faults=(InstallFault("a", "b"),), report=a_report()))],
    "fix": lambda at: [json_results.render_json("fix", FixOutcome("dry-run", items=(FixItem(1, "a", "you"),), before=a_report()))],
    "env": lambda at: [gpuready.env("vllm", on=H200).json()],
    "fit": lambda at: [gpuready.fit("llama-3.2-1b", on="h100").json()],
    "diagnose": lambda at: [gpuready.diagnose(written(at, "a.log", "torch.OutOfMemoryError: CUDA out of memory.\n"), on=H200).json()],
    "bench": lambda at: [json_results.render_json("bench", measured())],
    "job_bench": lambda at: [json_results.render_json("job_bench", JobBench("a.yml", "NVIDIA H200", {}, TimePrediction(0.2), {"step": 0.21}, 2, 1, "2.11.0"))],
    "measures": lambda at: [json_results.render_json("measures", bench.list_measures())],
    "fleet": lambda at: [json_results.render_json("fleet", fleet())],
    "exclude": lambda at: [fleet_screen.render_exclude_list(fleet(), as_json=True)],
    "report": lambda at: [json_results.render_json("report", ReportDocument((a_report(),))), json_results.render_json("report", ReportDocument((a_report(),), evidence(), measured(), fleet=fleet()))],
    "probe": lambda at: [gpuready.probe(H200).json()],
    "recording": lambda at: [(HERE / f"schema-{SCHEMA}.json").read_text(), (HERE / "bare.json").read_text()],
    "diff": lambda at: [json_results.render_json("diff", "a", "b", workflow.diff_machines(H200, OLDER, "transformers"))],
    "contract": lambda at: [gpuready.contract("vllm").json()],
    "contracts": lambda at: [gpuready.contract().json()],
    "contract_diff": lambda at: [json_results.render_json("contract_diff", "a", "b", workflow.contract_diff("axolotl==0.18", "axolotl==0.21", files=True))],
    "contract_check": lambda at: [json_results.render_json("contract_check", check_contract_file(written(at, "k.toml", text))) for text in ("", KITE)],
    "explain": lambda at: [gpuready.explain("DRV001").json()],
    "codes": lambda at: [gpuready.explain().json()],
    "start": lambda at: [],  # what run --dry-run gives is held to the schema below, by the command itself
    "refused": lambda at: [json_results.render_json("refused", 2, [PreflightItem("script", "error", "it is not there")])],
    "run": lambda at: [json_results.render_json("run", outcome(), None)],
    "names": lambda at: [json_results.render_json("names", "gpus", catalog_lists.list_completion_names("gpus"))],
}  # fmt: skip


def check_against(document: object, name: str, *schemas: dict) -> None:
    """A document that is newer than the frozen schema is in the published one alone."""
    for schema in schemas or [one for one in (FROZEN, PUBLISHED) if name in one["$defs"]]:
        checker = jsonschema.Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{name}"})
        wrong = [
            f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
            for error in checker.iter_errors(document)
        ]
        assert not wrong


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_fits_its_schema(name, tmp_path):
    for text in ANSWERS[name](tmp_path):
        check_against(json.loads(text), name)


def test_a_start_that_is_only_planned_fits_its_schema(tmp_path):
    script = written(tmp_path, "a.py", "print(1)\n")
    argv = [sys.executable, "-m", "gpuready", "run", "--dry-run", "--json", "--nproc", "2", "--", script]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True)
    check_against(json.loads(ran.stdout), "start")


def test_no_answer_is_without_a_schema():
    """A new document needs its schema in tools/json_schema.py, and an example here."""
    assert {*json_results.FIELDS, "check", "error", "exclude"} == set(ANSWERS)
    small = {name for name in PUBLISHED["$defs"] if name.islower()}
    assert set(ANSWERS) <= small and {row["$ref"].rpartition("/")[2] for row in PUBLISHED["anyOf"]} == set(ANSWERS)


@pytest.mark.parametrize("name", ["h100", "halves", "bare", "apple", "h200-real"])
def test_reports_of_all_kinds_of_machines_fit_the_schema(name):
    check_against(json.loads(json_document.render_check_json([goldens.report(name, "transformers")], True)), "check")
    check_against(json.loads(goldens.recorded(name)), "recording")


WRONG = ({"verdict": "fine"}, {"findings": [{"code": 7}]}, {"facts": {}}, {"schema": SCHEMA + 1})


@pytest.mark.parametrize("wrong", WRONG, ids=lambda row: next(iter(row)))
def test_a_document_that_is_wrong_does_not_fit(wrong):
    document = json.loads(render.format_json_document(render.report_json_fields(goldens.report("bare-real", "vllm"))))
    check_against(document, "check")
    with pytest.raises(AssertionError):
        check_against(document | wrong, "check")
