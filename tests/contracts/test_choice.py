"""Which contract judges a version: its own line, else the nearest older one, and it says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpuready import contracts
from gpuready.contracts import UnknownContract


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("axolotl", ("axolotl", None, None)),
        ("axolotl==0.18", ("axolotl", "0.18", None)),
        ("roll:torch280-vllm", ("roll", None, "torch280-vllm")),
        ("roll==0.3.0:torch280-vllm", ("roll", "0.3.0", "torch280-vllm")),
        ("  Transformers == 5.22 ", ("transformers", "5.22", None)),
        ("x==1.0rc1", ("x", "1.0rc1", None)),
    ],
)
def test_a_name_has_three_parts(text, parsed):
    assert contracts.parse_contract_spec(text) == parsed


@pytest.mark.parametrize("text", ["", "==1", ":v", "axolotl==", "axolotl:", "axolotl==banana", "axolotl==1==2", ":"])
def test_a_name_that_is_none_is_refused(text):
    with pytest.raises(UnknownContract) as caught:
        contracts.parse_contract_spec(text)
    assert "\n" not in str(caught.value)


def test_the_frameworks_and_the_names_they_are_installed_under():
    names = [
        "axolotl",
        "colossalai",
        "deepspeed",
        "llama-factory",
        "roll",
        "sglang",
        "transformers",
        "trl",
        "unsloth",
        "verl",
        "vllm",
    ]
    assert set(contracts.list_frameworks()) >= set(names)
    others = {n: contracts.distribution_name(n) for n in names if contracts.distribution_name(n) != n}
    assert others["llama-factory"] == "llamafactory"
    assert all(contracts.has_contract(name) for name in names) and not contracts.has_contract("llamafactory")


@pytest.mark.parametrize("text", ["llamafactory", "llama_factory", "LLaMA-Factory"])
def test_a_framework_goes_by_the_name_of_its_distribution_as_well(text):
    assert contracts.parse_contract_spec(f"{text}==0.9.5") == ("llama-factory", "0.9.5", None)


def test_without_a_version_the_newest_is_taken():
    assert contracts.load_contract("transformers").version == "5.22"
    assert contracts.load_contract("axolotl").version == "0.21"


def test_the_installed_version_comes_before_the_newest_and_after_the_asked():
    assert contracts.load_contract("transformers", installed="5.0.0").version == "5.0.0"
    assert contracts.load_contract("transformers", "5.22.1", installed="5.0.0").version == "5.22.1"


@pytest.mark.parametrize(
    ("framework", "version", "torch"),
    [
        ("transformers", "5.22.2", ">=2.6"),
        ("transformers", "5.22", ">=2.6"),
        ("transformers", "5.0.0", ">=2.2"),
        ("axolotl", "0.14.1", ">=2.4"),
        ("axolotl", "0.18.0", ">=2.11.0,<=2.12.1"),
        ("colossalai", "0.5.0", ">=2.2.0,<=2.5.1"),
    ],
)
def test_a_line_covers_its_patch_releases_without_a_word(framework, version, torch):
    contract = contracts.load_contract(framework, version)
    assert contract.version == version and contract.says == ""
    assert torch in [n.want for n in contract.requirements_for("package.torch") if not n.when]


@pytest.mark.parametrize(
    ("framework", "version", "judged_by"),
    [
        ("transformers", "5.10.3", "5.0"),
        ("transformers", "5.100.0", "5.22"),
        ("transformers", "6.0.0rc1", "5.22"),
        ("axolotl", "0.22.1", "0.21"),
        ("axolotl", "1.0", "0.21"),
        ("colossalai", "0.5.1", "0.5.0"),
        ("sglang", "0.5.24", "0.5.23"),
        ("llama-factory", "0.9.6", "0.9.5"),
    ],
)
def test_other_versions_take_the_nearest_older_contract_and_say_so(framework, version, judged_by):
    contract = contracts.load_contract(framework, version)
    older = contracts.load_contract(framework, judged_by)
    assert contract.needs == older.needs
    assert version in contract.says and f" {judged_by}, the nearest older" in contract.says
    assert "\n" not in contract.says


@pytest.mark.parametrize(
    ("framework", "version", "oldest"),
    [("transformers", "4.57.3", "5.0"), ("sglang", "0.5.22", "0.5.23"), ("verl", "0.9.0", "0.9.1")],
)
def test_a_version_older_than_all_takes_the_oldest_and_says_so(framework, version, oldest):
    contract = contracts.load_contract(framework, version)
    assert contract.needs == contracts.load_contract(framework, oldest).needs
    assert "the oldest" in contract.says


@pytest.mark.parametrize(
    ("line", "version", "covered"),
    [
        ("5.22", "5.22.2", True),
        ("5.22", "5.22", True),
        ("5.22", "5.22.0rc1", True),
        ("5.22", "5.2", False),
        ("5.2", "5.22", False),
        ("0.5.23", "0.5.23", True),
        ("0.5.23", "0.5.23.post1", True),
        ("0.5.23", "0.5.2", False),
        ("0.5.23", "0.5.22", False),
        ("0.5.23", "0.5", True),
        ("5.22", "5", False),
        ("5.0", "5", True),
        ("2026.10", "2026.10.9", True),
        ("0.32", "0.32.0+cu129", True),
    ],
)
def test_a_line_covers_what_agrees_with_it_as_far_as_both_are_written(line, version, covered):
    assert contracts.covers_version(line, version) is covered


def test_variants_are_taken_only_by_name():
    plain, vllm = contracts.load_contract("roll"), contracts.load_contract("roll", variant="torch280-vllm")
    assert plain.variant == "" and vllm.variant == "torch280-vllm"
    assert [n.want for n in vllm.requirements_for("package.vllm") if not n.when] == ["==0.10.2"]
    assert contracts.load_contract("colossalai").variant == ""
    assert contracts.load_contract("colossalai", variant="guide").variant == "guide"


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("axolotol",), "axolotl"),
        (("collosalai",), "colossalai"),
        (("zzz",), "transformers"),
        (("roll", None, "torch280-vlm"), "torch280-vllm"),
        (("transformers", None, "gpu"), "no variants"),
        (("transformers", "new"), "not a version"),
        (("", None, None), "axolotl"),
    ],
)
def test_unknown_names_get_one_sentence_with_the_nearest(arguments, reported):
    for ask in (contracts.load_contract, contracts.check_contract_exists):
        with pytest.raises(UnknownContract) as caught:
            ask(*arguments)
        assert reported in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["axolotl=0.21", "axolotl@0.21", "axolotl 0.21", "axolotl>=0.21,<1", "axolotl~=0.21", "axolotl-0.21"]
)
def test_a_version_in_another_notation_is_answered_with_ours(text):
    with pytest.raises(UnknownContract, match=r"write axolotl==0\.21$"):
        contracts.load_contract(*contracts.parse_contract_spec(text))


def test_an_extra_is_no_part_of_a_name():
    assert contracts.parse_contract_spec("trl[peft, vlm]==1.16") == ("trl", "1.16", None)
    assert contracts.parse_extras("trl[peft, vlm]==1.16") == ("peft", "vlm") and not contracts.parse_extras("trl")


def test_known_is_silent_about_what_can_be_loaded():
    contracts.check_contract_exists("roll", "0.3.0", "torch260-sglang")
    contracts.check_contract_exists("transformers")


def test_loading_a_contract_imports_nothing_slow():
    code = (
        "from gpuready import contracts; contracts.load_contract('axolotl', '0.18.0'); contracts.list_contract_rows();"
        "slow = {'dataclasses', 'subprocess', 'packaging', 'tomllib', 'difflib', 'pathlib'};"
        "print(sorted(slow & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-I", "-S", "-c", _with_path(code)], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def _with_path(code):
    import gpuready

    return f"import sys; sys.path.insert(0, {str(gpuready.__path__[0])!r} + '/..'); {code}"
