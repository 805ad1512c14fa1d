"""Contracts from the command line: a user's own file, uncontracted versions and packages, and the guide's example."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests import running
from tests.running import call_gpuready as gpuready

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "how-to" / "add-a-framework.md"
EXAMPLE = re.search(r"<!-- example: kite.toml -->\n```toml\n(.*?)```", GUIDE.read_text(), re.S)


@pytest.fixture
def kite(tmp_path):
    assert EXAMPLE is not None
    path = tmp_path / "kite.toml"
    path.write_text(EXAMPLE[1])
    return str(path)


@pytest.fixture
def venv(tmp_path):
    """An environment of dist-info folders and nothing else; its Python is never started."""
    root = tmp_path / "v"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to("/bin/sh")
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\n")
    install(
        root, "transformers", "5.9.0", "huggingface-hub<3.0,>=1.30.0", "tokenizers<0.24.0,>=0.23.0", python=">=3.11"
    )
    install(root, "huggingface_hub", "1.31.0")
    install(root, "tokenizers", "0.22.0")
    install(root, "peft", "0.19.1", "torch>=1.13.0", "numpy>=1.17", "old-thing; python_version < '3.12'")
    install(root, "Plain.Thing", "2.0", "idna>=3")
    return root


def install(root: Path, name: str, version: str, *requires: str, python: str = ">=3.8") -> None:
    folder = root / "lib" / "python3.12" / "site-packages" / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Requires-Python: {python}", *(f"Requires-Dist: {line}" for line in requires)]
    folder.joinpath("METADATA").write_text("\n".join([f"Name: {name}", f"Version: {version}", *lines, "", "text"]))


def check(*argv: str, **environment: str) -> dict:
    ran = gpuready("check", *argv, "--json", **environment)
    assert ran.code in (0, 1, 3), ran.err
    report = json.loads(ran.out)
    assert report["exit"] == ran.code
    return report


def found(report: dict, code: str) -> dict:
    (finding,) = [f for f in report["findings"] if f["code"] == code]
    return finding


def wanted(report: dict, key: str) -> list[tuple[str, str]]:
    return [(n["want"], n["cite"]) for n in report["contract"]["needs"] if n["key"] == key and not n["when"]]


# -- versions without a contract ------------------------------------------------------------------------------


def test_an_uncontracted_version_takes_its_pins_from_its_own_metadata(venv):
    report = check("transformers", "--python", str(venv))
    contract = report["contract"]
    assert contract["version"] == "5.9.0"
    assert "no requirements of 5.9.0: judged by 5.0" in contract["says"]
    cite = "METADATA of transformers 5.9.0"
    assert cite in contract["says"]
    assert wanted(report, "package.huggingface-hub") == [(">=1.30.0,<3.0", cite)]
    assert wanted(report, "package.tokenizers") == [(">=0.23.0,<0.24.0", cite)]
    assert wanted(report, "python.version") == [(">=3.11", cite)]
    outside = found(report, "PKG003")
    assert "tokenizers 0.22.0" in outside["says"] and outside["needs"][0]["cite"] == cite


def test_its_gates_come_from_the_nearest_older_contract(venv):
    report = check("transformers", "--python", str(venv))
    older = json.loads(gpuready("contract", "show", "transformers==5.0", "--json").out)
    gates = [n for n in older["needs"] if n["key"].startswith(("gpu.", "driver."))]
    taken = {(need["key"], need["want"], need["when"]) for need in report["contract"]["needs"]}
    assert gates and all((gate["key"], gate["want"], gate["when"]) in taken for gate in gates)


def test_a_version_asked_for_is_the_one_that_is_judged(venv):
    report = check("transformers==5.22", "--python", str(venv))
    assert report["contract"]["version"] == "5.22"
    assert report["contract"]["says"] == "transformers 5.9.0 is installed, 5.22 was asked for"
    assert wanted(report, "package.transformers") == [("==5.22.*", "transformers==5.22 was asked for")]
    assert wanted(report, "package.tokenizers") == [(">=0.23.1,<0.24.0", "transformers 5.22.2 METADATA:29")]
    outside = found(report, "PKG003")
    assert outside["severity"] == "error" and report["verdict"] == "not-ready"
    assert "package.transformers" in [f["key"] for f in outside["found"]]


@pytest.mark.parametrize("asked", ["5.9", "5.9.0"])
def test_the_installed_version_asked_for_by_name_is_no_error(venv, asked):
    report = check(f"transformers=={asked}", "--python", str(venv))
    assert "is installed" not in report["contract"]["says"]
    assert wanted(report, "package.huggingface-hub")[0][1] == "METADATA of transformers 5.9.0"
    assert [n["key"] for n in found(report, "PKG003")["needs"]] == ["package.tokenizers"]


def test_a_patch_of_a_framework_that_changes_with_every_patch_is_not_held_to_another(venv):
    install(venv, "sglang", "0.5.12", "torch==2.11.0", "transformers==5.9.0")
    report = check("sglang", "--python", str(venv))
    assert "no requirements of 0.5.12" in report["contract"]["says"]
    assert wanted(report, "package.torch") == [("==2.11.0", "METADATA of sglang 0.5.12")]
    assert wanted(report, "package.transformers") == [("==5.9.0", "METADATA of sglang 0.5.12")]
    assert "PKG003" not in [f["code"] for f in report["findings"]]


# -- packages without a contract -----------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["peft", "PEFT"])
def test_an_installed_package_without_a_contract_is_judged_by_its_metadata(venv, spelling):
    report = check(spelling, "--python", str(venv))
    contract = report["contract"]
    assert (contract["framework"], contract["version"], contract["platforms"]) == ("peft", "0.19.1", ["cuda"])
    assert contract["says"] == "no requirements of its own: judged by the pins of its metadata alone"
    assert wanted(report, "package.torch") == [(">=1.13.0", "METADATA of peft 0.19.1")]
    assert wanted(report, "package.old-thing") == []  # its marker is for an older Python than the patient's
    missing = found(report, "PKG002")
    assert "torch" in missing["says"] and "numpy" in missing["says"]


def test_one_that_does_not_stand_on_torch_needs_no_gpu(venv):
    install(venv, "idna", "3.10")
    report = check("plain-thing", "--python", str(venv))
    assert report["contract"]["platforms"] == ["cpu"] and report["verdict"] == "clear"


def test_another_version_of_it_asked_for_is_an_error(venv):
    report = check("plain_thing==3.0", "--python", str(venv))
    assert report["contract"]["says"].endswith("plain-thing 2.0 is installed, 3.0 was asked for")
    assert found(report, "PKG003")["says"] == "plain-thing 2.0 is installed, 3.0 was asked for"


def test_it_can_be_judged_on_a_stated_machine_where_its_environment_is_named(venv):
    assert check("peft", "--on", "h100x8", "--python", str(venv))["contract"]["version"] == "0.19.1"


def test_a_recording_holds_what_it_was_asked_to_hold(venv, tmp_path):
    recording = str(tmp_path / "m.json")
    assert gpuready("probe", "--python", str(venv), "-o", recording).code == 0
    assert check("peft", "--on", recording)["contract"]["version"] == "0.19.1"  # a framework: always read
    ran = gpuready("check", "plain-thing", "--on", recording)
    assert ran.code == 2 and "its metadata was not recorded" in ran.err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["transfomers"], "there is nothing to judge 'transfomers' by: "),
        (["transfomers"], "(nearest: transformers); --contract FILE takes your own"),
        (["peft:fast"], "there are no requirements of 'peft'"),
        (["transformers:fast"], "transformers has no variant 'fast'"),
        (["peft==new"], "'new' in 'peft==new' is not a version"),
    ],
)
def test_what_is_neither_contracted_nor_installed_is_refused(venv, argv, says, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    python = [] if "--on" in argv else ["--python", str(venv)]
    ran = gpuready("check", *argv, *python)
    assert ran.code == 2 and ran.out == "" and ran.err.count("\n") == 1
    assert says in ran.err.replace("\n", " ")


H100 = ("--on", "h100x8", "--as", "driver=580.95.05,torch=2.13.0")


# -- a contract in a file ---------------------------------------------------------------------------------------


def test_the_guides_example_is_clear_on_an_h100(kite):
    report = check("--contract", kite, *H100)
    assert report["contract"]["framework"] == "kite" and report["verdict"] == "clear"
    says, unset = report["contract"]["says"].split("; ")
    assert says == f"the file of requirements {kite}, which is not one of gpuready's own"
    assert unset.startswith("not set, since they may load code or redirect: KITE_STRING")


@pytest.mark.parametrize(
    ("argv", "code", "key"),
    [
        (["--wants", "nvfp4"], "GPU005", "gpu.capability"),
        (["--torch", "2.7.0+cu126"], "PKG003", "package.torch"),
        (["--python-version", "3.9"], "PKG004", "python.version"),
        (["--wants", "build", "--toolkit", "12.4"], "BLD003", "toolkit.version"),
    ],
)
def test_its_needs_count_when_they_are_in_force(kite, argv, code, key):
    report = check("--contract", kite, "--on", "h100x8", *argv)
    assert report["verdict"] == "not-ready"
    assert found(report, code)["severity"] == "error"
    assert key in [n["key"] for n in found(report, code)["needs"]]


def test_a_need_for_a_large_model_waits_for_one(kite):
    small = check("--contract", kite, "--on", "l4", "--model", "7b", "--wants", "bnb-4bit")
    large = check("--contract", kite, "--on", "l4", "--model", "30b", "--wants", "bnb-4bit")
    floors = [n["want"] for f in large["findings"] for n in f["needs"] if n["key"] == "gpu.memory"]
    assert ">=40GB" in floors and large["verdict"] == "not-ready"
    assert not [n for f in small["findings"] for n in f["needs"] if n["want"] == ">=40GB"]


def test_it_may_wait_for_a_word_that_nobody_else_knows(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'framework = "kite"\nversion = "1"\n'
        'needs = [{ key = "gpu.count", want = ">=16", when = "wants=Long_Tail|loops" }]\n'
    )
    own = ["--contract", str(path), *H100]
    assert check(*own)["verdict"] == "clear"
    for word in ("long-tail", "Long_Tail", "loops"):
        assert check(*own, "--wants", word)["verdict"] == "not-ready"
    ran = gpuready("check", *own, "--wants", "long-tale")
    assert ran.code == 2 and "long-tail" in ran.err
    assert gpuready("check", "transformers", "--on", "h100x8", "--wants", "long-tail").code == 2


def test_what_is_recommended_is_a_warning_and_strict_counts_it(kite):
    shm = ["--contract", kite, *H100, "--shm", "1GB"]
    report = check(*shm)
    lesser = [f for f in report["findings"] if "system.shm" in [n["key"] for n in f["needs"]]]
    assert [f["severity"] for f in lesser] == ["warning"] and report["verdict"] == "clear"
    assert check(*shm, "--strict")["verdict"] == "not-ready"


def test_its_variables_are_looked_at_though_nobody_else_knows_them(kite, venv):
    wrong = check("--contract", kite, "--python", str(venv), KITE_STRING="tangled")
    assert found(wrong, "SYS015")["found"][0]["value"] == "tangled"
    right = check("--contract", kite, "--python", str(venv), KITE_STRING="short")
    assert "SYS015" not in [f["code"] for f in right["findings"]]
    without = check("transformers", "--python", str(venv), KITE_STRING="tangled")
    assert "tangled" not in json.dumps(without)


def test_its_package_is_missed_and_its_version_compared(kite, venv):
    missing = found(check("--contract", kite, "--python", str(venv)), "PKG002")
    assert "kite-ml" in missing["says"] and "kite-ml==1.2.*" in missing["fix"][0]["run"]
    install(venv, "kite-ml", "1.3.0")
    says = check("--contract", kite, "--python", str(venv))["contract"]["says"]
    assert says.split("; ")[0].endswith("own (kite-ml 1.3.0 is installed, and these requirements are for 1.2)")


def test_it_goes_beside_a_shipped_one(kite):
    ran = gpuready("check", "transformers", "--contract", kite, "--on", "h100x8", "--json")
    both = json.loads(ran.out)
    assert [r["contract"]["framework"] for r in both["reports"]] == ["transformers", "kite"]


def test_it_can_stand_on_a_shipped_one(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "transformers-5.22"\nversion = "5.22"\nneeds = [{ key = "gpu.count", want = ">=16" }]\n')
    report = check("--contract", str(path), "--on", "h100x8")
    assert report["verdict"] == "not-ready" and wanted(report, "package.torch")[0][0] == ">=2.6"


def test_it_can_be_shown(kite):
    shown = gpuready("contract", "show", "--contract", kite)
    assert shown.code == 0 and "KITE_STRING" in shown.out and "kite/quant.py:80" in shown.out


def test_a_file_with_problems_is_refused_with_a_sentence_for_each(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(
        'framework = "kite"\nversion = "1.2"\ncolour = "red"\n'
        'needs = [{ key = "gpu.colour", want = ">=1" }, { key = "package.torch", want = "about 2" },'
        ' { key = "gpu.count", want = ">=1", when = "moon=full" }]\n'
        'variables = [{ name = "A B", access = "read" }]\n'
        'steps = [{ does = "install", run = ["sh", "-c", "curl x | sh"] }]\n'
    )
    ran = gpuready("check", "--contract", str(path), "--on", "h100x8")
    assert ran.code == 2 and ran.out == "" and "Traceback" not in ran.err
    for part in ("'colour'", "gpu.colour", "about 2", "moon=full", "A B", "curl x | sh"):
        assert part in ran.err, part
    assert ran.err.count("bad.toml") == 6 and ran.err.count("; bad.toml") == 5
    assert "\\n" not in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "does not exist"),
        ("", "the key 'framework' is missing"),
        ("framework = ", "is not TOML"),
        ('framework = "k"\nversion = "soon"', "is not a version"),
        ('extends = "nothing-1.0"\nversion = "1"', "extends 'nothing-1.0'"),
    ],
)
def test_a_file_that_is_no_contract_is_refused_before_anything_is_looked_at(tmp_path, text, says):
    path = tmp_path / "x.toml"
    if text is not None:
        path.write_text(text)
    ran = gpuready("check", "--contract", str(path))
    assert ran.code == 2 and ran.out == "" and says in ran.err


def test_every_command_of_the_guide_is_one_that_runs(kite, venv):
    lines = re.findall(r"^    gpuready (.+)$", GUIDE.read_text(), re.M)
    assert len(lines) >= 5
    for line in lines:
        if line.startswith("contract new"):
            continue  # tests/workflow/test_contract_draft.py has a wheel
        words = line.replace("kite.toml", kite).replace("my-trainer", "peft").replace(" venv", f" {venv}").split()
        assert gpuready(*words).code in (0, 1, 3), line


# -- requirements that a package ships ----------------------------------------------------------------------------


@pytest.fixture
def shipping(venv):
    """Return a function that writes what kite-ml ships into an environment, beside code that nobody may import."""
    install(venv, "kite-ml", "1.2.3", "torch>=2.6")
    site = venv / "lib" / "python3.12" / "site-packages"
    (site / "kite_ml").mkdir()
    (site / "kite_ml" / "__init__.py").write_text("raise SystemExit('imported')")
    named = "[console_scripts]\nkite = kite_ml:main\n\n[gpuready.contracts]\nkite-ml = kite_ml\n"
    (site / "kite_ml-1.2.3.dist-info" / "entry_points.txt").write_text(named)

    def write(framework: str) -> None:
        rows = 'needs = [{ key = "gpu.count", want = ">=16", cite = "a:1" }]\n'
        rows += 'variables = [{ name = "LD_PRELOAD", access = "set", value = "/x.so", cite = "a:2" }]\n'
        rows += 'errors = [{ message = "KiteError: shard is empty", cause = "no rows", fix = "write a row", cite = "a:3" }]\n'
        (site / "kite_ml" / "gpuready.toml").write_text(f'framework = "{framework}"\nversion = "1.2"\n{rows}')

    return write


def test_a_package_ships_its_own_requirements(shipping, venv):
    shipping("kite-ml")
    contract = check("kite-ml", "--python", str(venv))["contract"]
    assert {"gpu.count", "package.torch"} <= {need["key"] for need in contract["needs"]}, "its file and its metadata"
    assert contract["says"].startswith("the requirements that kite-ml ships") and contract["basis"] == "foreign"
    assert contract["variables"][0]["value"] == "", "what loads code is not set"


def test_an_error_that_a_package_tells_is_found_in_a_log(shipping, venv, tmp_path):
    """With the type before the message, as the log has it."""
    shipping("kite-ml")
    log = tmp_path / "kite.log"
    log.write_text(
        'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    go()\nkite.KiteError: shard is empty\n'
    )
    ran = running.gpuready("diagnose", str(log), "--for", "kite-ml", VIRTUAL_ENV=str(venv))
    assert ran.code == 1 and "fix  write a row" in ran.out and "kite-ml 1.2, a:3" in ran.out


def test_a_variable_that_the_user_agrees_to_is_set_for_what_a_package_ships_too(shipping, venv):
    shipping("kite-ml")
    asked = ("env", "kite-ml", "--python", str(venv))
    assert "LD_PRELOAD=" not in gpuready(*asked).out
    agreed = gpuready(*asked, "--allow-variable", "LD_PRELOAD")
    assert "export LD_PRELOAD='/x.so'" in agreed.out and "--allow-variable NAME" not in agreed.out, agreed


@pytest.mark.parametrize("text", [None, "", "unnamed"])
def test_announced_requirements_that_cannot_be_read_are_told(shipping, venv, text):
    """An empty file, none, and an entry point that names no module."""
    shipping("kite-ml")
    site = venv / "lib" / "python3.12" / "site-packages"
    shipped = site / "kite_ml" / "gpuready.toml"
    if text == "unnamed":
        (site / "kite_ml-1.2.3.dist-info" / "entry_points.txt").write_text(
            "[gpuready.contracts]\nkite-ml = kite-ml/x\n"
        )
    elif text is None:
        shipped.unlink()
    else:
        shipped.write_text(text)
    contract = check("kite-ml", "--python", str(venv))["contract"]
    assert contract["says"].startswith("requirements of its own are announced, and /"), contract["says"]
    assert "package.torch" in {need["key"] for need in contract["needs"]}, "judged by its metadata"


@pytest.mark.parametrize("framework", ["vllm", "other"])
def test_what_a_package_ships_serves_itself_alone(shipping, venv, framework):
    shipping(framework)
    ran = gpuready("check", "kite-ml", "--python", str(venv))
    assert ran.code == 2 and "serve itself alone" in ran.err
    assert check("transformers", "--python", str(venv))["contract"]["basis"] != "foreign"


def test_a_check_of_a_file_names_the_line_of_each_fault(tmp_path, monkeypatch):
    """A want that nothing meets is a fault, wherever the file is used; a folder is no file of requirements."""
    monkeypatch.chdir(tmp_path)
    Path("kite.toml").write_text(
        'framework = "kite"\nversion = "1.0"\ntitel = "Kite"\nzzzz = "a"\n\n'
        '[[needs]]\nkey = "package.torch"\nwant = ">=2"\n\n[[needs]]\nkey = "package.trl"\nwant = ">=3,<=2"\n'
    )
    ran = gpuready("contract", "check", "kite.toml")
    said = " ".join(ran.out.split())
    assert ran.code == 1 and "'titel' is not known: did you mean title? (line 3)" in said
    assert re.search(r"'zzzz' is not known: it is one of capabilities, .*, variant, version \(line 4\)", said)
    assert "[[needs]] 2: nothing meets package.trl '>=3,<=2': its bounds exclude each other (line 10)" in said
    assert gpuready("check", "--contract", "kite.toml").code == 2
    assert gpuready("contract", "check", ".").code == 2


def test_the_same_with_details_is_asked_of_the_same_frameworks(kite, venv):
    """A file beside a framework is judged beside it: the command that is printed has both, and its exit code."""
    given = ("--contract", kite, "--python", str(venv))
    ran = gpuready("check", "transformers", *given)
    details = re.findall(r"details: +(gpuready (?:.*\\\n)*.*)", ran.out)
    assert len(details) == 2
    for one in details:
        assert one.replace("\\\n", "").split()[1:] == ["check", "transformers", *given, "-v"], one
