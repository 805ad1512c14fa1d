"""Run benchmarks in the target environment while sampling NVML; results are accepted only as validated numbers.

One process measures many things, as importing torch takes longer than most of them. A measure that crashes or hangs
loses only itself: earlier measures are kept, and another process measures the rest.
"""

from __future__ import annotations

import json

from gpuready.catalog.proofs import Row
from gpuready.noun import Noun
from gpuready.prove.result import BIGGEST
from gpuready.prove.runner import Running
from gpuready.system import Blind, Live, redact
from gpuready.system.processes import wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuready.proven import Proof
    from gpuready.system import Door

    Say = Callable[[str], None]

EVERY, PATIENCE = 0.4, 90.0
"""Seconds between two samples, and seconds without a step after which a measure counts as hung."""

SAMPLED = (*("clock_sm", "clock_sm_max", "power_draw", "temperature", "throttle", "pcie_gen", "pcie_width"),)
VERDICTS = ("measured", "absent", "unsupported", "failed")


class Task(Noun):
    """The measures (``name@device``) of one process, or of one process per rank, and their options."""

    words: tuple[str, ...]
    options: dict[str, Any] = {}  # for the script: quick, repeat, folder, sizes
    script: str = "bench_machine"
    device: str = "cpu"
    ranks: int = 1
    deadline: float = 600.0


class Outcome(Noun):
    """The result of tasks: validated rows of the scripts, and the NVML samples taken meanwhile."""

    rows: tuple[dict[str, Any], ...] = ()
    samples: tuple[dict[str, Any], ...] = ()
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}


class _Bench(Running):
    """A running proof that also keeps the measures of its result."""

    measured: list[dict[str, Any]]

    def _finish(self) -> Proof:
        told = [_measures(self._result(rank)) for rank in range(len(self.processes))]
        self.measured = _slowest(told)
        return super()._finish()

    def written(self) -> float:
        """Return when the script last wrote its result; 0 before the first time."""
        try:
            return float((Live().stat(self._result(0)) or {}).get("mtime") or 0.0)
        except Blind:
            return 0.0


def run(
    tasks: tuple[Task, ...],
    python: str,
    variables: Mapping[str, str],
    door: Door,
    say: Say = lambda _: None,
    patience: float = PATIENCE,
) -> Outcome:
    """Run tasks side by side until every measure has a row, with as many processes as that takes."""
    rows: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    left = list(tasks)
    while left:
        left = [_within(task) for task in left]
        done = _together(left, python, variables, samples, door, say, patience)
        again = []
        for task, bench, proof in done:
            new = _settled(task, bench.measured, proof)
            rows += new
            versions |= proof.versions
            hardware |= proof.hardware
            words = tuple(w for w in task.words if w not in {f"{r['name']}@{r['device']}" for r in new})
            again += [task.but(words=words)] if words and task.ranks == 1 else []
        left = again
    return Outcome(tuple(rows), tuple(samples), versions, hardware)


def _within(task: Task) -> Task:
    return task.but(options=dict(task.options) | {"measures": list(task.words)})


def _row(task: Task) -> Row:
    return Row(
        name="bench",
        script=task.script,
        device=task.device,
        arguments=(json.dumps(task.options),),
        deadline=task.deadline,
        source="gpuready bench",
    )


def _together(
    tasks: list[Task],
    python: str,
    variables: Mapping[str, str],
    samples: list[dict[str, Any]],
    door: Door,
    say: Say,
    patience: float,
) -> list[tuple[Task, _Bench, Proof]]:
    """Start all tasks, sample while they run, and wait for the last."""
    running: list[tuple[Task, _Bench]] = []
    done: list[tuple[Task, _Bench, Proof]] = []
    try:
        for task in tasks:
            running.append((task, _Bench(_row(task), python, task.device, variables, ranks=task.ranks)))
            running[-1][1].measured = []
        on_gpu = any("cuda" in word for task in tasks for word in task.words)
        while running:
            for pair in list(running):
                proof = pair[1].look()
                if proof is not None:
                    done.append((*pair, proof))
                    running.remove(pair)
            _hanging(running, door, patience)
            _told(running, say)
            wait([p for _, bench in running for p in bench.processes], EVERY)
            if running and on_gpu:
                samples += sample(door)
    finally:
        for _, bench in running:
            bench.close()
    return done


def _hanging(running: list[tuple[Task, _Bench]], door: Door, patience: float) -> None:
    """Stop processes that have not written for long; their deadline covers all measures together."""
    for _, bench in running:
        written = bench.written()
        if written and door.wall() - written > patience:
            for process in bench.processes:
                process.stop("deadline")


def _told(running: list[tuple[Task, _Bench]], say: Say) -> None:
    """Report the current measure."""
    for _, bench in running:
        record = _loaded(bench._result(0))
        steps = record.get("steps") if isinstance(record, dict) else None
        if isinstance(steps, list) and steps:
            say(str(steps[-1])[:80])


def sample(door: Door) -> list[dict[str, Any]]:
    """Return the driver's current readings of each GPU; empty if it does not answer."""
    try:
        told, now = door.nvml(5.0), door.wall()
    except Blind:
        return []
    rows = []
    for gpu in told.get("gpus") or ():
        if isinstance(gpu, dict):
            kept = {name: gpu[name] for name in SAMPLED if not isinstance(gpu.get(name, {}), dict)}
            held = gpu.get("processes")
            kept |= {"processes": len(held)} if isinstance(held, (list, tuple)) else {}
            rows.append({"gpu": gpu.get("index"), "at": now, **kept})
    return rows


# -- what came back ------------------------------------------------------------------------------------------


def _loaded(path: str) -> Any:
    try:
        return json.loads(Live().read(path, BIGGEST) or "null", parse_constant=lambda word: None)
    except (Blind, ValueError, RecursionError):
        return None


def _measures(path: str) -> list[dict[str, Any]]:
    record = _loaded(path)
    rows = record.get("measures") if isinstance(record, dict) else None
    return [checked(row) for row in rows[:200] if isinstance(row, dict)] if isinstance(rows, list) else []


def checked(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row reduced to names and positive numbers: the file is untrusted."""
    passes = [_number(value) for value in _list(row.get("passes"))[:100]]
    verdict = str(row.get("verdict", ""))
    kept = {
        "name": str(row.get("name", ""))[:40],
        "device": str(row.get("device", ""))[:40],
        "raw": verdict if verdict in VERDICTS else "" if not verdict else "failed",
        "why": redact(str(row.get("why", "")))[:300],
        "at": str(row.get("at", ""))[:200],
        "passes": tuple(value for value in passes if value),
        "best": _number(row.get("best")),
        "spans": tuple(s for s in map(_span, _list(row.get("spans"))[:200]) if s),
        "tried": int(_number(row.get("tried")) or 0),
    }
    if None in passes or (verdict == "measured" and not passes):
        kept |= {"raw": "failed", "why": "its result has something that is no positive number"}
    return kept


def _number(value: object) -> float | None:
    """Return a positive number of plausible size, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < 1e24 else None


def _span(value: object) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    begin, end = _number(value[0]), _number(value[1])
    return (begin, end) if begin and end and begin <= end else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _slowest(told: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Merge the rows of several ranks into the slowest: a collective is as fast as its last rank."""
    first, *others = told or [[]]
    rows = []
    for i, row in enumerate(first):
        same = [rank[i] for rank in others if i < len(rank) and rank[i]["name"] == row["name"]]
        worst = min([row, *same], key=lambda r: (r["raw"] == "measured", max(r["passes"], default=0.0)))
        rows.append(worst)
    return rows


def _settled(task: Task, rows: list[dict[str, Any]], proof: Proof) -> list[dict[str, Any]]:
    """Return the requested rows of one process, with the interrupted measure marked."""
    asked = set(task.words)
    mine = [row for row in rows if f"{row['name']}@{row['device']}" in asked]
    ended = proof.verdict if proof.verdict in ("crashed", "hung", "failed", "absent") else ""
    blamed = _blamed(proof, mine, task)
    settled = []
    for row in mine:
        if not row["raw"]:
            lost = f"{row['name']}@{row['device']}" == blamed or not row["passes"]
            raw = (ended or "failed") if lost else "measured"
            row = row | {"raw": raw, "why": redact(proof.why)[:300] if lost else row["why"]}
        settled.append(row)
    if not settled or task.ranks > 1:  # it ended before the first measure, so none would work
        known = {f"{row['name']}@{row['device']}" for row in settled}
        settled += [
            _never(word, ended or "failed", redact(proof.why)[:300])
            for word in task.words
            if word not in known
        ]
    return settled


def _blamed(proof: Proof, rows: list[dict[str, Any]], task: Task) -> str:
    """Return the measure that was running when the process ended."""
    steps = [step.removesuffix(" again") for step in proof.steps if "@" in step]
    return steps[-1] if steps and proof.verdict != "passed" else ""


def _never(word: str, raw: str, why: str) -> dict[str, Any]:
    name, _, device = word.partition("@")
    return {
        "name": name,
        "device": device,
        "raw": raw,
        "why": why,
        "at": "",
        "passes": (),
        "best": None,
        "spans": (),
    }
