"""The difference of two contracts."""

from __future__ import annotations

from gpuready import contracts
from gpuready.contracts.diff import diff_contract_rows
from gpuready.model import Capability, Contract, ContractVariable, FixStep, KnownError, Requirement

OLD = Contract(
    framework="kite",
    version="1",
    needs=(
        Requirement("package.torch", ">=2.2", cite="a"),
        Requirement("package.reel", "==1"),
        Requirement("gpu.memory", ">=8GB"),
        Requirement("gpu.memory", ">=16GB", level="recommended"),
        Requirement("gpu.memory", ">=40GB", when="model>7b"),
    ),
    capabilities=(Capability("bf16", gate="bf16"),),
    variables=(ContractVariable("KITE", "read"), ContractVariable("TAIL", "set", "1")),
    errors=(KnownError("snap", "wind", "rope"),),
    steps=(FixStep("install", ("pip", "install", "kite")),),
)


def rows(a, b):
    return {(r["change"], r["table"], r["name"]): (r["before"], r["after"]) for r in diff_contract_rows(a, b)}


def test_a_contract_does_not_differ_from_itself():
    assert diff_contract_rows(OLD, OLD) == []


def test_new_citations_and_versions_are_no_change():
    moved = OLD.replace(version="2", needs=(OLD.needs[0].replace(cite="b"), *OLD.needs[1:]))
    assert diff_contract_rows(OLD, moved) == []


def test_rows_are_added_removed_and_changed():
    new = OLD.replace(
        platforms=("cuda", "rocm"),
        needs=(Requirement("package.torch", ">=2.6"), *OLD.needs[2:], Requirement("package.sail", "*")),
        capabilities=(Capability("bf16", "required", "bf16"), Capability("fp8")),
        variables=(ContractVariable("KITE", "read", required=True),),
        errors=(KnownError("snap", "wind", "chain"),),
        steps=(FixStep("install", ("pip", "install", "kite>=2")),),
    )
    assert rows(OLD, new) == {
        ("changed", "platforms", "platforms"): ("cuda", "cuda, rocm"),
        ("changed", "needs", "package.torch"): (">=2.2, required", ">=2.6, required"),
        ("removed", "needs", "package.reel"): ("==1, required", ""),
        ("added", "needs", "package.sail"): ("", "*, required"),
        ("changed", "capabilities", "bf16"): ("optional, bf16", "required, bf16"),
        ("added", "capabilities", "fp8"): ("", "optional"),
        ("changed", "variables", "KITE"): ("read", "read, required"),
        ("removed", "variables", "TAIL"): ("set, 1", ""),
        ("changed", "errors", "snap"): ("wind, rope", "wind, chain"),
        ("changed", "steps", "install"): ("pip install kite, manual", "pip install kite>=2, manual"),
    }


def test_several_needs_on_one_fact_are_told_apart():
    higher = OLD.replace(needs=(*OLD.needs[:3], OLD.needs[3].replace(want=">=24GB"), OLD.needs[4]))
    assert rows(OLD, higher) == {
        ("changed", "needs", "gpu.memory (recommended)"): (">=16GB, recommended", ">=24GB, recommended")
    }


def test_turned_round_it_tells_the_opposite():
    there, back = rows(OLD, Contract("kite", "2")), rows(Contract("kite", "2"), OLD)
    opposite = {"added": "removed", "removed": "added", "changed": "changed"}
    assert {(opposite[c], t, n): (b, a) for (c, t, n), (a, b) in there.items()} == back


def test_it_sees_what_changed_between_real_versions():
    changed = rows(contracts.load_contract("transformers", "5.0"), contracts.load_contract("transformers", "5.22"))
    assert changed["changed", "needs", "package.torch"] == (">=2.2, required", ">=2.6, required")
    assert changed["changed", "needs", "python.version"] == (">=3.10, required", ">=3.11, required")


def test_what_a_release_borrows_is_no_change_between_versions():
    """colossalai 0.4.8 is made from its release: advice of 0.5.0 is not required there, and it has no steps of people."""
    changed = rows(contracts.load_contract("colossalai", "0.4.8"), contracts.load_contract("colossalai", "0.5.0"))
    names = {name for _, table, name in changed if table == "needs"}
    assert {"package.torch", "package.transformers"} <= names
    assert not names & {"os.system", "gpu.count", "toolkit.version when platform=cuda", "package.numpy (recommended)"}
    assert not [key for key in changed if key[1] == "steps"]
    borrowed = OLD.replace(needs=(Requirement("gpu.count", ">=1", level="recommended", cite="x; of 2.0"),))
    own = OLD.replace(needs=(Requirement("gpu.count", ">=1", cite="x"),))
    assert rows(borrowed, own) == rows(own, borrowed) == {}
    assert rows(borrowed, own.replace(needs=(Requirement("gpu.count", ">=2"),)))
