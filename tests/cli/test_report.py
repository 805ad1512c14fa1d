"""``gpuready report`` as a user has it: files written and spared, parts from files, refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.render import bench
from gpuready.render import json_document as documents
from gpuready.workflow import prove
from tests import running
from tests.render import pages
from tests.running import call_gpuready as gpuready

H200 = str(Path(__file__).parents[1] / "machines" / "h200.json")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Files of the other commands."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "bench.json").write_text(documents.format_json_document(bench.bench_json_fields(pages.benched())))
    (folder / "proofs.json").write_text(prove.evidence_document(pages.evidence()))
    (folder / "fleet.json").write_text(documents.format_json_document(pages.fleet(64).fields()))
    return folder


def test_one_file_and_the_verdict(tmp_path):
    run = gpuready("report", "transformers", "--on", H200, cwd=tmp_path)
    assert (run.code, run.out) == (
        0,
        "transformers 5.17.0: no problems found (nothing imported)\n",
    ) and "wrote gpuready-report.html" in run.err
    page = (tmp_path / "gpuready-report.html").read_text()
    assert page.startswith("<!doctype html>") and "NVIDIA H200" in page
    again = gpuready("report", "transformers", "--on", H200, "--driver", "525.60.13", cwd=tmp_path)
    assert again.code == 1 and "not ready" in (tmp_path / "gpuready-report.html").read_text(), (
        "its own page is written over"
    )


def test_a_file_that_is_no_report_is_spared(tmp_path):
    (tmp_path / "thesis.html").write_text("<p>years of work on gpuready report</p>")
    run = gpuready("report", "transformers", "--on", H200, "-o", "thesis.html", cwd=tmp_path)
    assert run.code == 2 and run.err.count("\n") == 1 and "is not a report of gpuready" in run.err
    assert "years of work" in (tmp_path / "thesis.html").read_text()
    assert gpuready("report", "transformers", "--on", H200, "-o", ".", cwd=tmp_path).code == 2
    assert gpuready("report", "transformers", "--on", H200, "-o", "no/such/folder.html", cwd=tmp_path).code == 2


def test_every_part_from_its_file(tmp_path, kept):
    fit = gpuready("fit", "qwen2.5-0.5b", "--seq", "512", "--on", "h100", "--json")
    (tmp_path / "fit.json").write_text(fit.out)
    run = gpuready(
        "report", "transformers", "--on", H200, "--plan", "--fit", "fit.json", "--bench", str(kept / "bench.json"),
        "--proofs", str(kept / "proofs.json"), "--fleet", str(kept / "fleet.json"), "-o", "-", cwd=tmp_path,
    )  # fmt: skip
    assert run.code == 1, run.err
    for part in ("machine", "checks", "findings", "proofs", "bench", "memory", "plan", "facts", "fleet"):
        assert f'<section id="{part}"' in run.out
    assert not list(tmp_path.glob("*.html"))
    # Of another machine: shown, and not counted.
    assert "the proofs are not counted" in run.out


def test_the_parts_of_the_json_are_the_answers_of_the_commands(tmp_path, kept):
    run = gpuready(
        "report",
        "transformers",
        "--on",
        H200,
        "--fleet",
        str(kept / "fleet.json"),
        "--bench",
        str(kept / "bench.json"),
        "--json",
        cwd=tmp_path,
    )
    document = json.loads(run.out)
    alone = json.loads(gpuready("check", "transformers", "--on", H200, "--json").out)
    assert {"schema": 1, "gpuready": document["gpuready"], **document["reports"][0]} == alone
    for part in ("fleet", "bench"):
        assert document[part].items() <= json.loads((kept / f"{part}.json").read_text()).items()
    assert not list(tmp_path.iterdir()), "a page only where -o asks for one"
    assert document["exit"] == run.code == 1 and document["kind"] == "report"


def test_a_fleet_alone_does_not_look_at_this_machine(tmp_path, kept):
    run = gpuready("report", "--fleet", str(kept / "fleet.json"), cwd=tmp_path)
    assert run.out.startswith("fleet of 64 nodes: not ready") and run.code == 1
    assert '<section id="facts"' not in (tmp_path / "gpuready-report.html").read_text()


def test_proofs_of_this_machine_are_counted(tmp_path):
    from gpuready.model.proof import ProofRecord, ProofResult
    from gpuready.workflow import machine_facts

    facts = machine_facts.read_recording(H200)
    keys = ("gpu.name", "gpu.uuid", "driver.version", "package.torch")
    machine = {key: facts.value_if_known(key) for key in keys}
    broken = ProofResult("training-step", "failed", "the loss is nan", "cuda:0", capability=("training-step",))
    good = ProofRecord(facts.host, "/opt/python", (broken,), machine=json.loads(json.dumps(machine)))
    (tmp_path / "e.json").write_text(prove.evidence_document(good.with_digest()))
    document = json.loads(
        gpuready("report", "transformers", "--on", H200, "--proofs", "e.json", "--json", cwd=tmp_path).out
    )
    assert document["notes"] == []
    known = {fact["key"]: fact for fact in document["reports"][0]["facts"]}
    assert known["can.training-step"]["value"] is False and known["can.training-step"]["how"] == "run"
    (tmp_path / "e.json").write_text(
        prove.evidence_document(good.with_digest()).replace("the loss is nan", "the loss is fine")
    )
    changed = gpuready("report", "transformers", "--on", H200, "--proofs", "e.json", cwd=tmp_path)
    assert changed.code == 2 and "was changed after it was made" in changed.err


BAD = ["", "{", "[]", "7", '{"schema": 99}', '{"schema": "x"}', "{}", '{"nodes": []}', "[" * 5000, "\x00\xff"]


@pytest.mark.parametrize("flag", ["--fleet", "--bench", "--proofs"])
def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(tmp_path, flag):
    from gpuready.cli import run_command_line

    for text in BAD:
        (tmp_path / "x.json").write_text(text, encoding="latin-1")
        code = run_command_line(
            ["report", "transformers", "--on", "h100", flag, str(tmp_path / "x.json"), "-o", str(tmp_path / "p.html")]
        )
        assert code == 2, text
    assert (
        run_command_line(
            ["report", "--on", "h100", flag, str(tmp_path / "absent.json"), "-o", str(tmp_path / "p.html")]
        )
        == 2
    )
    assert not (tmp_path / "p.html").exists()


def test_without_the_template_engine_it_says_so(tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "jinja2.py").write_text("raise ImportError('no jinja2 here')")
    run = running.gpuready("report", "transformers", "--on", "h100", cwd=tmp_path, PYTHONPATH=f"{hidden}:{running.SRC}")
    assert run.code == 2 and "needs the package jinja2" in run.err and run.err.count("\n") == 1
