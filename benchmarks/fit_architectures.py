"""An exam of ``gpuready fit --trace`` over model types that it was not developed with.

    python benchmarks/fit_architectures.py freeze FILE [RE [CASES]]  predictions for fit_architecture_cases.json
    python benchmarks/fit_architectures.py templates FILE [CASES]  beside them, what ``fit`` says without torch
    python benchmarks/fit_architectures.py score FILE EXAM.jsonl   predictions beside what was measured
    python benchmarks/fit_architectures.py tape FILE.gz ID         allocations that only one of the two has

``freeze`` and ``tape`` run in an interpreter with torch, transformers and peft; ``fit_architectures_measure.py`` runs the
cases on a GPU. A refusal is counted as such: it is no answer, and not wrong. Cases called ``known_`` are counted apart.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import statistics
import sys
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from architecture_sweep import load_libraries

from gpuready.fit import H200, FitJob, FitUndecided
from gpuready.fit.search.prediction import predict_job
from gpuready.fit.search.traced_prediction import build_trace_request, predict_traced, tape_from_trace, validate_trace

HERE = Path(__file__).resolve().parent
CASES = HERE / "fit_architecture_cases.json"
GIB = 2**30
GOALS = {"allocated": 0.03, "reserved": 0.06}


def read_cases(path: Path = CASES) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["cases"])


def make_job(case: dict[str, Any]) -> FitJob:
    return FitJob(model=case["config"], **case["job"]).validate_fields()


def trace_case(case: dict[str, Any]) -> dict[str, Any]:
    """Trace one case in a forked process; ``refused`` has the reason where there is no answer."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as file:
            json.dump(trace_here(case), file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    return dict(json.loads(text)) if text else {"refused": f"the process ended with {status}"}


def trace_here(case: dict[str, Any]) -> dict[str, Any]:
    import io

    import trace_script

    try:
        request = build_trace_request(make_job(case), H200)
        sys.argv, sys.stdout = ["trace", json.dumps(request)], (said := io.StringIO())
        trace_script.main()
    except Exception as wrong:
        return {"refused": f"{type(wrong).__name__}: {str(wrong).strip().partition(chr(10))[0][:300]}"}
    return dict(json.loads(said.getvalue().strip().rpartition("\n")[2]))


def predict_case(case: dict[str, Any]) -> dict[str, Any]:
    """Return what ``fit --trace`` says of a case on an H200."""
    trace = trace_case(case)
    if "refused" in trace:
        return trace
    try:
        fit = predict_traced(make_job(case), H200, validate_trace(trace))
    except FitUndecided as why:
        return {"refused": str(why)}
    return {
        "allocated": fit.peak_allocated, "reserved": fit.peak_reserved, "minimum": fit.minimum, "overhead": list(fit.overhead),
        "class": trace["class"], "parameters": trace["count"], "peak_at": list(fit.peak_at), "phases": dict(fit.phases),
        "verdict": fit.verdict_on(H200), "notes": list(fit.notes),
    }  # fmt: skip


def freeze(path: str, pattern: str = "", cases: str = str(CASES)) -> None:
    """Write the predictions with the moment they were made; those that are there stay."""
    load_libraries()
    import peft
    import torch
    import transformers

    whole: dict[str, Any] = {"cases": {}}
    if Path(path).exists():
        whole = json.loads(Path(path).read_text(encoding="utf-8"))
    whole["made"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
    whole["versions"] = {m.__name__: m.__version__ for m in (torch, transformers, peft)}
    for case in read_cases(Path(cases)):
        if not re.search(pattern, case["id"]) or case["id"] in whole["cases"]:
            continue
        whole["cases"][case["id"]] = said = predict_case(case)
        print(case["id"], case["config"]["model_type"], describe(said), flush=True)
        Path(path).write_text(json.dumps(whole, indent=0) + "\n", encoding="utf-8")


def describe(said: dict[str, Any]) -> str:
    if "refused" in said:
        return f"refused: {said['refused']}"
    return f"{said['allocated'] / GIB:.3f} {said['reserved'] / GIB:.3f} GiB, {said['class']}, {said['parameters']:,}"


def freeze_templates(path: str, cases: str = str(CASES)) -> None:
    """Add what ``fit`` says without torch to the predictions of the trace, or why it does not."""
    whole = json.loads(Path(path).read_text(encoding="utf-8"))
    for case in read_cases(Path(cases)):
        try:
            fit = predict_job(make_job(case), H200)
            said: dict[str, Any] = {
                "allocated": fit.peak_allocated,
                "reserved": fit.peak_reserved,
                "minimum": fit.minimum,
            }
        except ValueError as why:
            said = {"refused": str(why)[:300]}
        whole["cases"].setdefault(case["id"], {})["template"] = said
    Path(path).write_text(json.dumps(whole, indent=0) + "\n", encoding="utf-8")


class Score:
    """Errors by group: new types, known types, and both without torch."""

    def __init__(self) -> None:
        self.errors: dict[str, dict[str, list[float]]] = {}
        self.counts: Counter[str] = Counter()
        self.types: set[str] = set()

    def add(self, row: dict[str, Any], said: dict[str, Any]) -> str:
        """Count one measured case, and return its line."""
        group = "known types" if row["id"].startswith("known_") else "new types"
        self.counts[group] += 1
        self.types |= {row["config"]["model_type"]} if group == "new types" else set()
        line = f"{row['id']:22}{said['class'][:34]:35}{row['allocated'] / GIB:8.3f}{self.compare(group, row, said, 'allocated')}"
        line += f"{row['reserved'] / GIB:8.3f}{self.compare(group, row, said, 'reserved')}"
        if "allocated" in (result := said.get("template", {})):
            pair = [self.compare("without torch", row, result, kind) for kind in GOALS]
            line += f"  without torch {pair[0]}{pair[1]}"
        return line

    def compare(self, group: str, row: dict[str, Any], said: dict[str, Any], kind: str) -> str:
        error = said[kind] / row[kind] - 1
        self.errors.setdefault(group, {}).setdefault(kind, []).append(abs(error))
        return f"{error:+9.3%}"

    def add_cap(self, row: dict[str, Any]) -> str:
        """Count a run under a cap: does it live or die as was said?"""
        right = (row["status"] == "ok") == (row["says"] == "fits") and row["status"] in ("ok", "oom")
        false_fit = row["says"] == "fits" and row["status"] == "oom"
        self.counts["caps right" if right else "caps FALSE FIT" if false_fit else "caps WRONG"] += 1
        return "" if right else f"{row['id']:22}cap {row['cap'] / GIB:.3f} GiB, said {row['says']!r}: {row['status']}"

    def summary(self) -> list[str]:
        lines = []
        for group, kinds in self.errors.items():
            for kind, values in kinds.items():
                over = sum(value > GOALS[kind] for value in values)
                figures = f"median {statistics.median(values):.3%}, worst {max(values):.3%}, over {GOALS[kind]:.0%}: {over} of {len(values)}"
                lines.append(f"{group}, {kind}: {figures}")
        return [*lines, f"{dict(self.counts)}, {len(self.types)} new model types"]


def score(path: str, measured: str) -> None:
    """Print every case, and the errors of all."""
    frozen = json.loads(Path(path).read_text(encoding="utf-8"))["cases"]
    total = Score()
    print(f"{'case':22}{'class':35}{'alloc.':>8}{'error':>9}{'reserv.':>8}{'error':>9}")
    for row in map(json.loads, Path(measured).read_text(encoding="utf-8").splitlines()):
        said = frozen.get(row.get("id"), {})
        if row.get("cap"):
            line = total.add_cap(row)
        elif row["status"] != "ok" or "allocated" not in said:
            total.counts["refused" if "refused" in said else row["status"]] += 1
            line = f"{row['id']:22}{row['status']} {row.get('said', '')[:80]} {said.get('refused', '')[:80]}"
        else:
            line = total.add(row, said)
        if line:
            print(line)
    print("\n".join(total.summary()))


def compare_tapes(path: str, name: str, cases: str = str(CASES)) -> None:
    """Print the allocations by size that only the trace or only the GPU has, phase by phase."""
    from fit_exam import _births, _largest

    load_libraries()
    case = next(one for one in read_cases(Path(cases)) if one["id"] == name)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        theirs = next(found["events"] for found in map(json.loads, file) if found["id"] == name)
    ours = tape_from_trace(make_job(case), H200, validate_trace(trace_case(case))).events
    for phase in [event for event in ours if isinstance(event, str)]:
        a, b = _births(ours, phase, 512), _births(theirs, phase, 512)
        if a != b:
            print(phase, "only ours:", _largest(a - b), "| only theirs:", _largest(b - a))


def main() -> int:
    what, *rest = sys.argv[1:] or [""]
    commands: dict[str, tuple[Any, int, int]] = {
        "freeze": (freeze, 1, 3),
        "templates": (freeze_templates, 1, 2),
        "score": (score, 2, 2),
        "tape": (compare_tapes, 2, 3),
    }
    if what not in commands or not commands[what][1] <= len(rest) <= commands[what][2]:
        print((__doc__ or "").strip())
        return 2
    commands[what][0](*rest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
