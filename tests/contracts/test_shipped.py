"""The contracts that ship: each one loads, is sound, and cites every row; a few figures are held by hand."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

import gpuready.contracts
from gpuready import contracts, rules
from gpuready.contracts import contract_file, want, when
from gpuready.model import Contract, Fact, Facts, UnknownFactError
from gpuready.workflow.contract_draft import check_contract_file
from tests.contracts import guide_example
from tests.every import every

FOLDER = Path(gpuready.contracts.__file__).parent
FILES = sorted(FOLDER.glob("*.toml"))
NAMES = [path.stem for path in FILES]
LOADED = {path.stem: Contract.from_json(contract_file.read_contract_data(str(path))) for path in FILES}
LOADED[guide_example.NAME] = guide_example.load_guide_contract()
TO_CHECK = [*NAMES, guide_example.NAME]
"""The contracts that ship, and the one that the guide shows."""


def contract(name):
    return LOADED[name]


def asked(name, key, when="", level=None):
    return [n.want for n in contract(name).requirements_for(key) if n.when == when and level in (None, n.level)]


def test_every_framework_and_variant_is_there():
    variants = ["torch260-vllm", "torch260-sglang", "torch260-diffsynth", "torch280-vllm", "torch280-sglang"]
    variants += ["torch291-vllm", "torch2100-vllm", "torch2100-vllm-amd", "guide"]
    expected = {"transformers-5.0", "transformers-5.22", "axolotl-0.14", "axolotl-0.18", "axolotl-0.21", "roll-0.3.0"}
    expected |= {"colossalai-0.5.0", "colossalai-0.5.0-guide"} | {f"roll-0.3.0-{v}" for v in variants}
    expected |= {"vllm-0.32", "sglang-0.5.23", "trl-1.16", "verl-0.9.1", "deepspeed-0.19", "unsloth-2026.10"}
    expected |= {"llama-factory-0.9.5"}
    assert set(NAMES) >= expected


@every("name", TO_CHECK)
def test_the_file_name_is_the_contracts_name(name):
    one = contract(name)
    assert name == "-".join(part for part in (one.framework, one.version, one.variant) if part)


@every("name", TO_CHECK)
def test_every_row_is_cited(name):
    one = contract(name)
    for table in ("needs", "capabilities", "variables", "errors"):
        for row in getattr(one, table):
            assert re.search(
                r"\w\.\w+:\d|METADATA:\d|PKG-INFO:\d|environment page|\.py|\.toml|\.whl|resolve|README", row.cite
            ), row
    assert all(step.note for step in one.steps)
    assert one.origin and one.title and one.platforms and one.notes


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_contract_check_finds_no_fault(path):
    found = [fault for fault in check_contract_file(str(path)).faults if "package.opentelemetry-sdk" not in fault]
    assert not found  # the two pins of roll-0.3.0-torch260-vllm contradict each other, which PKG024 tells


@every("name", TO_CHECK)
def test_every_table_has_something_to_say(name):
    one = contract(name)
    assert one.needs and one.capabilities and one.variables and one.errors and one.steps


@every("name", TO_CHECK)
def test_no_two_rows_say_different_things_on_one_subject(name):
    seen = {}
    for need in contract(name).needs:
        subject = need.key, need.when, need.level
        if (name, need.key) == ("roll-0.3.0-torch260-vllm", "package.opentelemetry-sdk"):
            continue  # its two pins contradict each other, which PKG024 tells
        assert seen.setdefault(subject, need.want) == need.want, subject
    variables = [(v.name, v.when) for v in contract(name).variables]
    assert len(variables) == len(set(variables))
    capabilities = [c.name for c in contract(name).capabilities]
    assert len(capabilities) == len(set(capabilities))


@every("name", TO_CHECK)
def test_conditions_can_be_asked_of_any_machine(name):
    empty = Facts([])
    one = contract(name)
    for row in (*one.needs, *one.capabilities, *one.variables):
        with contextlib.suppress(UnknownFactError):
            assert when.condition_applies(row.when, empty) in (True, False)
        if hasattr(row, "want"):
            assert want.describe_want(row.want)


@every("name", TO_CHECK)
def test_codes_are_codes_of_the_ledger(name):
    assert {e.code for e in contract(name).errors} - {""} <= set(rules.list_codes())


@every("name", TO_CHECK)
def test_the_gpu_is_required_and_cuda_is_to_be_proved(name):
    one = contract(name)
    assert [n.want for n in one.requirements_for("gpu.count") if n.level == "required"] == [">=1"]
    assert [c.name for c in one.capabilities if c.level == "required"] == ["cuda"]


@every("name", NAMES)
def test_the_compact_form_is_the_same_contract(name):
    """What was read from its release is added: needs of the start of its commands, variables, notes."""
    one = contract(name)
    loaded = contracts.load_contract(one.framework, one.version, one.variant or None)
    assert set(one.needs) <= set(loaded.needs) and set(one.notes) <= set(loaded.notes)
    plain = tuple(row.replace(traits=tuple(t for t in row.traits if t != "own-default")) for row in loaded.variables)
    written = {"needs": one.needs, "notes": one.notes, "variables": plain, "other_variables": ()}
    assert loaded.replace(**written) == one


def test_the_index_has_a_row_for_each_and_knows_the_pages():
    rows = {(r["framework"], r["version"], r["variant"]): r["page"] for r in contracts.list_contract_rows()}
    assert set(rows) >= {(one.framework, one.version, one.variant) for one in map(contract, NAMES)}
    assert {name for name, page in rows.items() if page} == {
        ("transformers", "5.0", ""),
        ("axolotl", "0.14", ""),
        ("roll", "0.3.0", "guide"),
        ("colossalai", "0.5.0", "guide"),
    }


def test_the_page_of_transformers_is_whole():
    name = "transformers-5.0"
    assert asked(name, "gpu.memory") == [">=8GB"]
    assert asked(name, "gpu.memory", "model>=7b") == [">=16GB"]
    assert asked(name, "gpu.memory", "model>7b") == [">=40GB"]
    assert asked(name, "gpu.capability", level="required") == [">=6.0"]
    assert asked(name, "gpu.capability", level="recommended") == [">=8.0"]
    assert asked(name, "torch.cuda", level="required") == [">=11.0"]
    assert asked(name, "torch.cuda", level="recommended") == [">=11.8"]
    assert asked(name, "driver.version") == [">=450.0"]
    assert asked(name, "cudnn.version") == [">=8.0"]
    assert asked(name, "package.torch") == [">=2.2"]
    assert asked(name, "package.accelerate") == [">=1.1.0"]
    assert asked(name, "package.deepspeed", level="optional") == [">=0.9.3"]
    assert asked(name, "package.nvidia-ml-py3") == ["*"]
    assert {v.name for v in contract(name).variables} == {"CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "WORLD_SIZE"}
    assert len(contract(name).errors) == 4


@every(
    ("name", "key", "condition", "wanted"),
    [
        ("transformers-5.22", "python.version", "", ">=3.11"),
        ("transformers-5.22", "package.torch", "", ">=2.6"),
        ("transformers-5.22", "package.flash-attn", "wants=flash-attn", ">=2.3.3"),
        ("transformers-5.22", "gpu.capability", "wants=tf32,platform=cuda", ">=8.0"),
        ("colossalai-0.5.0", "package.transformers", "", "==4.51.3"),
        ("colossalai-0.5.0", "package.peft", "", ">=0.7.1,<=0.13.2"),
        ("colossalai-0.5.0", "os.system", "", "linux"),
        ("colossalai-0.5.0-guide", "python.version", "", ">=3.6"),
        ("colossalai-0.5.0-guide", "gpu.capability", "", ">=6.0"),
        ("axolotl-0.14", "package.bitsandbytes", "os.system!=darwin", "==0.49.1"),
        ("axolotl-0.14", "driver.version", "platform=cuda", ">=525"),
        ("axolotl-0.14", "gpu.memory", "model>=7b", ">=16GB"),
        ("axolotl-0.14", "disk.free", "", ">=50GB"),
        ("axolotl-0.18", "package.transformers", "", "==5.14.1"),
        ("axolotl-0.21", "python.version", "", ">=3.12"),
        ("axolotl-0.21", "package.torch", "", ">=2.13.0,<2.15.0"),
        ("roll-0.3.0-guide", "os.kernel", "", ">=5.15"),
        ("roll-0.3.0-guide", "cudnn.version", "", ">=9.1.0"),
        ("roll-0.3.0-guide", "package.torch", "", "==2.6.0|==2.8.0"),
        ("roll-0.3.0-torch260-vllm", "package.vllm", "", "==0.8.4"),
        ("roll-0.3.0-torch280-vllm", "package.transformers", "", "==4.57.0"),
        ("roll-0.3.0-torch280-sglang", "package.sglang", "", "==0.5.2"),
        ("roll-0.3.0-torch2100-vllm", "package.torch", "", "==2.10.0"),
        ("roll-0.3.0-torch2100-vllm-amd", "package.numpy", "", "==2.1.3"),
    ],
)
def test_figures_held_by_hand(name, key, condition, wanted):
    assert wanted in asked(name, key, condition)


def test_axolotl_picks_xformers_by_torch_as_its_installer_did():
    one = contract("axolotl-0.14")

    def xformers(torch):
        facts = Facts([Fact("package.torch", torch), Fact("os.arch", "x86_64"), Fact("os.system", "linux")])
        return [n.want for n in one.requirements_for("package.xformers") if when.condition_applies(n.when, facts)]

    assert xformers("2.7.0+cu126") == [">=0.0.23.post1", "==0.0.30"]
    assert xformers("2.7.1") == [">=0.0.23.post1", "==0.0.31"]
    assert xformers("2.6.0") == [">=0.0.23.post1", "==0.0.29.post3"]
    assert xformers("2.8.0") == [">=0.0.23.post1"]


def test_rolls_variants_share_what_is_common():
    common = {n.key for n in contract("roll-0.3.0").requirements_for("package.*")}
    for name in NAMES:
        if name.startswith("roll-0.3.0-torch"):
            assert common <= {n.key for n in contract(name).requirements_for("package.*")}, name
            assert contract(name).variables == contract("roll-0.3.0").variables


def test_nothing_that_is_run_needs_a_shell():
    for one in LOADED.values():
        for step in one.steps:
            assert not any(re.search(r"[;&|$`]", word) for word in step.run)
            assert step.safety in ("safe", "ask", "manual")
            assert (step.safety == "manual") is (not step.run)
