"""Which proofs a contract, a job and a machine need."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuready import contracts
from gpuready.catalog import proofs
from gpuready.model import Capability, Contract, Fact
from gpuready.prove import selection
from tests.prove.test_ground import facts

DEMO = Contract(
    "demo",
    "1.0",
    capabilities=(
        Capability("cuda", level="required", when="platform=cuda"),
        Capability("sdpa"),
        Capability("fp8", when="wants=fp8"),
        Capability("no-such-kernel", when="wants=no-such-kernel"),
        Capability("collectives", when="gpus>1"),
    ),
)


def levels(contract: Contract) -> dict[str, str]:
    return {c.name: c.level for c in contract.capabilities}


def test_what_is_asked_for_is_required_and_what_is_not_is_left_out():
    plain = levels(selection.select_capabilities(DEMO, facts()))
    assert plain["cuda"] == "required" and plain["sdpa"] == "optional"
    assert "fp8" not in plain and "collectives" not in plain
    asked = selection.select_capabilities(DEMO, facts(job__wants=("fp8", "no-such-kernel", "triton"), job__gpus=2))
    result = levels(asked)
    assert result["fp8"] == result["no-such-kernel"] == result["collectives"] == result["triton"] == "required"
    assert selection.unproved_capabilities(asked) == ("no-such-kernel", "entry-point"), (
        "demo has no entry point that is known"
    )


def test_no_framework_is_ready_without_a_training_step_and_its_data():
    result = levels(selection.select_capabilities(DEMO, facts()))
    assert result["training-step"] == result["dataloader"] == "required"


def test_a_contract_for_gpus_needs_one_where_there_is_none():
    bare = facts(gpu__count=0, gpu__visible=(), platform__name="cpu")
    assert levels(selection.select_capabilities(DEMO, bare))["cuda"] == "required"
    on_cpu = levels(selection.select_capabilities(DEMO, bare.with_facts(Fact("job.wants", ("cpu",)))))
    assert "cuda" not in on_cpu and on_cpu["cpu"] == "required" and on_cpu["training-step"] == "required"


def test_the_rows_are_those_of_what_is_in_force():
    rows = {
        row.name
        for row in selection.list_needed_proofs(selection.select_capabilities(DEMO, facts(job__wants=("fp8",))))
    }
    assert {"cuda", "matmul-fp8", "sdpa", "sdpa-math", "training-step", "dataloader"} <= rows
    assert "collectives" not in rows and "torch-compile" not in rows


def test_names_without_a_framework_are_all_required():
    contract, rows = selection.select_named_proofs(["bf16", "sdpa-math"], "2.11.0")
    assert {row.name for row in rows} == {"matmul-bf16", "autocast-bf16", "sdpa-math"}
    assert levels(contract) == {"bf16": "required", "sdpa": "required", "sdpa-math": "required"}
    assert (
        selection.is_capability_or_proof("bf16")
        and selection.is_capability_or_proof("matmul-bf16")
        and not selection.is_capability_or_proof("bf17")
    )


def test_everything_leaves_out_of_the_verdict_what_the_hardware_does_not_have():
    contract, rows = selection.select_default_proofs(facts(gpu__capability=("8.0",)), "2.11.0")
    result = levels(contract)
    assert result["fp8"] == "optional" and result["peer-access"] == "optional" and result["bf16"] == "required"
    assert {row.name for row in rows} == {row.name for row in proofs.list_proofs() if row.default}
    assert levels(selection.select_default_proofs(facts(), "2.11.0")[0])["fp8"] == "required"


def test_every_contract_has_something_to_prove():
    for name in contracts.list_frameworks():
        one = selection.select_capabilities(contracts.load_contract(name), facts())
        assert selection.list_needed_proofs(one), name


OWN_STEP = {
    "transformers": "trainer",
    "axolotl": "axolotl-train",
    "colossalai": "booster",
    "roll": "roll-worker",
    "trl": "sft",
    "deepspeed": "deepspeed",
}


@pytest.mark.parametrize("path", sorted(Path(contracts.__file__).parent.glob("*.toml")), ids=lambda path: path.stem)
def test_a_framework_is_not_ready_before_it_has_taken_a_step_of_its_own(path):
    contract = contracts.read_contract_file(str(path))
    own = OWN_STEP.get(contract.framework)
    if own is None:
        return
    for known in (facts(), facts(job__wants=("cpu",))):
        one = selection.select_capabilities(contract, known)
        on_gpu_alone = proofs.find_proof(own).device == "cuda" and known.value_if_known("job.wants")
        if not on_gpu_alone:
            assert levels(one)[own] == "required" and own in {row.name for row in selection.list_needed_proofs(one)}


def test_all_four_frameworks_have_a_step_of_their_own():
    found = {contracts.read_contract_file(str(p)).framework for p in Path(contracts.__file__).parent.glob("*.toml")}
    assert {"transformers", "axolotl", "colossalai", "roll"} <= found


def test_a_framework_that_brings_its_own_build_is_proved_by_that():
    def rows(framework, *wants):
        contract = selection.select_capabilities(DEMO.replace(framework=framework), facts(job__wants=wants))
        return {row.name for row in selection.list_needed_proofs(contract)}, levels(contract)

    names, reported = rows("vllm", "flash-attn", "gptq")
    assert "flash-attn-vllm" in names and "flash-attn" not in names
    assert reported["flash-attn"] == reported["gptq"] == "required"
    names, _ = rows("transformers", "flash-attn", "cut-cross-entropy")
    assert {"flash-attn", "cut-cross-entropy"} <= names
    assert not {"flash-attn-vllm", "cut-cross-entropy-fork"} & names
    names, _ = rows("axolotl", "cut-cross-entropy")
    assert "cut-cross-entropy-fork" in names and "cut-cross-entropy" not in names
    assert {row.name for row in selection.select_named_proofs(["flash-attn"], "2.11.0")[1]} == {"flash-attn"}
    assert {row.name for row in selection.select_named_proofs(["flash-attn-vllm"], "2.11.0")[1]} == {"flash-attn-vllm"}


def test_what_a_job_asks_for_and_has_no_proof_is_required_all_the_same():
    contract = selection.select_capabilities(DEMO, facts(job__wants=("gptq",)))
    assert levels(contract)["gptq"] == "required" and "gptq" in selection.unproved_capabilities(contract)


def test_a_package_without_a_proof_of_its_own_is_imported():
    """Its entry point is the import of what its distribution brings; a framework with a command of its own keeps that."""
    selected = selection.list_needed_proofs(selection.select_capabilities(DEMO, facts()))
    (entry,) = [row for row in selected if "entry-point" in row.capability]
    assert (entry.name, entry.script, entry.arguments, entry.device) == ("entry-demo", "entry_point", ("@demo",), "any")
    known = contracts.load_contract("trl")
    rows = selection.list_needed_proofs(selection.select_capabilities(known, facts()))
    assert [row.name for row in rows if "entry-point" in row.capability] == ["entry-trl"]


@pytest.mark.parametrize(
    ("name", "files", "modules"),
    [
        ("kite-string", ["kite_string/__init__.py", "kite_string/a.py", "other/__init__.py"], ["kite_string"]),
        ("Kite", ["reel/__init__.py", "winch.py", "kite-1.dist-info/RECORD"], ["reel", "winch"]),
        ("kite", ["__editable___kite_finder.pth"], ["kite"]),
    ],
)
def test_what_a_distribution_brings_is_imported(tmp_path, monkeypatch, name, files, modules):
    info = tmp_path / f"{name.lower().replace('-', '_')}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    scripts = Path(selection.__file__).parent / "scripts"
    for folder in (scripts, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    for module in ("entry_point", "package_import", "proof"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    entry_point = importlib.import_module("entry_point")
    assert entry_point.list_modules(f"@{name}") == modules
    assert entry_point.list_modules("trl.cli") == ["trl.cli"]
    asked = []
    monkeypatch.setattr(entry_point.package_import, "import_compiled", lambda _, *words: asked.append(words))
    entry_point.run_proof(SimpleNamespace(torch=lambda: None, arguments=[f"@{name}"], record_number=lambda *_: None))
    assert asked == [(module, name) for module in modules], "its version is that of the distribution"
    with pytest.raises(sys.modules["proof"].Absent, match="nosuch is not installed"):
        entry_point.list_modules("@nosuch")
    for module in ("entry_point", "package_import", "proof"):
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.mark.parametrize("name", contracts.list_frameworks())
def test_the_step_of_a_framework_imports_only_what_the_framework_requires(name):
    """An environment that has what its framework requires must not fail for what a proof of ours takes besides."""
    contract = contracts.load_contract(name)
    required = {need.key.removeprefix("package.") for need in contract.needs if need.level == "required"} | {name}
    for row in proofs.list_proofs():
        if name in row.framework:
            assert {*row.modules} <= required, row.name
