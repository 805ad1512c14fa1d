"""Does a plan name the wheel that a project really publishes, or say that there is none?

The exam (benchmarks/exams/prebuilt-wheels-*.json) was frozen before the catalogue was corrected by it: addresses that public
repositories install from, some with their hash, and what issues say is missing. Each case is one package, torch, Python,
machine and GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

from gpuready.catalog.torch import find_torch_build  # noqa: E402
from gpuready.model import Contract, Fact, Facts, Requirement  # noqa: E402
from gpuready.plan.kernels import plan_kernels  # noqa: E402

EXAM = ROOT / "benchmarks" / "exams" / "prebuilt-wheels-2026-11.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("exam", type=Path, nargs="?", default=EXAM, help="the frozen exam, JSON")
    parser.add_argument("-o", "--output", type=Path, help="write the score and the misses")
    asked = parser.parse_args()
    cases = json.loads(asked.exam.read_text())["cases"]
    answers = [(case, answer_case(case)) for case in cases]
    misses = [{**case, "answer": answer} for case, answer in answers if answer != case["truth"]]
    score = {"exam": asked.exam.name, "cases": len(cases), "right": len(cases) - len(misses), "misses": misses}
    text = json.dumps(score, indent=1) + "\n"
    print(text, end="")
    if asked.output:
        asked.output.write_text(text)
    return 0


def answer_case(case: dict[str, Any]) -> str | None:
    """Return the address that a plan names, ``index``, or None where it builds or gives up."""
    version, _, variant = case["torch"].partition("+")
    build = find_torch_build(version, variant, case["machine"])
    if build is None:
        return f"torch {case['torch']} is not in the catalogue"
    stated = {"gpu.capability": (case["capability"],), "os.system": "linux", "os.arch": case["machine"]}
    facts = Facts([Fact(key, value, "exam", "stated") for key, value in stated.items()])
    needs = (Requirement(f"package.{case['package']}", f"=={case['version']}", cite="exam"),)
    plans = plan_kernels(facts, Contract("exam", "1.0", needs=needs), build, case["python"], [case["package"]])
    plan = next((one for one in plans if one.package == case["package"]), None)
    if plan is None:
        return "index"  # it comes with its framework
    if plan.how not in ("index", "release"):
        return None
    return "index" if plan.how == "index" else plan.steps[0].run[-1]


if __name__ == "__main__":
    sys.exit(main())
