"""From proofs to one verdict: ready only where every required capability was executed, and nothing else is a pass."""

from __future__ import annotations

import json

import pytest

from gpuready import rules
from gpuready.catalog.proofs import find_proof, list_proofs
from gpuready.check.evaluate import judge
from gpuready.contracts import load_contract, parse_contract_spec
from gpuready.model import Capability, Contract, Fact, Facts, proof
from gpuready.model.proof import ProofRecord, ProofResult
from gpuready.probe.job import parse_wants
from gpuready.prove.selection import _make_torch_contract
from gpuready.workflow import prove
from gpuready.workflow.refusal import Refused

INSTALL = "uv pip install --python /venv/bin/python"
NUMBERS = {"x": {"value": 1, "bound": "most", "limit": 2}}
GOOD = ProofResult("matmul-bf16", "passed", device="cuda:0", numbers=NUMBERS, steps=("begin",), capability=("bf16",))
BAD = {"failed": "wrong", "crashed": "SIGSEGV", "hung": "no end", "absent": "no GPU", "unsupported": "no fp8"}
CODES = {"failed": "CAP013", "crashed": "CAP014", "hung": "CAP015", "absent": "CAP016", "unsupported": "CAP016"}


def report(proofs, level="required", names=("bf16",)):
    contract = Contract("demo", "1", capabilities=tuple(Capability(name, level) for name in names))
    facts = Facts([], "host").with_facts(*prove._proof_facts(proofs, [contract]))
    own = [rules.load_rule(code) for code in ("CAP013", "CAP014", "CAP015", "CAP016")]
    return judge(own, facts, contract)


def test_what_was_executed_is_ready():
    result = report([GOOD])
    assert (result.verdict, result.exit) == ("ready", 0)
    fact = result.facts.fact("can.bf16")
    assert (fact.value, fact.how) == (True, "run") and "cuda:0" in fact.source


@pytest.mark.parametrize("verdict", BAD)
def test_what_did_not_pass_is_not_ready_and_has_its_code(verdict):
    result = report([GOOD.replace(verdict=verdict, why=BAD[verdict])])
    assert result.verdict == "not-ready" and [f.code for f in result.findings] == [CODES[verdict]]
    assert BAD[verdict] in result.findings[0].says and result.facts.fact("can.bf16").value is False


@pytest.mark.parametrize("verdict", BAD)
def test_what_the_contract_only_offers_never_stops_it(verdict):
    result = report([GOOD.replace(verdict=verdict, why=BAD[verdict])], "optional")
    assert result.verdict == "clear" and result.findings[0].severity in ("warning", "info")


def test_skipped_is_undecided_and_never_a_pass():
    result = report([GOOD.replace(verdict="skipped", why="512 MiB are free")])
    assert result.verdict == "undecided" and result.undecided[0].missing[0].gap == "512 MiB are free"


def test_all_proofs_of_a_capability_must_pass():
    result = report([GOOD, GOOD.replace(name="autocast-bf16", verdict="failed", why="wrong")])
    assert result.verdict == "not-ready"
    result = report([GOOD, GOOD.replace(name="autocast-bf16", verdict="skipped", why="full")])
    assert result.verdict == "undecided"


def test_a_capability_without_any_proof_is_never_ready():
    result = report([GOOD], names=("bf16", "no-such-kernel"))
    assert result.verdict == "undecided" and "no proof" in result.facts.fact("can.no-such-kernel").gap


def test_a_capability_whose_proof_was_not_executed_is_never_ready():
    """fp8 has no proof on a CPU, whatever else passed there."""
    result = report([GOOD], names=("bf16", "fp8"))
    assert result.verdict == "undecided" and result.facts.fact("can.bf16").value is True


def test_the_cause_in_the_output_gives_the_finding_its_fix():
    output = """Traceback (most recent call last):
  File "loader.py", line 40, in act
    for batch in loader:
RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.
"""
    proof = prove._add_proof_cause(GOOD.replace(verdict="failed", why="RuntimeError", output=output))
    assert proof.cause["code"] == "SYS001"
    (found,) = report([proof]).findings
    assert "SYS001" in found.so and len(found.fix) > 1
    assert found.fix[-1].run == ("gpuready", "prove", "matmul-bf16", "-v")


def missing_steps(framework: str, proof: str, package: str) -> list[tuple[str, ...]]:
    """What CAP016 says to run where a package is missing that a proof needs."""
    row = find_proof(proof)
    contract = load_contract(*parse_contract_spec(framework)) if framework else _make_torch_contract([], [], "")
    gone = ProofResult(row.name, "absent", why=f"{package} is not installed", capability=row.capability, lacks=package)
    facts = Facts([Fact("python.path", "/venv/bin/python")], "host").with_facts(*prove._proof_facts([gone], [contract]))
    (found,) = judge([rules.load_rule("CAP016")], facts, contract).findings
    return [step.run for step in found.fix]


@pytest.mark.parametrize(
    ("framework", "proof", "package", "words"),
    [
        ("axolotl", "entry-axolotl", "axolotl", "gpuready plan axolotl"),
        ("axolotl", "axolotl-train", "torch", "gpuready plan axolotl"),
        ("axolotl", "flash-attn", "flash-attn", "gpuready plan axolotl --wants flash-attn"),
        ("axolotl", "trainer-lora", "peft", "uv pip install --python /venv/bin/python peft"),
        ("", "bnb-optimizer", "bitsandbytes", "uv pip install --python /venv/bin/python bitsandbytes"),
        ("", "flash-attn", "flash-attn", f"{INSTALL} --no-build-isolation-package flash-attn flash-attn"),
        ("", "xformers", "xformers", f"{INSTALL} xformers"),
    ],
)
def test_what_is_missing_is_installed_by_a_command_that_there_is(framework, proof, package, words):
    assert missing_steps(framework, proof, package) == [tuple(words.split())]


def test_without_a_framework_a_missing_torch_is_installed_and_not_planned():
    (run,) = missing_steps("", "matmul-bf16", "torch")
    assert run[:3] == ("uv", "pip", "install") and run[-1].startswith("torch==")


def test_every_word_that_a_missing_package_is_planned_with_is_one_of_plan():
    for row in list_proofs():
        for framework in ("axolotl", "roll", "colossalai", "transformers", "trl", "verl") if row.package else ():
            for run in missing_steps(framework, row.name, row.package):
                assert run and (run[0] == "uv" or "--wants" not in run or parse_wants(run[-1]))


def test_rules_of_proofs_sleep_under_a_check():
    assert not {"CAP013", "CAP014", "CAP015", "CAP016"} & {
        rule.CODE for rule in rules.applicable_rules(Facts([Fact("gpu.count", 1)]))
    }


# -- the evidence -------------------------------------------------------------------------------------------


def test_evidence_is_sealed_and_a_change_is_seen(tmp_path):
    evidence = ProofRecord("host", "/py", (GOOD,), "2026-11-15T00:00:00Z").with_digest()
    assert evidence.is_intact and not evidence.replace(host="other").is_intact
    path = tmp_path / "e.json"
    path.write_text(prove.evidence_document(evidence))
    assert prove.read_evidence(str(path)) == evidence
    data = json.loads(path.read_text())
    data["proofs"][0]["verdict"] = "failed"
    path.write_text(json.dumps(data))
    with pytest.raises(Refused, match="was changed"):
        prove.read_evidence(str(path))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"host": "h"}', '{"host": 1, "python": "p", "proofs": 3}', "[" * 99999]
)
def test_what_is_no_evidence_is_refused(tmp_path, text):
    path = tmp_path / "e.json"
    path.write_text(text)
    with pytest.raises(Refused):
        prove.read_evidence(str(path))


def test_the_digest_does_not_depend_on_the_order_of_keys():
    a = ProofRecord("h", "p", (GOOD.replace(numbers={"a": {"value": 1}, "b": {"value": 2}}),))
    b = ProofRecord("h", "p", (GOOD.replace(numbers={"b": {"value": 2}, "a": {"value": 1}}),))
    assert proof.compute_digest(a) == proof.compute_digest(b)


# -- words --------------------------------------------------------------------------------------------------


def test_words_are_frameworks_capabilities_or_proofs():
    assert prove.classify_words(["transformers", "bf16", "Matmul_FP8"]) == (["transformers"], ["bf16", "matmul-fp8"])
    with pytest.raises(Refused, match=r"'bf61' is not a framework, a capability or a proof \(nearest: bf16"):
        prove.classify_words(["bf61"])
    with pytest.raises(Refused, match="there is no proof of gptq yet"):
        prove.classify_words(["gptq"])


def test_a_word_may_be_an_installed_package_without_a_contract():
    assert prove.classify_words(["Kite_String", "bf16"], sees_packages=True) == (["kite-string"], ["bf16"])
    with pytest.raises(Refused, match=r"'\.\./x' is not a framework"):
        prove.classify_words(["../x"], sees_packages=True)
    here = Facts([Fact("python.requires", {"kite-string": {}}, "test", "stated")])
    prove._refuse_unknown_words(["kite-string", "trl", "any==1"], here)
    with pytest.raises(Refused, match=r"'bf61' is not a framework, a capability or a proof \(nearest: bf16"):
        prove._refuse_unknown_words(["bf61"], here)


def test_c13_what_the_kernel_says_of_the_gpu_is_attached_to_what_broke_on_it():
    class FakeHost:
        def find_log_lines(self, path, pieces):
            result = "3,{},1,-;NVRM: Xid (PCI:0000:3b:00): {}, pid=1"
            return (result.format(1, 79), result.format(2, 31))

    broke, fine = (GOOD.replace(verdict="failed", why="illegal access", output="x\n"), GOOD.replace(name="fine"))
    known = Facts([Fact("kernel.xids", ({"line": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1"},))])
    first, second = prove._append_kernel_errors((broke, fine), known, FakeHost())
    assert "31, pid=1" in first.output and ": 79" not in first.output and second == fine
