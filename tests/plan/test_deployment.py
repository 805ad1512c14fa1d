"""What a plan needs besides its packages to become a file."""

from __future__ import annotations

from gpuready import contracts
from gpuready.catalog import indexes
from gpuready.model.plan import LockedPackage, Plan
from gpuready.plan.deployment import add_deployment
from tests.rules.worlds import H100, facts

PLAN = Plan("transformers", "5.22", "plan", torch="2.13.0+cu126", cuda="12.6", index="cu126")
CONTRACT = contracts.load_contract("transformers", None, None)


def test_indexes_by_name_and_address_and_the_default_one_never():
    rows = (
        LockedPackage("torch", "2.13.0+cu126", index="cu126"),
        LockedPackage("numpy", "2.3.0"),
        LockedPackage("x", "1", index="pypi"),
    )
    found = add_deployment(PLAN.replace(lock=rows), CONTRACT, facts(H100))
    assert found.indexes == {"cu126": indexes.index_url("cu126")}
    assert add_deployment(PLAN.replace(index="pypi"), CONTRACT, facts(H100)).indexes == {}


def test_the_machine_as_far_as_it_is_known():
    found = add_deployment(PLAN, CONTRACT, facts(H100 | {"memory.limit": 1 << 36}))
    assert found.host == {"gpus": 1, "cpus": 64, "memory": 1 << 36}
    assert add_deployment(PLAN, CONTRACT, facts({})).host == {}


def test_the_allocator_variable_has_the_name_that_the_planned_torch_reads():
    roll = contracts.load_contract("roll", None, None)
    old, new = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
    for torch, wanted, other in (("2.8.0+cu126", old, new), ("2.13.0+cu126", new, old)):
        found = add_deployment(PLAN.replace(framework="roll", torch=torch), roll, facts(H100)).variables
        assert wanted in found and other not in found


def test_an_image_and_its_flags():
    found = add_deployment(PLAN, CONTRACT, facts(H100))
    assert found.image.startswith("nvidia/cuda:12.6") and "--gpus" in found.image_flags and "uv" in found.tools


def test_what_is_impossible_stays_as_it_is():
    nothing = PLAN.replace(verdict="impossible")
    assert add_deployment(nothing, CONTRACT, facts(H100)) == nothing
