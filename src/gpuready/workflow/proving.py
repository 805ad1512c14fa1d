"""``gpuready prove``: probe, execute the proofs that the contract needs, and judge everything in one Report."""

from __future__ import annotations

from gpuready import __version__, contracts, held, proven, system, workflow
from gpuready.model import SCHEMA, Fact, Noun, Report
from gpuready.prove import choose
from gpuready.proven import PASSED, SKIPPED, Evidence
from gpuready.workflow import choosing, looking
from gpuready.workflow.refusal import Refused, nearest, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from gpuready.catalog.proofs import Row
    from gpuready.model import Contract, Facts
    from gpuready.prove.session import Tell
    from gpuready.proven import Proof

PATIENCE, EVERY = 50.0, 0.5
"""Seconds to wait for GPU memory that no process holds any more, and seconds between polls."""

KEPT = 50
"""How many evidence files the user's cache keeps."""


class Proved(Noun):
    """The Reports, and the evidence that they were judged by."""

    reports: tuple[Report, ...]
    evidence: Evidence
    saved: str = ""  # where the evidence is
    note: str = ""  # why it was not kept

    _nested = {"reports": Report, "evidence": Evidence}


def prove(
    words: Sequence[str] = (),
    *,
    python: str | None = None,
    wants: str | None = None,
    model: str | None = None,
    config: str | None = None,
    contract: str | None = None,
    strict: bool = False,
    deadline: float = 0.0,
    jobs: int = 0,
    into: str | None = None,
    tell: Tell | None = None,
) -> Proved:
    """Execute proofs. A word is a framework, a capability or a proof; without words, everything that torch has here."""
    frameworks, capabilities = sorted_words(words)
    facts, own = _look(frameworks, python, wants, model, config, contract)
    chosen = [choosing.contract_of(facts, *choosing.asked(spec, True)) for spec in frameworks]
    chosen += [choosing.given(facts, own)] if own else []
    needed = [(one, choose.rows(one)) for one in (choose.in_force(each, facts) for each in chosen)]
    if capabilities or not chosen:
        needed.append(_without_framework(capabilities, facts))
    rows = {row.name: row for _, several in needed for row in several}
    facts = freed(facts, tuple(rows.values()))
    proofs = _executed(tuple(rows.values()), facts, jobs, deadline, tell)
    evidence = _evidence(proofs, facts)
    every = [one for one, _ in needed]
    reports = tuple(
        workflow._judge(workflow._beside(seen(facts, proofs, one, several), one, every), one, {}, strict)
        for one, several in needed
    )
    saved, note = _saved(evidence, into)
    return Proved(reports, evidence, saved, note)


def sorted_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words into frameworks and capabilities; Refused where one is neither."""
    frameworks: list[str] = []
    capabilities: list[str] = []
    for word in words:
        name = word.casefold().replace("_", "-")
        framework = word.partition("==")[0].partition(":")[0]
        if contracts.contracted(framework) or framework != word:
            frameworks.append(word)
        elif choose.known(name):
            capabilities.append(name)
        else:
            from gpuready.catalog import proofs

            every = [*contracts.frameworks(), *proofs.capabilities(), *(row.name for row in proofs.every())]
            raise Refused(
                f"{word!r} is no framework, capability or proof{nearest(word, every)}; gpuready prove --list shows them"
            )
    return frameworks, capabilities


def listed() -> list[Row]:
    from gpuready.catalog import proofs

    return list(proofs.every())


def _look(
    frameworks: Sequence[str],
    python: str | None,
    wants: str | None,
    model: str | None,
    config: str | None,
    contract: str | None,
) -> tuple[Facts, Contract | None]:
    asked = [choosing.asked(spec, True) for spec in frameworks]
    own = None if contract is None else refusing(contracts.read, contract)
    look, _, stop = looking.start(None, python, {}, None, *looking.besides(asked, own))
    try:
        job = looking.job(wants, model, config, own)
        return workflow._fitted(look().also(*job), config), own
    except BaseException:
        stop()
        raise


def _without_framework(capabilities: Sequence[str], facts: Facts) -> tuple[Contract, tuple[Row, ...]]:
    version = str(facts.known("package.torch") or "")
    return choose.named(capabilities, version) if capabilities else choose.everything(facts, version)


# -- executing ----------------------------------------------------------------------------------------------


def freed(facts: Facts, rows: Sequence[Row], look: Callable[[], Iterable[Fact]] | None = None) -> Facts:
    """Wait until the memory of a process that has just ended is free, at most MEMORY_WAIT_SECONDS; return the facts."""
    import time

    from gpuready.prove import ground

    until = time.monotonic() + PATIENCE
    while ground.draining(rows, facts) and time.monotonic() < until:
        time.sleep(EVERY)
        facts = facts.also(*(look or _gpus)())
    return facts


def _gpus() -> list[Fact]:
    """Return the current free memory and processes of the GPUs."""
    from gpuready.probe import gpu

    return [fact for fact in gpu.look(system.Live()) if fact.key in ("gpu.free", "gpu.processes")]


def _executed(
    rows: tuple[Row, ...], facts: Facts, jobs: int, deadline: float, tell: Tell | None
) -> tuple[Proof, ...]:
    from gpuready.prove.session import Session

    python = str(facts.known("python.path") or "")
    if not python:
        raise Refused("there is no Python to run proofs with: name the patient with --python PATH")
    door = system.Live()
    session = Session(
        facts,
        python,
        door.variables,
        jobs=jobs,
        deadline=deadline,
        cpus=door.cpus().get("usable", 1),
        tell=tell,
    )
    return tuple(_diagnosed(proof) for proof in _with_xids(session.run(rows), facts, door))


def _with_xids(proofs: tuple[Proof, ...], facts: Facts, door: system.Door) -> tuple[Proof, ...]:
    """Append to failed GPU proofs what the kernel has logged about the GPU since the first probe."""
    if not any(_broke_on_gpu(proof) for proof in proofs):
        return proofs
    from gpuready.probe import kernel

    before = [row["line"] for row in facts.known("kernel.xids") or ()]
    now = [row["line"] for fact in kernel.look(door) for row in fact.value or ()]
    fresh = [line for line in now if line not in before][-5:]
    if not fresh:
        return proofs
    said = "\n".join(["", "-- the kernel's log --", *fresh, ""])
    return tuple(p.but(output=p.output + said) if _broke_on_gpu(p) else p for p in proofs)


def _broke_on_gpu(proof: Proof) -> bool:
    return proof.verdict in ("failed", "crashed", "hung") and proof.device.startswith("cuda")


def _diagnosed(proof: Proof) -> Proof:
    """Add to a failed proof the cause that its output shows, if any."""
    if proof.verdict in (PASSED, SKIPPED, "absent", "unsupported") or not proof.output.strip():
        return proof
    from gpuready.workflow.diagnosing import diagnose

    found = diagnose([[proof.output.encode("utf-8", "backslashreplace")]], look=False)
    if found.verdict != "cause" or not found.code or found.cause == "not-environment":
        return proof
    fix = [step.to_json() for step in found.fix]
    return proof.but(cause={"code": found.code, "says": found.says, "so": found.so, "fix": fix})


def seen(facts: Facts, proofs: Sequence[Proof], contract: Contract, rows: Sequence[Row]) -> Facts:
    """Add the proofs executed for one contract; another may bring its own build of the same."""
    names = {row.name for row in rows}
    return facts.also(*_facts([p for p in proofs if p.name.partition(",")[0] in names], [contract]))


def _facts(proofs: Sequence[Proof], needed: Sequence[Contract]) -> list[Fact]:
    """Return the proofs as facts: ``can.*``, and the table that the rules read."""
    found = proven.facts(proofs)
    known = {fact.key for fact in found}
    missing = dict.fromkeys(name for one in needed for name in choose.unproved(one))
    found += [
        Fact(f"can.{name}", None, "the catalogue of proofs", "run", gap="gpuready has no proof of it")
        for name in missing
        if f"can.{name}" not in known
    ]
    table = tuple(_row(proof) for proof in proofs)
    return [*found, Fact("proof.results", table, f"{len(proofs)} proofs", "run")]


def _row(proof: Proof) -> dict[str, Any]:
    row = {"name": proof.name, "verdict": proof.verdict, "why": proof.why, "capability": proof.capability}
    row |= {"device": proof.device, "step": proof.where}
    return row | {key: proof.cause[key] for key in ("code", "says", "fix") if key in proof.cause}


# -- the evidence -------------------------------------------------------------------------------------------


def _evidence(proofs: tuple[Proof, ...], facts: Facts) -> Evidence:
    import time

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
    return Evidence(
        host=facts.host,
        python=str(facts.known("python.path") or ""),
        proofs=proofs,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        machine={key: value for key in keys if (value := facts.known(key)) is not None},
        gpuready=__version__,
    ).sealed()


def _saved(evidence: Evidence, into: str | None) -> tuple[str, str]:
    """Save the evidence to the given file, else in the user's cache; failing to write the cache is no error."""
    from gpuready.system import scratch

    text = document(evidence)
    if into is not None:
        workflow.save(into, text)
        return into, ""
    try:
        folder = scratch.cache(system.Live().variables, "proofs")
        path = f"{folder}/{evidence.digest.partition(':')[2][:16]}.json"
        system.save(path, text)
        for old in scratch.oldest(folder, KEPT):
            scratch.remove(old)
    except (system.Blind, OSError) as blind:
        return "", f"the evidence was not kept: {blind}"
    return path, ""


def document(evidence: Evidence) -> str:
    """Return the evidence as the text of a JSON file."""
    import json

    whole = {"schema": SCHEMA, "kind": "evidence"} | evidence.to_json()
    return json.dumps(whole, indent=1, default=str) + "\n"


def evidence_of(path: str) -> Evidence:
    """Read evidence from a file; Refused where it is none, or was changed since it was sealed."""
    import json

    from gpuready.workflow.refusal import text_of

    try:
        found = held.of(Evidence, json.loads(text_of(path)))
    except (ValueError, RecursionError) as bad:
        raise Refused(f"{path} is no evidence: {bad}; make one with gpuready prove -o FILE") from None
    if not found.intact:
        raise Refused(
            f"{path} was changed after it was made: its content does not have the hash that it states"
        )
    return found
