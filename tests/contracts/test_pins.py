"""Pins of the installed distribution's own metadata in the place of a contract's."""

from __future__ import annotations

import pytest
from packaging.utils import canonicalize_name

from gpuready.contracts.pins import merge_metadata_pins, replace_patch_pins
from gpuready.model import Contract, Requirement

LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.12"}


@pytest.fixture
def contract():
    return Contract(
        framework="kite",
        version="1.2.0",
        distribution="kite-ml",
        says="kite 1.9 has no known requirements of its own",
        needs=(
            Requirement("python.version", ">=3.9"),
            Requirement("python.version", ">=3.11", level="recommended"),
            Requirement("gpu.capability", ">=7.0"),
            Requirement("package.torch", ">=2.2"),
            Requirement("package.reel", "==1.0"),
            Requirement("package.gone", "==0.1"),
            Requirement("package.reel", ">=1.1", when="wants=long"),
            Requirement("package.tail", "*", level="recommended"),
        ),
    )


def wants(contract, key):
    return [(n.want, n.when) for n in contract.needs if n.key == key]


def test_the_metadata_replaces_the_pins_and_leaves_the_gates(contract):
    pinned = merge_metadata_pins(contract, "1.9", ["torch<2.15,>=2.13", "reel (>=2)", "New_Thing"], ">=3.12")
    assert wants(pinned, "package.torch") == [(">=2.13,<2.15", "")]
    assert wants(pinned, "package.reel") == [(">=2", ""), (">=1.1", "wants=long")]
    assert wants(pinned, "package.new-thing") == [("*", "")]
    assert wants(pinned, "package.gone") == []
    assert wants(pinned, "gpu.capability") == [(">=7.0", "")]
    assert wants(pinned, "python.version") == [(">=3.12", ""), (">=3.11", "")]
    assert wants(pinned, "package.tail") == [("*", "")]


@pytest.mark.parametrize(
    ("torch", "kept"),
    [(">=2.2", [(">=12.8", ""), (">=13", "gpu.capability>=10.0")]), ("==2.0.1", [(">=13", "gpu.capability>=10.0")])],
)
def test_a_borrowed_cuda_goes_with_the_torch_that_it_was_of(contract, torch, kept):
    cuda = (Requirement("torch.cuda", ">=12.8"), Requirement("torch.cuda", ">=13", when="gpu.capability>=10.0"))
    contract = contract.replace(needs=(*contract.needs, *cuda))
    assert wants(merge_metadata_pins(contract, "1.1", [f"torch{torch}"], None), "torch.cuda") == kept


def test_it_says_where_the_pins_come_from(contract):
    pinned = merge_metadata_pins(contract, "1.9", ["torch>=2.13"], None)
    assert pinned.version == "1.9"
    assert "no known requirements of its own" in pinned.says and "own metadata" in pinned.says
    assert {n.cite for n in pinned.requirements_for("package.torch")} == {"METADATA of kite-ml 1.9"}


def test_markers_are_read_for_the_patient_and_not_for_gpuready(contract):
    lines = ["winch>=1; sys_platform == 'win32'", "sail>=2; platform_machine != 'aarch64'", "old; python_version<'3'"]
    assert wants(merge_metadata_pins(contract, "1.9", lines, None, LINUX), "package.sail") == [(">=2", "")]
    arm = merge_metadata_pins(contract, "1.9", lines, None, LINUX | {"platform_machine": "aarch64"})
    windows = merge_metadata_pins(contract, "1.9", lines, None, LINUX | {"sys_platform": "win32"})
    assert wants(arm, "package.sail") == [] and wants(arm, "package.old") == []
    assert wants(windows, "package.winch") == [(">=1", "")]


def test_an_extra_holds_where_it_is_asked_for_and_where_the_contract_always_needs_its_package(contract):
    lines = ["torch>=2.4; extra == 'torch'", "reel==3; extra == 'reel'", "tqdm", "oar>1; extra == 'row'"]
    pinned = merge_metadata_pins(contract, "1.9", lines, None)
    assert wants(pinned, "package.torch") == [(">=2.4", "wants=torch"), (">=2.4", "")]
    assert wants(pinned, "package.reel") == [("==3", "wants=reel"), ("==3", ""), (">=1.1", "wants=long")]
    assert wants(pinned, "package.tqdm") == [("*", "")] and wants(pinned, "package.oar") == [(">1", "wants=row")]


def test_an_extra_of_this_version_replaces_that_of_the_borrowed_contract(contract):
    pinned = merge_metadata_pins(contract, "1.9", ["torch", "reel>=4; extra == 'long'"], None)
    assert wants(pinned, "package.reel") == [(">=4", "wants=long"), (">=4", "")]


def test_of_several_extras_that_pin_torch_the_one_of_its_name_counts(contract):
    lines = ["torch>=1.13.1; extra == 'torch'", "torch==2.1.0; extra == 'torch-npu'"]
    assert (">=1.13.1", "") in wants(merge_metadata_pins(contract, "1.9", lines, None), "package.torch")
    open_pin = merge_metadata_pins(contract, "1.9", ["torch; extra == 'torch'", "tqdm"], None)
    assert wants(open_pin, "package.torch") == [("*", "wants=torch"), ("*", "")], "any torch, and not the borrowed one"
    others = ["torch==2.0; extra == 'rocm'", "torch==2.1.0; extra == 'torch-npu'"]
    pinned = merge_metadata_pins(contract, "1.9", others, None)
    assert {n.level for n in pinned.needs if n.key == "package.torch" and not n.when} == {"recommended"}


def test_advice_of_another_version_does_not_narrow_what_the_metadata_takes(contract):
    narrow = contract.replace(needs=(*contract.needs, Requirement("package.oar", "<=1.11", "", "recommended", "code")))
    assert wants(merge_metadata_pins(narrow, "1.9", ["torch", "oar>=0.30"], None), "package.oar") == [(">=0.30", "")]
    assert ("<=1.11", "") in wants(merge_metadata_pins(narrow, "1.9", [], None), "package.oar")


def test_a_patch_of_a_line_is_judged_by_its_own_metadata(contract):
    rows = (
        Requirement("package.oar", ">=2026.10.9", "", "required", "boat 2026.10.9 METADATA:21"),
        Requirement("package.rope", ">=2.9", "", "required", "boat/code.py:4"),
        Requirement("package.oar", ">=9", "wants=row", "required", "boat 2026.10.9 METADATA:22"),
    )
    pinned = replace_patch_pins(contract.replace(needs=rows), "2026.10.7", ["oar>=2026.10.7", "rope>=1", "oar<2027"])
    assert [(need.want, need.cite.partition(" ")[0]) for need in pinned.needs] == [
        (">=2026.10.7,<2027", "METADATA"),
        (">=2.9", "boat/code.py:4"),
        (">=9", "boat"),
    ]


def test_what_is_borrowed_only_advises_and_says_so(contract):
    pinned = merge_metadata_pins(contract, "1.9", ["torch>=2.13"], None)
    borrowed = [n for n in pinned.needs if n.key == "gpu.capability"]
    assert [n.level for n in borrowed] == ["recommended"] and "of another version" in borrowed[0].cite
    assert {n.level for n in pinned.needs if n.key == "package.torch"} == {"required"}


def test_a_distribution_without_dependencies_changes_no_package(contract):
    pinned = merge_metadata_pins(contract, "1.9", [], ">=3.10")
    assert [n.want for n in pinned.requirements_for("package.*")] == [
        n.want for n in contract.requirements_for("package.*")
    ]
    assert {n.level for n in pinned.requirements_for("package.*")} == {"recommended"}
    assert wants(pinned, "python.version") == [(">=3.10", ""), (">=3.11", "")]


def test_extras_of_a_requirement_and_urls_are_no_obstacle(contract):
    pinned = merge_metadata_pins(contract, "1.9", ["ray[train]>=2.52.1", "wheel @ https://example.org/w.whl"], None)
    assert wants(pinned, "package.ray") == [(">=2.52.1", "")]
    assert wants(pinned, "package.wheel") == [("*", "")]


def test_lines_that_are_no_requirements_are_passed_over(contract):
    pinned = merge_metadata_pins(contract, "1.9", ["; rm -rf /", "torch>=2.13", "a b c", "$(id)"], None)
    assert wants(pinned, "package.torch") == [(">=2.13", "")]
    assert not any("rm" in n.key or "$" in n.key for n in pinned.needs)


KNOWN_HERE = {
    "platform_machine": "x86_64",
    "python_version": "3.11",
    "python_full_version": "3.11.7",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
}


@pytest.mark.parametrize(
    "text",
    [
        "numpy>=1.17",
        "huggingface-hub<3.0,>=1.31.0",
        "typer",
        "torch ==2.8.0.*",
        "Foo.Bar_baz != 1.0 , >0.5",
        'torch>=2.6; extra == "torch"',
        "ruff==0.13.1 ; extra == 'quality'",
        'tomli>=2; python_version < "3.11"',
        "ray[default,cgraph]==2.48.0",
        "ray[tune]>=2.7.0; extra == 'ray'",
        'y>=1; extra == "a" and python_version < "3"',
        "x (>=1.0)",
        "pkg @ https://example.invalid/x.whl",
        'a>=1; extra == "x" or python_version < "4"',
        'protobuf!=6.30.*,!=6.33.0.*,>=5.29.6; platform_machine != "s390x"',
        'a>=1; platform_machine == "x86_64" or (platform_machine == "aarch64" and sys_platform == "linux")',
        'a>=1; python_version >= "3.10" and python_version < "3.12.1"',
        'a>=1; python_full_version <= "3.11.0"',
        "a>=1; '3.11' == python_version",
        'a>=1; "linux" in sys_platform',
        'a>=1; platform_machine not in "arm64 aarch64"',
        'a>=1; extra == "gpu" and platform_machine == "x86_64"',
        'a>=1; platform_machine == "arm64" and extra == "gpu"',
        'a>=1; (extra == "gpu" or extra == "all") and sys_platform == "win32"',
        'a>=1; extra != "gpu"',
        'a>=1; python_version ~= "3.11"',
        'a>=1; python_version == "3.1*"',
        'a>=1; python_version in "3.10, 3.11"',
        'a>=1; platform_python_implementation == "CPython"',
        "a>=1; python_version",
        'a>=1; python_version < "3.11',
        "b~=1.4.2",
        "c===1.0",
        "flashinfer-python==0.7.0.post1",
        "f>=1.post2,!=1.0.post3",
        "f>=1.0.post",
        "f==1.0.post1.*",
        "d>=1.0rc1",
        "e==1.0+cu128",
        ">=1.0",
        "not a requirement!",
        "f>=1.*",
        "",
    ],
)
@pytest.mark.parametrize("environment", [{}, KNOWN_HERE])
def test_a_requirement_is_read_as_packaging_reads_it(text, environment):
    from packaging.requirements import InvalidRequirement, Requirement

    from gpuready.contracts import pins

    found = pins._parse_requirement(text, environment)
    try:
        known = Requirement(text)
    except InvalidRequirement:
        assert found is None or not found.applies
        return
    marker, extra = known.marker, found.extra
    here = {**pins.USUAL_MACHINE, **environment}
    without, within = (not marker or marker.evaluate({**here, "extra": one}) for one in ("", extra))
    assert (found.name, found.applies) == (canonicalize_name(known.name), bool(without or (extra and within)))
    assert {c.strip() for c in found.specifier.split(",") if c} == {str(c) for c in known.specifier}
    assert not extra or not without


def test_an_upper_bound_behind_the_extra_of_its_own_name_advises_and_the_floor_holds(contract):
    pinned = merge_metadata_pins(
        contract, "1.9", ["reel>=2", 'torch<2.7,>=2.1; extra == "torch"', 'torch<2.7,>=2.1; extra == "all"'], None
    )
    found = {(n.want, n.level) for n in pinned.requirements_for("package.torch") if not n.when}
    assert found == {(">=2.1", "required"), ("<2.7", "optional")}
