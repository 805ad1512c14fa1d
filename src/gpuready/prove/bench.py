"""Run benchmarks in the target environment while sampling NVML; results are accepted only as validated numbers.

One process measures many things, as importing torch takes longer than most of them. A measure that crashes or hangs
loses only itself: earlier measures are kept, and another process measures the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from gpuready.catalog.proofs import ProofSpec
from gpuready.model.proof import ProofResult
from gpuready.model.record import Record, field
from gpuready.prove.result import MAX_RESULT_BYTES
from gpuready.prove.runner import RunningProof
from gpuready.system import AccessError, HostAccess, LiveHost, redact_text
from gpuready.system.process.runner import wait_for_any

ProgressCallback = Callable[[str], None]


SAMPLE_INTERVAL_S, HANG_AFTER_S = 0.4, 90.0
"""Seconds between two samples, and seconds without a step after which a measure counts as hung."""

SAMPLED_FIELDS = (*("clock_sm", "clock_sm_max", "power_draw", "temperature", "throttle", "pcie_gen", "pcie_width"),)
MEASURE_VERDICTS = ("measured", "absent", "unsupported", "failed")


class BenchTask(Record):
    """The measures (``name@device``) of one process, or of one process per rank, and their options."""

    words: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)  # for the script: quick, repeat, folder, sizes
    script: str = "bench_machine"
    device: str = "cpu"
    ranks: int = 1
    deadline: float = 600.0


class BenchOutcome(Record):
    """The result of tasks: validated rows of the scripts, and the NVML samples taken meanwhile."""

    rows: tuple[dict[str, Any], ...] = ()
    samples: tuple[dict[str, Any], ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)


class _RunningBench(RunningProof):
    """A running proof that also keeps the measures of its result."""

    measured: list[dict[str, Any]]

    def _make_proof(self) -> ProofResult:
        rank_rows = [_read_measures(self._result_path(rank)) for rank in range(len(self.processes))]
        self.measured = _slowest_rank_rows(rank_rows)
        return super()._make_proof()

    def last_write_time(self) -> float:
        """Return when the script last wrote its result; 0 before the first time."""
        try:
            return float((LiveHost().stat_path(self._result_path(0)) or {}).get("mtime") or 0.0)
        except AccessError:
            return 0.0


def run_benchmarks(
    tasks: tuple[BenchTask, ...],
    python: str,
    variables: Mapping[str, str],
    host: HostAccess,
    say: ProgressCallback = lambda _: None,
    patience: float = HANG_AFTER_S,
) -> BenchOutcome:
    """Run tasks side by side until every measure has a row, with as many processes as that takes."""
    rows: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    left = list(tasks)
    while left:
        left = [task.replace(options=dict(task.options) | {"measures": list(task.words)}) for task in left]
        done = _run_side_by_side(left, python, variables, samples, host, say, patience)
        again = []
        for task, bench, proof in done:
            new = _settle_rows(task, bench.measured, proof)
            rows += new
            versions |= proof.versions
            hardware |= proof.hardware
            words = tuple(w for w in task.words if w not in {f"{r['name']}@{r['device']}" for r in new})
            again += [task.replace(words=words)] if words and task.ranks == 1 else []
        left = again
    return BenchOutcome(tuple(rows), tuple(samples), versions, hardware)


def _bench_proof_row(task: BenchTask) -> ProofSpec:
    return ProofSpec(
        name="bench",
        script=task.script,
        device=task.device,
        arguments=(json.dumps(task.options),),
        deadline=task.deadline,
        source="gpuready bench",
    )


def _run_side_by_side(
    tasks: list[BenchTask],
    python: str,
    variables: Mapping[str, str],
    samples: list[dict[str, Any]],
    host: HostAccess,
    say: ProgressCallback,
    patience: float,
) -> list[tuple[BenchTask, _RunningBench, ProofResult]]:
    """Start all tasks, sample while they run, and wait for the last."""
    running: list[tuple[BenchTask, _RunningBench]] = []
    done: list[tuple[BenchTask, _RunningBench, ProofResult]] = []
    try:
        for task in tasks:
            running.append(
                (task, _RunningBench(_bench_proof_row(task), python, task.device, variables, ranks=task.ranks))
            )
            running[-1][1].measured = []
        on_gpu = any("cuda" in word for task in tasks for word in task.words)
        while running:
            for pair in list(running):
                proof = pair[1].poll_proof()
                if proof is not None:
                    done.append((*pair, proof))
                    running.remove(pair)
            _stop_hung_processes(running, host, patience)
            _report_progress(running, say)
            wait_for_any([p for _, bench in running for p in bench.processes], SAMPLE_INTERVAL_S)
            if running and on_gpu:
                samples += sample_gpus(host)
    finally:
        for _, bench in running:
            bench.close()
    return done


def _stop_hung_processes(running: list[tuple[BenchTask, _RunningBench]], host: HostAccess, patience: float) -> None:
    """Stop processes that have not written for long; their deadline covers all measures together."""
    for _, bench in running:
        written = bench.last_write_time()
        if written and host.get_wall_time() - written > patience:
            for process in bench.processes:
                process.stop_process("deadline")


def _report_progress(running: list[tuple[BenchTask, _RunningBench]], say: ProgressCallback) -> None:
    """Report the current measure."""
    for _, bench in running:
        record = _load_json(bench._result_path(0))
        steps = record.get("steps") if isinstance(record, dict) else None
        if isinstance(steps, list) and steps:
            say(str(steps[-1])[:80])


def sample_gpus(host: HostAccess) -> list[dict[str, Any]]:
    """Return the driver's current readings of each GPU; empty if it does not answer."""
    try:
        reply, now = host.query_nvml(5.0), host.get_wall_time()
    except AccessError:
        return []
    rows = []
    for gpu in reply.get("gpus") or ():
        if isinstance(gpu, dict):
            kept = {name: gpu[name] for name in SAMPLED_FIELDS if not isinstance(gpu.get(name, {}), dict)}
            processes = gpu.get("processes")
            kept |= {"processes": len(processes)} if isinstance(processes, (list, tuple)) else {}
            rows.append({"gpu": gpu.get("index"), "at": now, **kept})
    return rows


# -- what came back ------------------------------------------------------------------------------------------


def _load_json(path: str) -> Any:
    try:
        return json.loads(LiveHost().read_text(path, MAX_RESULT_BYTES) or "null", parse_constant=lambda word: None)
    except (AccessError, ValueError, RecursionError):
        return None


def _read_measures(path: str) -> list[dict[str, Any]]:
    record = _load_json(path)
    rows = record.get("measures") if isinstance(record, dict) else None
    return [check_measure_row(row) for row in rows[:200] if isinstance(row, dict)] if isinstance(rows, list) else []


def check_measure_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row reduced to names and positive numbers: the file is untrusted."""
    passes = [_positive_number(value) for value in _as_list(row.get("passes"))[:100]]
    verdict = str(row.get("verdict", ""))
    kept = {
        "name": str(row.get("name", ""))[:40],
        "device": str(row.get("device", ""))[:40],
        "raw": verdict if verdict in MEASURE_VERDICTS else "" if not verdict else "failed",
        "why": redact_text(str(row.get("why", "")))[:300],
        "at": str(row.get("at", ""))[:200],
        "passes": tuple(value for value in passes if value),
        "best": _positive_number(row.get("best")),
        "spans": tuple(s for s in map(_parse_span, _as_list(row.get("spans"))[:200]) if s),
        "tried": int(_positive_number(row.get("tried")) or 0),
    }
    if None in passes or (verdict == "measured" and not passes):
        kept |= {"raw": "failed", "why": "its result has a value that is not a positive number"}
    return kept


def _positive_number(value: object) -> float | None:
    """Return a positive number of plausible size, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < 1e24 else None


def _parse_span(value: object) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    begin, end = _positive_number(value[0]), _positive_number(value[1])
    return (begin, end) if begin and end and begin <= end else None


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _slowest_rank_rows(rank_rows: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Merge the rows of several ranks into the slowest: a collective is as fast as its last rank."""
    first, *others = rank_rows or [[]]
    rows = []
    for i, row in enumerate(first):
        same = [rank[i] for rank in others if i < len(rank) and rank[i]["name"] == row["name"]]
        worst = min([row, *same], key=lambda r: (r["raw"] == "measured", max(r["passes"], default=0.0)))
        rows.append(worst)
    return rows


def _settle_rows(task: BenchTask, rows: list[dict[str, Any]], proof: ProofResult) -> list[dict[str, Any]]:
    """Return the requested rows of one process, with the interrupted measure marked."""
    requested = set(task.words)
    requested_rows = [row for row in rows if f"{row['name']}@{row['device']}" in requested]
    ended = proof.verdict if proof.verdict in ("crashed", "hung", "failed", "absent") else ""
    blamed = _find_interrupted(proof, requested_rows, task)
    settled = []
    for row in requested_rows:
        if not row["raw"]:
            lost = f"{row['name']}@{row['device']}" == blamed or not row["passes"]
            raw = (ended or "failed") if lost else "measured"
            row = row | {"raw": raw, "why": redact_text(proof.why)[:300] if lost else row["why"]}
        settled.append(row)
    if not settled or task.ranks > 1:  # it ended before the first measure, so none would work
        known = {f"{row['name']}@{row['device']}" for row in settled}
        settled += [
            _unmeasured_row(word, ended or "failed", redact_text(proof.why)[:300])
            for word in task.words
            if word not in known
        ]
    return settled


def _find_interrupted(proof: ProofResult, rows: list[dict[str, Any]], task: BenchTask) -> str:
    """Return the measure that was running when the process ended."""
    steps = [step.removesuffix(" again") for step in proof.steps if "@" in step]
    return steps[-1] if steps and proof.verdict != "passed" else ""


def _unmeasured_row(word: str, raw: str, why: str) -> dict[str, Any]:
    name, _, device = word.partition("@")
    return {"name": name, "device": device, "raw": raw, "why": why, "at": "", "passes": (), "best": None, "spans": ()}
