"""The resolution, by the real uv on a local index of tiny wheels: what comes from where, and what is refused."""

from __future__ import annotations

import json

from gpuready.apply.install_steps import kernels_to_build
from gpuready.apply.resolve import resolve_plan
from gpuready.model import Contract, FixStep
from gpuready.model.plan import KernelPlan
from tests.apply.asking import _places, contract, default, need, own_name, plan, row
from tests.apply.wheels import wheel

# -- where things come from -----------------------------------------------------------------------------------


def test_torch_comes_from_its_index_and_nothing_else_does(world, index):
    found = resolve_plan(world, plan(), contract())
    assert found.resolved == "resolved" and found.verdict == "plan"
    assert (row(found, "torch").version, row(found, "torch").index) == ("2.13.0+cu126", "cu126")
    assert (row(found, "filelock").version, row(found, "filelock").index) == ("4.0", own_name(index))
    assert row(found, "torch").via == ("sparrow",)
    assert found.packages["sparrow"] == "1.2.3"


def test_every_row_has_hashes_and_no_row_an_address(world, index):
    found = resolve_plan(world, plan(), contract())
    assert all(h.startswith("sha256:") for one in found.lock for h in one.hashes)
    assert all(one.hashes for one in found.lock)
    assert "http:" not in json.dumps(found.to_json()), "only the host of an index is named"


def test_a_torch_on_the_default_index_never_wins_over_the_pinned_one(world, index):
    index.add("torch", "2.13.0+cu126", files={"torch/__init__.py": "raise SystemExit('stolen')"})
    found = resolve_plan(world, plan(), contract())
    assert row(found, "torch").index == "cu126"
    assert row(found, "torch").hashes == (
        f"sha256:{index.hash(index.folder / 'cu126' / 'torch-2.13.0+cu126-py3-none-any.whl')}",
    )


def test_a_torchvision_that_only_a_dependency_asks_for_comes_from_torchs_index_too(world, index):
    index.add("sparrow", "1.2.4", ["torch>=2", "torchvision"])
    index.add("torchvision", "0.30")
    index.add("torchvision", "0.28+cu126", on="cu126")
    found = resolve_plan(world, plan(), contract())
    assert (row(found, "torchvision").version, row(found, "torchvision").index) == ("0.28+cu126", "cu126")


def test_another_build_in_a_folder_of_wheels_is_not_the_torch_of_the_default_index(world, index, tmp_path):
    wheel(tmp_path / "wheels", "torch", "2.13.0+cpu")
    found = resolve_plan(world, default(), contract(), find_links=(str(tmp_path / "wheels"),))
    assert (row(found, "torch").version, row(found, "torch").index) == ("2.13.0", own_name(index))


def test_a_folder_that_has_the_build_serves_where_the_index_cannot(world, index, tmp_path, monkeypatch):
    _places(monkeypatch, cu126="http://127.0.0.1:9/none")
    wheel(tmp_path / "wheels", "torch", "2.13.0+cu126")
    found = resolve_plan(world, plan(), contract(), find_links=(str(tmp_path / "wheels"),))
    assert (row(found, "torch").version, row(found, "torch").index) == ("2.13.0+cu126", "find-links")
    assert str(tmp_path) not in json.dumps([one.to_json() for one in found.lock])


def test_nightly_wheels_come_from_their_index_and_an_ancient_release_never_stands_in(world, index):
    index.add("vllm", "0.1.2")
    asked = Contract("roll", "0.3.0", variant="torch2100-vllm", distribution="roll", needs=(need("vllm", ">=0.15"),))
    stand = default().replace(framework="roll", variant="torch2100-vllm")
    missing = resolve_plan(world, stand, asked)
    assert missing.verdict == "plan" and not missing.lock
    assert missing.resolved.startswith("not resolved here: no index that was asked has vllm")
    index.add("vllm", "0.16.0.dev5+cu130", ["torch"], on="nightly")
    found = resolve_plan(world, stand, asked)
    assert (row(found, "vllm").version, row(found, "vllm").index) == ("0.16.0.dev5+cu130", "vllm-nightly-cu130")


# -- what the contract says -----------------------------------------------------------------------------------


def test_the_framework_is_pinned_so_that_no_older_one_hides_a_conflict(world, index):
    index.add("sparrow", "0.3", [])
    index.add("sparrow", "1.2.3", ["torch<2"])
    found = resolve_plan(world, plan(), contract())
    assert found.verdict == "impossible"
    assert "torch" in found.conflicts[0].says and "sparrow" in found.conflicts[0].says


def test_needs_become_requirements_and_optional_ones_do_not(world, index):
    index.add("kestrel", "1.0")
    index.add("kestrel", "3.0")
    index.add("wren", "1.0")
    found = resolve_plan(world, plan(), contract(need("kestrel", "<2"), need("wren", "*", "optional")))
    assert row(found, "kestrel").version == "1.0"
    assert not [one for one in found.lock if one.name == "wren"]


def test_a_need_that_another_python_or_job_brings_in_is_left_alone(world, index):
    index.add("kestrel", "1.0")
    old = need("kestrel", "*", when="python<3.10")
    job = need("kestrel", "*", when="wants=fp8")
    assert not [r for r in resolve_plan(world, plan(), contract(old, job)).lock if r.name == "kestrel"]
    asked = resolve_plan(world, plan(options={"wants": "fp8"}), contract(old, job))
    assert row(asked, "kestrel").version == "1.0"


def test_two_sides_of_a_conflict_are_named(world, index):
    index.add("heron", "0.8.4", ["otel>=1.26,<1.27"])
    index.add("crane", "2.48.0", ["otel>=1.30"])
    for version in ("1.26.0", "1.30.0"):
        index.add("otel", version)
    found = resolve_plan(world, plan(), contract(need("heron", "==0.8.4"), need("crane", "==2.48.0")))
    assert found.verdict == "impossible" and not found.lock
    says = found.conflicts[0].says
    assert all(word in says for word in ("heron 0.8.4", "crane 2.48.0", "otel", ">=1.30", "<1.27")), says
    assert {n.key for n in found.conflicts[0].needs} == {"package.otel"}


def test_a_contract_that_contradicts_itself_needs_no_index(world, index):
    sides = (
        need("otel", ">=1.30", cite="crane 2.48.0, which A pins"),
        need("otel", "<1.27", cite="heron 0.8.4, which B pins"),
    )
    found = resolve_plan(world, plan(), contract(*sides))
    assert found.verdict == "impossible" and not index.asked
    assert found.conflicts[0].says == "crane 2.48.0 needs otel >=1.30, heron 0.8.4 needs otel <1.27"
    assert found.conflicts[0].needs == sides


def test_a_look_alike_never_enters(world, index):
    index.add("sparrow", "1.2.9", ["mcore-adapter"])
    index.add("mcore-adapter", "0.0.1")
    found = resolve_plan(world, plan(), contract())
    assert found.verdict == "impossible"
    assert "mcore-adapter" in found.conflicts[0].says and "sparrow" in found.conflicts[0].says


def test_what_must_be_built_against_torch_is_left_to_the_kernels(world, index):
    index.add("sparrow", "1.2.9", ["flash-attn", "torch"])
    found = resolve_plan(world, plan(), contract(need("flash-attn", "*")))
    assert found.lock and not [one for one in found.lock if one.name == "flash-attn"]
    assert any("flash-attn is not resolved" in note for note in found.notes)
    assert not any("flash-attn" in path for path in index.asked)


def test_a_wheel_for_another_python_is_one_line(world, index):
    index.add("torch", "2.13.0", tag="cp39-cp39-manylinux_2_28_x86_64", on="only")
    world.variables["UV_DEFAULT_INDEX"] = index.url("only")
    index.add("sparrow", "1.2.3", ["torch"], on="only")
    found = resolve_plan(world, default(), contract())
    assert found.verdict == "impossible"
    says = found.conflicts[0].says
    assert "torch 2.13.0 has no wheel" in says and "\n" not in says and len(says) < 160


def test_what_a_wheel_of_a_release_page_requires_is_resolved_though_that_wheel_is_in_no_lock(world, index):
    """vLLM for the other CUDA: without what it requires, its own check would refuse the environment."""
    index.add("vllm", "0.30.0", ["torch>=2", "xgrammar-core"])
    index.add("vllm", "0.32.0", ["torch>=2"])
    index.add("xgrammar-core", "1.0")
    step = FixStep("install vllm", ("uv", "pip", "install", "https://example.org/vllm-0.30.0+cu129.whl"), "ask")
    released = KernelPlan("vllm", "0.30.0", "release", "", "", steps=(step,))
    found = resolve_plan(world, plan(kernels=(released,)), contract(need("vllm", ">=0.20")))
    assert row(found, "xgrammar-core").version == "1.0"
    assert not [one for one in found.lock if one.name == "vllm"] and found.packages["vllm"] == "0.30.0"
    assert kernels_to_build(found) == [released]
