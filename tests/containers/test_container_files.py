"""`gpuready check --dockerfile`: container files by the same rules, through what they state."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready import workflow
from gpuready.catalog import images
from gpuready.containers import compose, dockerfile_facts
from gpuready.containers.installs import parse_conda_words
from gpuready.workflow.refusal import Refused
from tests.every import every
from tests.running import gpuready

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES = tomllib.loads((Path(__file__).parent / "cases.toml").read_text())["case"]
GOOD = "FROM python:3.12-slim\nRUN pip install torch==2.8.0\n"


def written(case, folder):
    file = folder / ("compose.yml" if "compose" in case else "Dockerfile")
    published = str((images.find_framework_image("roll", "torch260-vllm") or {})["image"])
    file.write_text((case.get("compose") or case["file"]).removeprefix("\n").replace("{roll}", published))
    for name, text in case.get("beside", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return file


def checked(file, flags=(), framework="transformers"):
    named = dict(zip((f.lstrip("-") for f in flags[::2]), flags[1::2], strict=True))
    on, wants = named.pop("on", None), named.pop("wants", None)
    return workflow.check_machine([framework], on=on, wants=wants, what_if=named, dockerfile=str(file))[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_file(case, tmp_path):
    file = written(case, tmp_path)
    report = checked(file, case["flags"], case.get("framework", "transformers"))
    stated = {f.key: f for f in report.facts}
    for key, value in case.get("facts", {}).items():
        assert stated[key].value == value, key
        assert stated[key].how == "stated"
    assert [key for key in case.get("open", ()) if key in stated and not stated[key].gap] == []
    if "codes" in case:
        assert sorted(f.code for f in report.findings if f.severity != "info") == case["codes"]
    assert bool(report.undecided) == case.get("undecided", False)
    if secret := case.get("secret"):
        assert secret not in repr(report.to_json())


def test_there_are_good_ones_and_broken_ones():
    broken = [case for case in CASES if case.get("codes")]
    assert len(CASES) >= 25 and len(broken) >= 10


def test_every_fact_names_its_line(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text(GOOD)
    found = {f.key: f.source for f in checked(file).facts}
    assert found["torch.version"] == f"{file}:2"
    assert found["python.version"] == f"{file}:1"


def test_this_machine_never_mixes_in(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text("FROM python:3.12-slim\n")
    facts = checked(file).facts
    assert {f.how for f in facts} == {"stated"}
    assert facts.fact("gpu.count").gap == "not stated"


def test_a_recorded_host_lends_its_gpus_and_its_driver_and_nothing_else(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text(GOOD)
    machine = Path(__file__).parent.parent / "machines" / "h200.json"
    facts = checked(file, ["--on", str(machine)]).facts
    assert facts.value("driver.version") == "580.159.04" and facts.value("gpu.count") == 1
    assert facts.value("torch.version") == "2.8.0+cu128"
    assert facts.fact("package.transformers").gap == "not stated"
    assert facts.fact("system.shm").gap == "not stated"


def test_a_driver_alone_is_judged_against_the_image(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text("FROM python:3.12-slim\nRUN pip install torch==2.11.0\n")
    report = checked(file, ["--driver", "550.144.03"])
    assert "DRV001" in [f.code for f in report.findings]
    assert not checked(file, ["--driver", "580.95.05"]).findings


def test_a_flag_wins_over_the_file(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text(GOOD)
    assert checked(file, ["--torch", "2.6.0"]).facts.value("torch.version") == "2.6.0+cu124"


@pytest.mark.parametrize("framework", ["transformers", "axolotl"])
def test_what_gpuready_plans_is_clear(framework, tmp_path):
    """The round trip: a Dockerfile of `gpuready plan` is read back by `gpuready check --dockerfile`."""
    from gpuready.render.files import dockerfile
    from gpuready.workflow import plan

    planned = plan.plan_frameworks([framework], on="a100x8", what_if={"driver": "580.95.05"}, resolve=False)
    file = tmp_path / "Dockerfile"
    file.write_text(dockerfile.render(plan.add_file_details(planned)))
    report = checked(file, ["--on", "a100x8", "--driver", "580.95.05"], framework)
    assert [f.code for f in report.findings if f.severity == "error"] == []
    assert report.facts.value("torch.version") == planned.plans[0].torch


BAD = {
    "it has no FROM": "# nothing here\n",
    "stands before any FROM": "RUN pip install torch\n",
    "is not a Dockerfile instruction": "FROM a\n!!! rubbish\n",
    "never closed": "FROM a\nRUN <<EOF\npip install torch\n",
    "names no image": "FROM --platform=linux/amd64\n",
    "more than 5000 instructions": "FROM a\n" + "USER a\n" * 5001,
    "larger than": "FROM a\n" + "#" * (1 << 20) + "\n",
}


@pytest.mark.parametrize("why", BAD)
def test_a_bad_dockerfile_is_refused_in_a_sentence(why, tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text(BAD[why])
    with pytest.raises(Refused, match=why) as no:
        checked(file)
    assert "\n" not in str(no.value) and str(file) in str(no.value)


BAD_COMPOSE = {
    "no services": "volumes: {}\n",
    "must be YAML": "services: [\n",
    "name one, as in": "services:\n  a: {image: redis}\n  b: {image: redis}\n",
    "is not a size": "services:\n  a: {image: redis, shm_size: plenty}\n",
    "no stage named": "services:\n  a:\n    build: {dockerfile_inline: 'FROM a', target: b}\n",
    "endless": "services: &a\n  x: *a\n",
}


@pytest.mark.parametrize("why", BAD_COMPOSE)
def test_a_bad_compose_file_is_refused_in_a_sentence(why, tmp_path):
    file = tmp_path / "compose.yml"
    file.write_text(BAD_COMPOSE[why])
    with pytest.raises(Refused, match=why):
        checked(file)


def test_aliases_that_double_themselves_end(tmp_path):
    rows = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 30)]
    file = tmp_path / "compose.yml"
    file.write_text("\n".join([*rows, "services: {t: {image: redis}}"]))
    with pytest.raises(Refused, match="endless"):
        checked(file)


def test_a_service_is_chosen_by_name(tmp_path):
    file = tmp_path / "compose.yml"
    file.write_text("services:\n  a: {image: 'python:3.11'}\n  b: {image: 'python:3.12'}\n")
    assert checked(f"{file}#b").facts.value("python.version") == "3.12"
    with pytest.raises(Refused, match="no service 'c'; it has a, b"):
        checked(f"{file}#c")


def test_files_outside_the_folder_are_not_read(tmp_path):
    (tmp_path / "secret.txt").write_text("peft==0.17.0\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    for name in ("../secret.txt", str(tmp_path / "secret.txt")):
        (inner / "Dockerfile").write_text(f"FROM python:3.12\nCOPY {name} x\nRUN pip install -r {name}\n")
        assert "package.peft" not in checked(inner / "Dockerfile").facts
    (inner / "compose.yml").write_text("services: {t: {build: ..}}\n")
    (tmp_path / "Dockerfile").write_text("FROM python:3.12\n")
    assert "python.version" not in checked(inner / "compose.yml").facts


def test_nothing_in_a_file_is_executed(tmp_path):
    mark = tmp_path / "mark"
    file = tmp_path / "Dockerfile"
    file.write_text(f"FROM python:3.12\nRUN touch {mark}; pip install $(touch {mark}) `touch {mark}`\n")
    checked(file)
    assert not mark.exists()


@given(st.text(alphabet="FROMRUNENV abc$(){}[]<>\"'\\\n=:;&|#`/-.0", max_size=200))
def test_no_text_breaks_the_readers(text):
    for read in (dockerfile_facts.read_dockerfile_facts, compose.read_compose_service):
        try:
            read(lambda path: None, "F", "FROM python:3.12\nRUN pip install " + text)
        except ValueError as bad:
            assert "\n" not in str(bad)


def test_the_command(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM python:3.12-slim\nRUN pip install torch==2.11.0\n")
    ran = gpuready("check", "--dockerfile", "Dockerfile", "--driver", "550.144.03", cwd=tmp_path)
    assert ran.code == 1 and "--format dockerfile" in ran.out
    assert (
        "Dockerfile:2"
        in gpuready("check", "--dockerfile", "Dockerfile", "--driver", "550.144.03", "-v", cwd=tmp_path).out
    )
    ran = gpuready("check", "--dockerfile", "Dockerfile", "--python", "/usr", cwd=tmp_path)
    assert ran.code == 2 and "cannot be combined" in ran.err
    ran = gpuready("check", "--dockerfile", "missing", cwd=tmp_path)
    assert ran.code == 2 and ran.err.count("\n") == 1


def test_sarif_points_at_the_line_of_the_file(tmp_path):
    import json

    (tmp_path / "Dockerfile").write_text("FROM python:3.12-slim\nRUN pip install torch==2.11.0\n")
    outcome = ("check", "--dockerfile", "Dockerfile", "--driver", "550.144.03", "--format", "sarif")
    ran = gpuready(*outcome, cwd=tmp_path)
    result = next(r for r in json.loads(ran.out)["runs"][0]["results"] if r["ruleId"] == "DRV001")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "Dockerfile" and place["region"]["startLine"] == 2


@every(
    ("words", "build"),
    [
        (["python=3.11", "pytorch=2.5.1=py3.11_cuda12.4_cudnn9.1.0_0"], "cuda12.4"),
        (["pytorch=2.5.1=cuda126_py311h8f3c3d6_303"], "cuda12.6"),
        (["pytorch=2.5.1=cpu_mkl_py311"], "cpu"),
        (["pytorch=1.13.1=py3.10_cuda11.7_cudnn8.5.0_0", "pytorch-cuda=11.7"], "cuda11.7"),
        (["pytorch=2.5.1"], "conda"),
    ],
)
def test_the_build_that_a_pin_of_conda_names(words, build):
    assert next(pin.build for pin in parse_conda_words(words).pins if pin.name == "torch") == build
