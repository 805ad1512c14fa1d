"""Which proofs a contract, a job and a machine need."""

from __future__ import annotations

from tarmac import contracts
from tarmac.catalog import proofs
from tarmac.model import Capability, Contract, Fact
from tarmac.prove import choose
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
    plain = levels(choose.in_force(DEMO, facts()))
    assert plain["cuda"] == "required" and plain["sdpa"] == "optional"
    assert "fp8" not in plain and "collectives" not in plain
    asked = choose.in_force(DEMO, facts(job__wants=("fp8", "no-such-kernel", "triton"), job__gpus=2))
    told = levels(asked)
    assert told["fp8"] == told["no-such-kernel"] == told["collectives"] == told["triton"] == "required"
    assert choose.unproved(asked) == ("no-such-kernel",)


def test_no_framework_is_ready_without_a_training_step_and_its_data():
    told = levels(choose.in_force(DEMO, facts()))
    assert told["training-step"] == told["dataloader"] == "required"


def test_a_contract_for_gpus_needs_one_where_there_is_none():
    bare = facts(gpu__count=0, gpu__visible=(), platform__name="cpu")
    assert levels(choose.in_force(DEMO, bare))["cuda"] == "required"
    on_cpu = levels(choose.in_force(DEMO, bare.also(Fact("job.wants", ("cpu",)))))
    assert "cuda" not in on_cpu and on_cpu["cpu"] == "required" and on_cpu["training-step"] == "required"


def test_the_rows_are_those_of_what_is_in_force():
    rows = {row.name for row in choose.rows(choose.in_force(DEMO, facts(job__wants=("fp8",))))}
    assert {"cuda", "matmul-fp8", "sdpa", "sdpa-math", "training-step", "dataloader"} <= rows
    assert "collectives" not in rows and "torch-compile" not in rows


def test_names_without_a_framework_are_all_required():
    contract, rows = choose.named(["bf16", "sdpa-math"], "2.11.0")
    assert {row.name for row in rows} == {"matmul-bf16", "autocast-bf16", "sdpa-math"}
    assert levels(contract) == {"bf16": "required", "sdpa": "required", "sdpa-math": "required"}
    assert choose.known("bf16") and choose.known("matmul-bf16") and not choose.known("bf17")


def test_everything_leaves_out_of_the_verdict_what_the_hardware_does_not_have():
    contract, rows = choose.everything(facts(gpu__capability=("8.0",)), "2.11.0")
    told = levels(contract)
    assert told["fp8"] == "optional" and told["peer-access"] == "optional" and told["bf16"] == "required"
    assert {row.name for row in rows} == {row.name for row in proofs.every() if row.default}
    assert levels(choose.everything(facts(), "2.11.0")[0])["fp8"] == "required"


def test_every_contract_has_something_to_prove():
    for name in contracts.frameworks():
        one = choose.in_force(contracts.load(name), facts())
        assert choose.rows(one), name
