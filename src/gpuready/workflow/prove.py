"""``gpuready prove``: probe, execute the proofs that the contract needs, and judge everything in one Report."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpuready import __version__, contracts, system, workflow
from gpuready.catalog import proofs
from gpuready.catalog.proofs import ProofSpec
from gpuready.model import SCHEMA, Contract, Fact, Facts, Record, Report, proof, validation
from gpuready.model.proof import NO_PROOF, PASSED, SKIPPED, ProofRecord, ProofResult
from gpuready.probe import gpu, kernel_log
from gpuready.prove import placement, selection
from gpuready.prove.session import ProofCallback, ProofSession
from gpuready.system import durable_files, own_folders
from gpuready.workflow import contract_choice, machine_facts
from gpuready.workflow.diagnose import diagnose_logs
from gpuready.workflow.refusal import Refused, read_named_file, suggest_nearest

MEMORY_WAIT_SECONDS, MEMORY_POLL_SECONDS = 50.0, 0.5
"""Seconds to wait for GPU memory that no process holds any more, and seconds between polls."""

PACKAGE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,98}[a-z0-9])?")
MAX_KEPT_EVIDENCE = 50
"""How many evidence files the user's cache keeps."""


class ProveResult(Record):
    """The Reports, and the evidence that they were judged by."""

    reports: tuple[Report, ...]
    evidence: ProofRecord
    saved: str = ""  # where the evidence is
    note: str = ""  # why it was not kept


def run_proofs(
    words: Sequence[str] = (),
    *,
    python: str | None = None,
    wants: str | None = None,
    model: str | None = None,
    config: str | None = None,
    contract: str | None = None,
    on_cpu: bool = False,
    strict: bool = False,
    deadline: float = 0.0,
    jobs: int = 0,
    into: str | None = None,
    tell: ProofCallback | None = None,
) -> ProveResult:
    """Execute proofs. A word is a framework, a capability or a proof; without words, everything that torch has here."""
    wants = ",".join(filter(None, (wants, "cpu" if on_cpu else ""))) or None
    frameworks, capabilities = classify_words(words, sees_packages=True)
    facts, own_contract = _collect_proof_facts(frameworks, python, wants, model, config, contract)
    _refuse_unknown_words(frameworks, facts)
    contracts_used = [
        contract_choice.choose_contract(facts, *contract_choice.parse_framework_spec(spec, True)) for spec in frameworks
    ]
    contracts_used += [contract_choice.note_version_mismatch(facts, own_contract)] if own_contract else []
    needed = [
        (one, selection.list_needed_proofs(one))
        for one in (selection.select_capabilities(each, facts) for each in contracts_used)
    ]
    if capabilities or not contracts_used:
        needed.append(_contract_for_capabilities(capabilities, facts))
    rows = {row.name: row for _, proof_rows in needed for row in proof_rows}
    if all(row.device == "cpu" for row in rows.values()):
        facts = facts.with_facts(Fact("job.wants", ("cpu",), "the proofs that were named", "stated"))
    placed = [placement.place_proof(row, facts, 1) for row in rows.values()]
    if rows and not any(placed):
        raise Refused(f"no proof of {', '.join(words)} runs on a CPU: leave out --cpu, on a machine with a GPU")
    if any(isinstance(task, placement.ProofTask) for task in placed):
        facts = machine_facts.add_import_result(facts, python, "always")
    facts = wait_for_free_memory(facts, tuple(rows.values()))
    proofs = _execute_proofs(tuple(rows.values()), facts, jobs, deadline, tell)
    evidence = _make_evidence(proofs, facts)
    all_contracts = [one for one, _ in needed]
    reports = tuple(
        workflow.judge_contract(
            workflow.add_other_contracts(add_proof_facts(facts, proofs, one, proof_rows), one, all_contracts),
            one,
            {},
            strict,
        )
        for one, proof_rows in needed
    )
    path, note = _save_evidence(evidence, into)
    return ProveResult(reports, evidence, path, note)


def classify_words(words: Sequence[str], sees_packages: bool = False) -> tuple[list[str], list[str]]:
    """Split words into frameworks and capabilities; Refused where one is neither, unless it may name an installed package."""
    frameworks: list[str] = []
    capabilities: list[str] = []
    for word in words:
        name = word.casefold().replace("_", "-")
        framework = word.partition("==")[0].partition(":")[0]
        if contracts.has_contract(framework) or framework != word:
            frameworks.append(word)
        elif selection.is_capability_or_proof(name):
            capabilities.append(name)
        elif sees_packages and PACKAGE_NAME.fullmatch(name):
            frameworks.append(name)
        else:
            raise _unknown_word(word)
    return frameworks, capabilities


def _refuse_unknown_words(frameworks: Sequence[str], facts: Facts) -> None:
    """Refuse a word that is nothing known and no installed package either."""
    installed = facts.value_if_known("python.requires") or {}
    for word in frameworks:
        if "=" not in word and ":" not in word and not contracts.has_contract(word) and word not in installed:
            raise _unknown_word(word)


def _unknown_word(word: str) -> Refused:
    if proofs.is_capability(word):
        return Refused(f"there is no proof of {word} yet; gpuready prove --list shows what can be proved")
    known = [*proofs.list_proof_capabilities(), *(row.name for row in proofs.list_proofs())]
    nearest = suggest_nearest(word, [*contracts.list_frameworks(), *known])
    return Refused(f"{word!r} is not a framework, a capability or a proof{nearest}; gpuready prove --list shows them")


def list_proofs() -> list[ProofSpec]:
    return list(proofs.list_proofs())


def _collect_proof_facts(
    frameworks: Sequence[str],
    python: str | None,
    wants: str | None,
    model: str | None,
    config: str | None,
    contract: str | None,
) -> tuple[Facts, Contract | None]:
    specs = [contract_choice.parse_framework_spec(spec, True) for spec in frameworks]
    own_contract = None if contract is None else contract_choice.read_named_contract(contract)
    facts = workflow.collect_facts(
        None, python, {}, specs, own_contract, wants=wants, model=model, config=config, run_python=True
    )
    if specs or own_contract:  # a capability that is named is proved whatever the environment was made for
        facts = machine_facts.add_environment_purpose(facts)
    return facts, own_contract


def _contract_for_capabilities(capabilities: Sequence[str], facts: Facts) -> tuple[Contract, tuple[ProofSpec, ...]]:
    version = str(facts.value_if_known("package.torch") or "")
    return (
        selection.select_named_proofs(capabilities, version)
        if capabilities
        else selection.select_default_proofs(facts, version)
    )


# -- executing ----------------------------------------------------------------------------------------------


def wait_for_free_memory(
    facts: Facts, rows: Sequence[ProofSpec], probe_gpus: Callable[[], Iterable[Fact]] | None = None
) -> Facts:
    """Wait until the memory of a process that has just ended is free, at most MEMORY_WAIT_SECONDS; return the facts."""
    deadline = time.monotonic() + MEMORY_WAIT_SECONDS
    while placement.is_memory_draining(rows, facts) and time.monotonic() < deadline:
        time.sleep(MEMORY_POLL_SECONDS)
        facts = facts.with_facts(*(probe_gpus or _probe_gpu_memory)())
    return facts


def _probe_gpu_memory() -> list[Fact]:
    """Return the current free memory and processes of the GPUs."""
    return [fact for fact in gpu.probe_gpus(system.LiveHost()) if fact.key in ("gpu.free", "gpu.processes")]


def _execute_proofs(
    rows: tuple[ProofSpec, ...], facts: Facts, jobs: int, deadline: float, tell: ProofCallback | None
) -> tuple[ProofResult, ...]:
    python = machine_facts.require_interpreter(facts)
    host = system.LiveHost()
    session = ProofSession(
        facts, python, host.variables, jobs=jobs, deadline=deadline, cpus=host.count_cpus().get("usable", 1), tell=tell
    )
    return tuple(_add_proof_cause(proof) for proof in _append_kernel_errors(session.run(rows), facts, host))


def _append_kernel_errors(
    proofs: tuple[ProofResult, ...], facts: Facts, host: system.HostAccess
) -> tuple[ProofResult, ...]:
    """Append to failed GPU proofs what the kernel has logged about the GPU since the first probe."""
    if not any(_broke_on_gpu(proof) for proof in proofs):
        return proofs
    before = [row["line"] for row in facts.value_if_known("kernel.xids") or ()]
    now = [row["line"] for fact in kernel_log.probe_kernel_log(host) for row in fact.value or ()]
    new_lines = [line for line in now if line not in before][-5:]
    if not new_lines:
        return proofs
    kernel_text = "\n".join(["", "-- the kernel's log --", *new_lines, ""])
    return tuple(p.replace(output=p.output + kernel_text) if _broke_on_gpu(p) else p for p in proofs)


def _broke_on_gpu(proof: ProofResult) -> bool:
    return proof.verdict in ("failed", "crashed", "hung") and proof.device.startswith("cuda")


def _add_proof_cause(proof: ProofResult) -> ProofResult:
    """Add to a failed proof the cause that its output shows, if any."""
    if proof.verdict in (PASSED, SKIPPED, "absent", "unsupported") or not proof.output.strip():
        return proof
    diagnosis = diagnose_logs([[proof.output.encode("utf-8", "backslashreplace")]], look=False)
    if diagnosis.verdict != "cause" or not diagnosis.code or diagnosis.cause == "not-environment":
        return proof
    fix = [step.to_json() for step in diagnosis.fix]
    return proof.replace(cause={"code": diagnosis.code, "says": diagnosis.says, "so": diagnosis.so, "fix": fix})


def add_proof_facts(
    facts: Facts, proofs: Sequence[ProofResult], contract: Contract, rows: Sequence[ProofSpec]
) -> Facts:
    """Add the proofs executed for one contract; another may bring its own build of the same."""
    names = {row.name for row in rows}
    return facts.with_facts(*_proof_facts([p for p in proofs if p.name.partition(",")[0] in names], [contract]))


def _proof_facts(proofs: Sequence[ProofResult], needed: Sequence[Contract]) -> list[Fact]:
    """Return the proofs as facts: ``can.*``, and the table that the rules read."""
    facts = proof.capability_facts(proofs)
    known = {fact.key for fact in facts}
    missing = dict.fromkeys(name for one in needed for name in selection.unproved_capabilities(one))
    facts += [
        Fact(f"can.{name}", None, "the catalogue of proofs", "run", gap=NO_PROOF)
        for name in missing
        if f"can.{name}" not in known
    ]
    table = tuple(_proof_row(executed) for executed in proofs)
    return [*facts, Fact("proof.results", table, f"{len(proofs)} proofs", "run")]


def _proof_row(proof: ProofResult) -> dict[str, Any]:
    row = {"name": proof.name, "verdict": proof.verdict, "why": proof.why, "capability": proof.capability}
    row |= {"device": proof.device, "step": proof.last_step, "lacks": proof.lacks}
    return row | {key: proof.cause[key] for key in ("code", "says", "fix") if key in proof.cause}


# -- the evidence -------------------------------------------------------------------------------------------


def _make_evidence(proofs: tuple[ProofResult, ...], facts: Facts) -> ProofRecord:
    keys = (
        "gpu.name",
        "gpu.uuid",
        "gpu.visible",
        "driver.version",
        "os.name",
        "os.kernel",
        "cpu.model",
        "package.torch",
    )
    return ProofRecord(
        host=facts.host,
        python=str(facts.value_if_known("python.path") or ""),
        proofs=proofs,
        made=workflow.utc_timestamp(),
        machine={key: value for key in keys if (value := facts.value_if_known(key)) is not None},
        gpuready=__version__,
    ).with_digest()


def _save_evidence(evidence: ProofRecord, into: str | None) -> tuple[str, str]:
    """Save the evidence to the named file, else in the user's cache; failing to write the cache is no error."""
    text = evidence_document(evidence)
    if into is not None:
        workflow.save_text_file(into, text)
        return into, ""
    try:
        folder = own_folders.make_cache_folder(system.LiveHost().variables, "proofs")
        path = f"{folder}/{evidence.digest.partition(':')[2][:16]}.json"
        system.save_atomically(path, text)
        for old in own_folders.files_beyond_newest(folder, MAX_KEPT_EVIDENCE):
            durable_files.unlink_quietly(old)
    except (system.AccessError, OSError) as error:
        return "", f"the evidence was not kept: {error}"
    return path, ""


def evidence_document(evidence: ProofRecord) -> str:
    """Return the evidence as the text of a JSON file."""
    whole = {"schema": SCHEMA, "kind": "evidence"} | evidence.to_json()
    return json.dumps(whole, indent=1, default=str) + "\n"


def read_evidence(path: str) -> ProofRecord:
    """Read evidence from a file; Refused where it is none, or was changed since it was sealed."""
    try:
        evidence = validation.parse_record(ProofRecord, json.loads(read_named_file(path)))
    except (ValueError, RecursionError) as error:
        raise Refused(
            f"{path} is not evidence of gpuready prove: {error}; make one with gpuready prove -o FILE"
        ) from None
    if not evidence.is_intact:
        raise Refused(f"{path} was changed after it was made: its content does not have the hash that it states")
    return evidence
