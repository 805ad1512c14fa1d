"""An exam of ``gpuready fit``: predictions are frozen before a GPU is asked, then scored.

    python benchmarks/fit_exam.py freeze FILE [RE]     predictions for the cases of fit_cases.json
    python benchmarks/fit_exam.py score FILE EXAM.jsonl [...]   FILE may be "now": predicted anew, and then not frozen
    python benchmarks/fit_exam.py table FILE EXAM.jsonl    what was said before beside what is said now, row by row
    python benchmarks/fit_exam.py tape EXAM-TAPES.jsonl.gz ID    where our tape and the allocator's part

``fit_measure.py`` runs the cases. ``score`` reads only what was frozen; ``tape`` predicts anew, to find what is wrong.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from gpuready.fit import H200, FitJob, FitUndecided, predict_memory

HERE = Path(__file__).resolve().parent
GIB = 2**30


def jobs() -> dict[str, FitJob]:
    whole = json.loads((HERE / "fit_cases.json").read_text(encoding="utf-8"))
    given = [case for case in whole["cases"] if "experts" not in case["job"]]  # experts one by one are traced
    return {c["id"]: FitJob(model=whole["models"][c["model"]], **c["job"]) for c in given}


def freeze(path: str, pattern: str = "") -> None:
    """Predictions for the H200, with the moment they were made."""
    import re
    from datetime import datetime, timezone

    whole = {
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "card": H200.name,
        "cases": predictions({name for name in jobs() if re.search(pattern, name)}),
    }
    Path(path).write_text(
        json.dumps(whole, indent=0, separators=(",", ":")).replace('},\n"', '},\n"') + "\n", encoding="utf-8"
    )
    print(f"{len(whole['cases'])} predictions in {path}")


def verdict_of(fit: Any) -> str:
    """On the H200, by the least memory that is needed."""
    available = H200.memory - H200.in_use
    if fit.minimum + fit.overhead[1] <= available:
        return "fits"
    return "does not fit" if fit.minimum + fit.overhead[0] > available else "undecided"


def predictions(only: set[str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, job in jobs().items():
        if only is not None and name not in only:
            continue
        try:
            fit = predict_memory(job, H200)
        except FitUndecided as why:
            found[name] = {"undecided": str(why)}
            continue
        found[name] = {
            "allocated": fit.peak_allocated, "reserved": fit.peak_reserved, "minimum": fit.minimum,
            "overhead": list(fit.overhead), "phases": dict(fit.phases), "verdict": verdict_of(fit),
        }  # fmt: skip
    return found


def measured_in(paths: list[str]) -> list[dict[str, Any]]:
    """The rows of one or more runs. Another script says ``peak_alloc``, and puts the caps of a case in its row."""
    lines = [line for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    found = []
    for row in map(json.loads, lines):
        if row.get("kind") in ("env", "end"):
            continue
        if "peak_alloc" in row:
            row |= {"allocated": row["peak_alloc"], "reserved": row["peak_reserved"]}
        found.append(row)
        for cap in row.get("caps") or () if isinstance(row.get("caps"), list) else ():
            found.append({**row, "cap": cap["cap"], "status": "ok" if cap["fits"] else "oom", "caps": None})
    return found


def score(path: str, measured: list[str]) -> None:
    rows = measured_in(measured)
    if path == "now":
        frozen = predictions({row["id"] for row in rows})
    else:
        frozen = json.loads(Path(path).read_text(encoding="utf-8"))["cases"]
    errors: dict[str, list[float]] = {"allocated": [], "reserved": []}
    wrong: list[str] = []
    print(f"{'case':5}{'model':20}{'allocated':>10}{'error':>9}{'reserved':>10}{'error':>9}{'outside':>9}  worst phase")
    for row in rows:
        said = frozen.get(row["id"], {"undecided": "not frozen"})
        if row.get("cap") and "says" not in row:
            row["says"] = "fits" if row["cap"] >= said["minimum"] else "does not fit"
        if row.get("cap"):
            survived = row["status"] == "ok"
            verdict = "right" if survived == (row["says"] == "fits") else "WRONG"
            print(
                f"{row['id']:5}{row['model']:20} under {row['cap'] / GIB:.3f} GiB: said {row['says']}, was {row['status']}: {verdict}"
            )
            wrong += (
                [f"{row['id']}: died under a cap that was said to do"] if row["says"] == "fits" and not survived else []
            )
            continue
        if row["status"] == "oom" and said.get("verdict") == "fits":
            wrong.append(f"{row['id']}: died on the card")
        if row["status"] != "ok" or "undecided" in said:
            print(
                f"{row['id']:5}{row['model']:20} {row['status']} {row.get('said', '')[:60]} {said.get('undecided') or said['verdict']}"
            )
            continue
        found = {kind: said[kind] / row[kind] - 1 for kind in errors}
        for kind, error in found.items():
            errors[kind].append(error)
        outside = row.get("outside", 0) / 2**20
        print(
            f"{row['id']:5}{row['model']:20}{row['allocated'] / GIB:10.3f}{found['allocated']:+9.3%}"
            f"{row['reserved'] / GIB:10.3f}{found['reserved']:+9.3%}{outside:9.0f}  {worst(said, row)}"
        )
    for kind, values in errors.items():
        sizes = [abs(v) for v in values]
        print(f"{kind}: median {statistics.median(sizes):.3%}, worst {max(sizes):.3%} of {len(sizes)} cases")
    print(f"false fits: {len(wrong)}", *wrong, sep="\n  ")


def table(path: str, measured: str) -> None:
    """The rows of a report."""
    rows = [row for row in measured_in([measured]) if not row.get("cap")]
    frozen = json.loads(Path(path).read_text(encoding="utf-8"))["cases"]
    now = predictions({row["id"] for row in rows})
    print(f"{'case':5}{'model':20}{'allocated':>9}{'frozen':>10}{'now':>10}{'reserved':>10}{'frozen':>10}{'now':>10}")
    errors: dict[str, dict[str, list[float]]] = {"frozen": {}, "now": {}}
    for row in sorted(rows, key=lambda one: str(one["id"])):
        line = f"{row['id']:5}{row['model']:20}"
        if row["status"] != "ok":
            print(f"{line}  {row['status']}: said {frozen[row['id']].get('verdict')}")
            continue
        for kind in ("allocated", "reserved"):
            line += f"{row[kind] / GIB:{9 if kind == 'allocated' else 10}.3f}"
            for when, said in (("frozen", frozen), ("now", now)):
                error = said[row["id"]][kind] / row[kind] - 1
                errors[when].setdefault(kind, []).append(abs(error))
                line += f"{error:+10.3%}"
        print(line)
    for when, kinds in errors.items():
        result = [f"{k} median {statistics.median(v):.3%}, worst {max(v):.2%} of {len(v)}" for k, v in kinds.items()]
        print(f"{when + ':':7}{'; '.join(result)}")


def worst(said: dict[str, Any], row: dict[str, Any]) -> str:
    """The phase whose peak is furthest from what was said."""
    both = {p: said["phases"][p] / row["phases"][p][0] - 1 for p in row["phases"] if p in said["phases"]}
    if not both:
        return ""
    name = max(both, key=lambda p: abs(both[p]))
    return f"{name} {both[name]:+.2%}"


def tape(path: str, name: str) -> None:
    """Births of the second step, by size: what only one of the two tapes has."""
    from gpuready.fit.search.prediction import record_job_tape

    with gzip.open(path, "rt", encoding="utf-8") as file:
        theirs = next(found["events"] for found in map(json.loads, file) if found["id"] == name)
    ours = record_job_tape(jobs()[name].validate_fields(), H200)
    for phase in [e for e in ours.events if isinstance(e, str)]:
        a, b = _births(ours.events, phase, 512), _births(theirs, phase, 512)
        more, less = a - b, b - a
        if more or less:
            print(phase, "only ours:", _largest(more), "| only theirs:", _largest(less))


def _births(events: list[int | str], phase: str, unit: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for event in events:
        if isinstance(event, str):
            if event == phase:
                return found
            found = Counter()
        elif event >= 0:
            found[-(-event // unit) * unit] += 1
    return Counter()


def _largest(found: Counter[int]) -> str:
    return ", ".join(f"{n} x {size}" for size, n in sorted(found.items(), key=lambda one: -one[0] * one[1])[:6])


def main() -> int:
    what, *rest = sys.argv[1:] or [""]
    if what == "freeze" and len(rest) in (1, 2):
        freeze(*rest)
    elif what == "score" and len(rest) > 1:
        score(rest[0], rest[1:])
    elif what == "table" and len(rest) == 2:
        table(*rest)
    elif what == "tape" and len(rest) == 2:
        tape(*rest)
    else:
        print((__doc__ or "").strip())
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
