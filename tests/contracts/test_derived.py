"""Contracts out of metadata alone, versions asked for by name, and what markers are read for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready import contracts, rules
from gpuready.check.evaluate import judge
from gpuready.contracts import want, when
from gpuready.contracts.catalogued_release import (
    METADATA_ONLY_NOTE,
    contract_from_metadata,
    judge_by_catalogue,
    list_torch_extras,
    with_torch_extra,
)
from gpuready.contracts.pins import marker_environment, pin_exact_version
from gpuready.model import Contract, Fact, Facts, Requirement
from tests.rules.worlds import H100, facts

PEFT = [
    "numpy>=1.17",
    "torch>=1.13.0",
    "transformers",
    "accelerate>=0.21.0",
    "huggingface_hub<3.0.0,>=0.25.0",
    "black; extra == 'quality'",
    "pywin32; sys_platform == 'win32'",
]


def pins(contract):
    return {need.key: need.want for need in contract.needs if not need.when}


# -- derived ----------------------------------------------------------------------------------------------


def test_the_pins_are_those_of_the_metadata():
    one = contract_from_metadata("peft", "0.19.1", PEFT, ">=3.10.0", {"sys_platform": "linux"})
    assert pins(one) == {
        "python.version": ">=3.10.0",
        "package.numpy": ">=1.17",
        "package.torch": ">=1.13.0",
        "package.transformers": "*",
        "package.accelerate": ">=0.21.0",
        "package.huggingface-hub": ">=0.25.0,<3.0.0",
    }
    assert {n.cite for n in one.needs} == {"METADATA of peft 0.19.1"}
    assert all(n.level == "required" for n in one.needs)
    assert [(n.key, n.when) for n in one.needs if n.when] == [("package.black", "wants=quality")]


def test_it_says_what_it_stands_on():
    one = contract_from_metadata("peft", "0.19.1", PEFT, None)
    assert one.says == METADATA_ONLY_NOTE == "no requirements of its own: judged by the pins of its metadata alone"
    assert one.name == "peft 0.19.1" and one.distribution == "peft" and "METADATA" in one.origin


def test_only_what_stands_on_torch_is_for_gpus():
    gpu, plain = (
        contract_from_metadata("a", "1", ["torch"], None),
        contract_from_metadata("a", "1", ["requests"], None),
    )
    assert gpu.platforms == ("cuda", "rocm") and [c.name for c in gpu.capabilities] == ["cuda"]
    assert plain.platforms == ("cpu",) and plain.capabilities == ()
    only_with_extra = contract_from_metadata("a", "1", ["torch; extra == 'gpu'"], None)
    assert only_with_extra.platforms == ("cpu",)


def test_an_install_of_what_has_an_extra_for_torch_takes_that_extra():
    """diffusers and others can do without torch; who installs them here does not want to."""
    both = ["filelock", "torch>=2.6; extra == 'torch'", "accelerate; extra == 'torch'", "jax; extra == 'flax'"]
    found = with_torch_extra(contract_from_metadata("a", "1", [*both, "torch; extra == 'dev'"], None))
    assert (
        found is not None and found.platforms == ("cuda", "rocm") and [c.name for c in found.capabilities] == ["cuda"]
    )
    required = {need.key: need.want for need in found.needs if not need.when}
    assert required == {"package.filelock": "*", "package.torch": ">=2.6", "package.accelerate": "*"}
    other = contract_from_metadata("a", "1", ["torch; extra == 'gpu'", "torch; extra == 'all'"], None)
    assert with_torch_extra(other) is None and list_torch_extras(other) == ["gpu", "all"]
    only = with_torch_extra(
        contract_from_metadata("a", "1", ["torch>=2; extra == 'hf'", "boto3; extra == 'api'"], None)
    )
    assert only is not None and {need.key for need in only.needs if not need.when} == {"package.torch"}
    assert with_torch_extra(contract_from_metadata("a", "1", ["boto3; extra == 'api'"], None)) is None


def test_no_gpu_is_no_fault_of_a_package_that_wants_none():
    bare = {"gpu.count": 0, "gpu.visible": (), "platform.name": "cpu", "package.torch": None}
    world = facts(H100 | bare | {"package.requests": "2.32.0", "package.idna": "3.1"})
    plain = judge(rules.load_all_rules(), world, contract_from_metadata("requests", "2.32.0", ["idna>=2"], None))
    assert [f.code for f in plain.findings if f.severity == "error"] == []
    gpu = judge(rules.load_all_rules(), world, contract_from_metadata("requests", "2.32.0", ["torch"], None))
    assert {"GPU001", "PKG002"} <= {f.code for f in gpu.findings}


def test_a_distribution_that_requires_nothing_asks_for_nothing():
    assert contract_from_metadata("a", "1", [], None).needs == ()


def test_a_line_that_stands_there_twice_counts_once():
    one = contract_from_metadata("a", "1", ["rich", "rich", "x>=1", "x<2"], None)
    assert [(n.key, n.want) for n in one.needs] == [("package.rich", "*"), ("package.x", ">=1"), ("package.x", "<2")]


@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=20))
def test_whatever_the_metadata_holds_a_contract_comes_out(lines, python):
    one = contract_from_metadata("a", "1", lines, python)
    assert isinstance(one, Contract) and one.says == METADATA_ONLY_NOTE
    for need in one.needs:
        want.check_want(need.want, "version")


@pytest.mark.parametrize("python", ["", " ", "three", ">=3.8|", ">=", "$(id)", "*"])
def test_a_python_that_is_no_specifier_is_passed_over(python):
    assert contract_from_metadata("a", "1", ["torch"], python).requirements_for("python.version") == ()


# -- a version asked for by name ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("5.22", "==5.22.*"),
        ("5", "==5.*"),
        ("5.22.2", "==5.22.2"),
        ("0.5.12.post1", "==0.5.12.post1"),
        ("6.0rc1", "==6.0rc1"),
        ("0.32.0+cu129", "==0.32.0"),
    ],
)
def test_the_version_asked_for_is_needed(version, wanted):
    one = pin_exact_version(Contract("kite", version, distribution="kite-ml"), version, None)
    assert one.needs[0] == Requirement("package.kite-ml", wanted, "", "required", f"kite=={version} was asked for")
    want.check_want(wanted, "version")


@pytest.mark.parametrize(
    ("installed", "says"),
    [
        (None, ""),
        ("1.2.7", ""),
        ("1.2", ""),
        ("1.3.0", "kite-ml 1.3.0 is installed, 1.2 was asked for"),
        ("1.1.9+cu1", "kite-ml 1.1.9+cu1 is installed, 1.2 was asked for"),
    ],
)
def test_it_says_so_where_another_one_is_installed(installed, says):
    assert pin_exact_version(Contract("kite", "1.2", distribution="kite-ml"), "1.2", installed).says == says
    both = pin_exact_version(Contract("kite", "1.2", distribution="kite-ml", says="first"), "1.2", installed).says
    assert both == (f"first; {says}" if says else "first")


def test_another_installed_version_is_an_error_in_plain_words():
    one = pin_exact_version(Contract("kite", "1.2", distribution="kite-ml"), "1.2", "1.3.0")
    report = judge(rules.load_all_rules(), facts(H100 | {"package.kite-ml": "1.3.0"}), one)
    (found,) = [f for f in report.findings if f.code == "PKG003"]
    assert (found.severity, found.says) == ("error", "kite-ml 1.3.0 is installed, 1.2 was asked for")
    assert found.found[0].value == "1.3.0" and found.needs[0].want == "==1.2.*"
    fine = judge(rules.load_all_rules(), facts(H100 | {"package.kite-ml": "1.2.5"}), one)
    assert "PKG003" not in {f.code for f in fine.findings}


# -- markers ----------------------------------------------------------------------------------------------


def test_markers_are_read_for_the_patient():
    known = Facts([Fact("python.version", "3.10.14"), Fact("os.system", "linux"), Fact("os.arch", "aarch64")], "there")
    assert marker_environment(known) == {
        "python_version": "3.10",
        "python_full_version": "3.10.14",
        "platform_machine": "aarch64",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
    }
    lines = ["old; python_version < '3.11'", "new; python_version >= '3.11'", "arm; platform_machine == 'aarch64'"]
    assert set(pins(contract_from_metadata("a", "1", lines, None, marker_environment(known)))) == {
        "package.old",
        "package.arm",
    }


def test_what_is_not_known_of_the_patient_is_left_out():
    dark = Facts([Fact("python.version", None, gap="no pyvenv.cfg"), Fact("os.system", "plan9")], "there")
    assert marker_environment(dark) == {}


@pytest.mark.parametrize(("system", "named"), [("darwin", "darwin"), ("windows", "win32"), ("linux", "linux")])
def test_systems_have_their_names_in_markers(system, named):
    assert marker_environment(Facts([Fact("os.system", system)]))["sys_platform"] == named


def test_the_words_of_a_condition():
    assert when.wanted_words("wants=fp8|nvfp4,gpus>1") == ["fp8", "nvfp4"]
    assert when.wanted_words("build") == ["build"]
    assert when.wanted_words("wants!=fp8,torch>=2.9") == when.wanted_words("") == []


def test_a_release_whose_only_wheels_are_of_windows_is_installed_from_its_source_elsewhere():
    judged = judge_by_catalogue(contracts.load_contract("deepspeed", "0.16.4", None))
    assert not judged.requirements_for("os.system") and not judged.requirements_for("os.arch")
