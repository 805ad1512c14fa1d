"""How much of a frozen exam of public Dockerfiles does ``gpuready check --dockerfile`` read right?

The exam (benchmarks/exams) has the address, the hash and the truth of each file; the texts stay in their repositories and are read
from a file of JSON lines (id, text), each compared with its hash. A field is right, left open (nothing was stated where something could
be) or wrong (stated, and not so). On a base that nobody knows, a verdict of *no problems found* is wrong too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

from gpuready import workflow  # noqa: E402
from gpuready.model import Report  # noqa: E402
from gpuready.workflow.refusal import Refused  # noqa: E402

FIELDS = ("python", "libc", "cuda", "manager", "interpreter", "base", "refused")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("exam", type=Path, help="the frozen exam, JSON")
    parser.add_argument("texts", type=Path, help="the Dockerfiles, JSON lines of id and text")
    parser.add_argument("-o", "--output", type=Path, help="write the score and the misses")
    asked = parser.parse_args()
    cases = json.loads(asked.exam.read_text())["cases"]
    texts = {row["id"]: row["text"] for row in map(json.loads, asked.texts.read_text().splitlines())}
    marks = {case["id"]: score_case(case, texts[case["id"]]) for case in cases}
    counted = [mark for of_case in marks.values() for mark in of_case.values()]
    score = {
        "exam": asked.exam.name,
        "files": len(cases),
        "files all right": sum(all(mark == "right" for mark in of_case.values()) for of_case in marks.values()),
        "fields": len(counted),
        **{kind: sum(mark.startswith(kind) for mark in counted) for kind in ("right", "open", "wrong")},
        "misses": {
            f"{name} {field}": mark
            for name, of_case in marks.items()
            for field, mark in of_case.items()
            if mark != "right"
        },
    }
    text = json.dumps(score, indent=1) + "\n"
    print(text, end="")
    if asked.output:
        asked.output.write_text(text)
    return 0


def score_case(case: dict[str, Any], text: str) -> dict[str, str]:
    """Check one file and compare each field with its truth."""
    if hashlib.sha256(text.encode()).hexdigest() != case["sha256"]:
        raise SystemExit(f"the text of {case['id']} is not the one that was frozen: {case['address']}")
    found = read_answers(text)
    return {field: mark_field(found.get(field), case["truth"][field]) for field in FIELDS if field in case["truth"]}


def mark_field(found: Any, truth: Any) -> str:
    accepted = truth if isinstance(truth, list) else [truth]
    if found in accepted:
        return "right"
    return f"open: {truth}" if found is None else f"wrong: {found}, not {truth}"


def read_answers(text: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Dockerfile"
        file.write_text(text)
        try:
            report = workflow.check_machine(
                ["transformers"], on="h100", what_if={"driver": "580.95.05"}, dockerfile=str(file)
            )[0]
        except Refused:
            return {"refused": True}
    return list_answers(report)


def list_answers(report: Report) -> dict[str, Any]:
    """Return the fields of the exam, as the facts of a report state them."""
    stated = {fact.key: fact.value for fact in report.facts if not fact.gap}
    python, glibc = stated.get("python.version"), stated.get("os.glibc")
    cuda = stated.get("toolkit.version") or stated.get("container.cuda")
    return {
        "python": ".".join(str(python).split(".")[:2]) if python else None,
        "libc": f"glibc {glibc}" if glibc else "musl" if "os.glibc" in stated else None,
        "cuda": cuda or ("none" if "toolkit.version" in stated else None),
        "manager": stated.get("os.manager"),
        "interpreter": stated.get("python.path"),
        "base": "known" if report.verdict == "clear" else "unknown",
    }


if __name__ == "__main__":
    sys.exit(main())
