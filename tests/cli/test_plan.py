"""``gpuready plan`` as a user meets it: the screen, the JSON, files, and bad input in one sentence."""

from __future__ import annotations

import json

import pytest

from tests.running import call_gpuready as gpuready

ON = ("--on", "h100x8", "--no-resolve")


def document(*words: str) -> tuple[dict, int]:
    ran = gpuready("plan", *words, "--json")
    return json.loads(ran.out), ran.code


def test_the_json_has_the_fields_of_the_issue():
    found, code = document("axolotl", *ON)
    assert code == 0 and found["schema"] == 1 and found["verdict"] == "plan"
    for key in ("python", "torch", "cuda", "index", "packages", "steps", "because", "conflicts", "fell", "catalog"):
        assert key in found
    assert found["packages"]["torch"].startswith(found["torch"].partition("+")[0])
    assert all(isinstance(step["run"], list) for step in found["steps"])
    assert all(reason["cite"] for reason in found["because"])


def test_impossible_is_exit_1_with_the_conflict_and_what_opens_it():
    found, code = document("colossalai==0.5.0", "--on", "rtx5090", "--no-resolve")
    assert (code, found["verdict"]) == (1, "impossible")
    assert found["conflicts"] and found["opens"][0]["run"][:2] == ["gpuready", "plan"]


def test_several_frameworks():
    found, code = document("colossalai", "axolotl", *ON)
    assert code == 0 and [len(names) for names in found["environments"]] == [1, 1]
    assert {p["framework"] for p in found["plans"]} == {"colossalai", "axolotl"} and found["conflicts"]


def test_the_screen_is_80_columns_and_says_when_the_catalogue_was_true():
    for words in (("axolotl", *ON), ("axolotl", *ON, "-v"), ("colossalai", "--on", "rtx5090", "--no-resolve")):
        ran = gpuready("plan", *words)
        assert max(map(len, ran.out.splitlines())) <= 80
        assert ("by the catalogue of 20" in ran.out) is ("-v" in words)


def test_the_screen_of_a_plan_in_order():
    out = gpuready("plan", "transformers", *ON, "-v").out
    parts = ("plan: torch", "not resolved here", "why\n", "steps\n", "not chosen\n")
    assert [out.index(part) for part in parts] == sorted(out.index(part) for part in parts)
    brief = gpuready("plan", "transformers", *ON).out
    assert "why\n" not in brief and "not chosen" not in brief and brief.rstrip().endswith(" -v")


def test_what_installs_a_plan_has_the_flags_of_the_plan():
    from gpuready.model.plan import LockedPackage, Plan
    from gpuready.render.plan import build_check_command, build_install_command

    options = {"on": "h100", "version": "5.17.0", "as": "driver=550", "capability": ("9.0",), "find-links": ["a", "b"]}
    one = Plan("x", "5.17.0", "plan", "v", options=options | {"offline": True}, lock=(LockedPackage("x", "1"),))
    words = "--on h100 --as driver=550 --find-links a --find-links b --offline -e .venv"
    assert " ".join(build_install_command(one)) == f"gpuready install x==5.17.0:v {words}"
    built = one.replace(options={}, lock=(LockedPackage("x", "1", built=True),))
    assert " ".join(build_install_command(built)) == "gpuready install x:v --allow-build -e .venv", "else it is refused"
    assert build_install_command(built.replace(options={"allow-build": True})).count("--allow-build") == 1
    mended = one.replace(options={"fix": True, "python": "/venv", "wants": "fp8"})
    assert " ".join(build_check_command(mended)) == "gpuready check x:v --python /venv --wants fp8"


def test_quiet_is_one_line():
    assert gpuready("plan", "axolotl", *ON, "-q").out.count("\n") == 1


def test_a_file_by_its_name(tmp_path):
    path = tmp_path / "Dockerfile"
    ran = gpuready("plan", "transformers", *ON, "-o", str(path))
    assert (ran.code, ran.out) == (0, "") and "FROM " in path.read_text()


def test_nothing_is_written_where_nothing_fits(tmp_path):
    path = tmp_path / "Dockerfile"
    ran = gpuready("plan", "colossalai", "--on", "rtx5090", "--no-resolve", "-o", str(path))
    assert ran.code == 1 and not path.exists() and "not possible" in ran.out


def test_a_catalogue_of_old_says_so():
    from gpuready.model.report import TRUSTED_DAYS, days_since

    assert days_since("2026-11-15", 1794787200.0 + 86400 * (TRUSTED_DAYS + 2)) > TRUSTED_DAYS
    assert days_since("2026-11-15", 0.0) == 0, "a clock that is wrong is no age"


@pytest.mark.parametrize(
    "words",
    [
        ("nosuch",),
        ("axolotl==not-a-version",),
        ("axolotl:nosuch",),
        ("axolotl", "--on", "nosuchgpu"),
        ("axolotl", "--on", "/nonexistent.json"),
        ("axolotl", *ON, "--torch", "9.9"),
        ("axolotl", *ON, "--torch", "2.13.0+cu999"),
        ("axolotl", *ON, "--python-version", "three"),
        ("axolotl", *ON, "--driver", "x"),
        ("axolotl", *ON, "--os", "nosuch"),
        ("axolotl", *ON, "--contract", "/nonexistent.toml"),
        ("axolotl", *ON, "-q", "-v"),
        ("axolotl", *ON, "--json", "--format", "lock"),
        ("axolotl", "transformers", *ON, "--format", "lock"),
        ("axolotl", *ON, "--bundle", "x"),
        ("axolotl", *ON, "--format", "lock"),
        ("axolotl", *ON, "-o", "/nonexistent/folder/plan.json"),
        ("axolotl", "--on", "h100", "--fix"),
        (),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_sentence_and_exit_2(words):
    ran = gpuready("plan", *words)
    assert ran.code == 2
    assert ran.out == "" if "--json" not in words else json.loads(ran.out)["error"]["exit"] == 2
    assert len(ran.err.strip().splitlines()) == 1 and ran.err.startswith("gpuready")
    assert "Traceback" not in ran.err and "gpuready failed" not in ran.err


def test_the_steps_of_a_plan_by_a_contract_of_ones_own_name_that_contract(tmp_path):
    file = tmp_path / "kite.toml"
    needs = 'needs = [{ key = "package.torch", want = ">=2.8,<2.15", cite = "setup.py:35" }]'
    file.write_text(f'framework = "kite"\nversion = "1.2"\norigin = "a test"\n{needs}\n')
    found, code = document("kite", *ON, "--contract", str(file))
    ours = [step["run"] for step in found["steps"] if step["run"][:1] == ["gpuready"]]
    assert code == 0 and [run[1] for run in ours] == ["env", "check"]
    assert all(run[run.index("--contract") + 1] == str(file) for run in ours)


def test_frameworks_that_share_an_environment_have_one_plan():
    found, code = document("trl", "transformers", *ON)
    assert code == 0 and found["framework"] == "trl" and found["options"]["additions"] == ["transformers==5.22.*"]
    assert any("transformers==" in word for step in found["steps"] for word in step["run"])
