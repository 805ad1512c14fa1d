"""Whole documents for the tests of the page: a machine with everything, a large fleet, and one where every text is an attack."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from benchmarks.simulated_fleet import SimulatedTransport

from gpuready.model import Fact, Finding
from gpuready.model.bench import BenchMeasure, BenchResult
from gpuready.model.fleet import Drift, FleetReport, FleetSuspect, NodeGroup, Outlier
from gpuready.model.proof import ProofRecord, ProofResult
from gpuready.model.report_document import ReportDocument
from gpuready.render import report
from gpuready.workflow import plan
from gpuready.workflow.fit import fit_job
from tests.fleet.worlds import judge_all, machine, names

from .machines import REPORTS

H200 = Path(__file__).parents[1] / "machines" / "h200.json"
PORTS = {
    f"mlx5_{n}/1": {"state": "active", "rate": 50_000_000_000, "link_layer": "InfiniBand", "netdev": None}
    for n in range(8)
}
EIGHT = {
    "gpu.numa": (0, 0, 0, 0, 1, 1, 1, 1),
    "gpu.pcie": ("5 x16",) * 7 + ("3 x8",),
    "gpu.pcie_max": ("5 x16",) * 8,
    "gpu.pci": tuple(f"0000:{n}b:00.0" for n in range(8)),
    "gpu.lost": (5,),
    "fabric.switches": 4,
    "host.cpus": 192,
    "net.ib": PORTS,
    "net.interfaces": {
        "eth0": {"up": True, "kind": "ethernet", "speed": 12_500_000_000},
        "lo": {"up": True, "kind": "loopback"},
    },
    "env.NCCL_DEBUG": "INFO",
    "can.matmul": True,
}


def eight() -> Any:
    """The example of the design, with NUMA nodes, switches, a GPU that is lost, and InfiniBand."""
    one = REPORTS["old_driver"]
    return one.replace(facts=one.facts.with_facts(*(Fact(key, value, "test") for key, value in EIGHT.items())))


def evidence() -> ProofRecord:
    passed = ProofResult(
        "matmul-bf16", "passed", device="cuda:0", seconds=1.25, versions={"torch": "2.12.1"}, source="torch",
        numbers={"relative_error": {"value": 0.0021, "bound": "most", "limit": 0.01, "unit": ""},
                 "rate": {"value": 712.5, "bound": "", "limit": None, "unit": "TFLOP/s"}},
        capability=("matmul",), executed="h200",
    )  # fmt: skip
    wrong = ProofResult(
        "fp8", "crashed", "signal 11 in the step scaled_mm", "cuda:0", seconds=3.0, steps=("import", "scaled_mm"),
        output="line one\nSegmentation fault\n", cause={"code": "CAP014", "says": "a kernel crashed"},
    )  # fmt: skip
    return ProofRecord("gpu-07", "/opt/env/bin/python", (passed, wrong), "2026-11-15T20:00:00Z").with_digest()


def benched() -> BenchResult:
    rows = (
        BenchMeasure(
            "matmul-bf16",
            "as-expected",
            "GPU 0",
            742e12,
            "FLOP/s",
            989e12,
            0.75,
            (680e12, 800e12),
            passes=(740e12, 742e12),
        ),
        BenchMeasure("memory-copy", "slow", "GPU 0", 1.4e12, "B/s", 3.35e12, 0.42, (2.6e12, 3.1e12), cite="data sheet"),
        BenchMeasure("launch", "measured", "GPU 0", 4.1e-6, "s"),
        BenchMeasure("nccl", "absent", why="one GPU"),
    )
    slow = Finding("GPU021", "error", "the GPU is slower than others of its kind", so="every job takes longer")
    judged = REPORTS["clear_h200"].replace(findings=(slow,))
    return BenchResult("gpu-07", "/opt/env/bin/python", judged, rows, {"torch": "2.12.1"}, made="2026-11-15T20:00:00Z")


def whole() -> dict[str, Any]:
    """A document with every part; through JSON, as a file would have it."""
    return json.loads(_whole_text())


@functools.cache
def _whole_text() -> str:
    plans = plan.plan_frameworks(["axolotl"], on="h100x8", resolve=False)
    job = fit_job(["qwen2.5-0.5b"], {"seq": 512, "micro_batch": 2}, on="h100", search=False)
    found = ReportDocument(
        (eight(), REPORTS["undecided"], REPORTS["ignored"]), evidence(), benched(), job, plans.plans, plans.environments,
        made="2026-11-15T20:01:00Z", notes=("a note of the report",),
    )  # fmt: skip
    return json.dumps(report.report_document_fields(found), default=str)


@functools.cache
def fleet(count: int = 1024) -> FleetReport:
    """A fleet through the real judges: an old driver, a variable, dead nodes, and figures with one slow node."""
    every = names(count)
    deviating: dict[str, dict[str, Any]] = {
        **{name: {"driver.version": "550.54.15"} for name in every[10:16]},
        **{name: {"env.NCCL_P2P_DISABLE": "1"} for name in every[40:43]},
    }

    # A deterministic ripple of one part in a hundred, and one node that is eight below.
    def pace(name: str, attempt: int) -> dict[str, list[float]]:
        return {"matmul-bf16": [700.0 + int(name[1:]) * 37 % 11 - (60 if name == "n00100" else 0)]}

    return judge_all(SimulatedTransport(every, machine(), deviating, dead=every[200:204], figures=pace), "bench")


def many(count: int) -> FleetReport:
    """A fleet of any size as its report tells it: folded sets, one figure of every node."""
    half = count // 2
    drift = Drift(
        "driver", "driver.version", "580.1", (NodeGroup("550.1", f"n[00001-{half // 10:05d}]", half // 10),), count
    )
    figures = {"matmul-bf16": {f"n{n:05d}": (700.0 + n % 17,) for n in range(1, half + 1)}}
    sets = {"answered": f"n[00001-{half:05d}]", "dead": f"n[{half + 1:05d}-{count:05d}]"}
    return FleetReport(
        "check", "ssh", count, states=sets, verdicts={"clear": sets["answered"]}, drift=(drift,), figures=figures
    )


def of_fleet(found: FleetReport) -> dict[str, Any]:
    return json.loads(
        json.dumps(report.report_document_fields(ReportDocument(fleet=found, made="2026-11-15T20:01:00Z")), default=str)
    )


# -- attacks ----------------------------------------------------------------------------------------------------


WORDS = {"verdict", "severity", "digest", "kind", "bound", "key", "method", "task"}
"""Fields whose words the page itself chooses by; a document with others is refused or shown as it is."""
KEYED = {"stacks": 2, "parts": 1, "numbers": 1, "versions": 1, "packages": 1}
"""Objects whose keys are text of others, and how deep."""


def poisoned(document: Any, text: str, keys: int = 0) -> Any:
    """The same document with the attack in every text that a machine, a log, a file or a user could have chosen."""
    if isinstance(document, dict):
        return {
            f"{key}{text}" if keys else key: value
            if key in WORDS
            else poisoned(value, text, KEYED.get(key, keys - 1 if keys else 0))
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [poisoned(value, text) for value in document]
    return f"{document}{text}" if isinstance(document, str) else document


def attacked(document: dict[str, Any], text: str) -> dict[str, Any]:
    """A poisoned document, with variables and packages that are called like the attack."""
    found = poisoned(document, text)
    for one in found["reports"]:
        one["facts"] += [
            {"key": f"{family}.{text}", "value": text, "source": text, "how": "read", "gap": ""}
            for family in ("env", "package", "zzz")
        ]
    return {**found, "kind": "report"}


def hostile_fleet(text: str) -> FleetReport:
    """A fleet whose nodes have chosen their own names, values and reasons."""
    node = f"n{text}".replace(",", "").replace("[", "").replace("]", "")
    return FleetReport(
        "check", f"ssh{text}", 2,
        (Finding("FLT001", "error", f"a node{text}", (Fact("fleet.nodes", text, text),), so=text),),
        verdicts={"not-ready": node, "clear": "n2"}, states={"answered": f"{node},n2"}, reasons={f"dead: {text}": node},
        drift=(Drift("driver", f"driver.version{text}", text, (NodeGroup(text, node, 1),), 2),),
        outliers=(Outlier(node, f"matmul{text}", 1.0, 2.0, -0.5, 9.0),), suspects=(FleetSuspect("node", (node,), evidence=(text,)),),
        exclude=node, blames={f"FLT001{text}": node}, figures={f"matmul{text}": {node: (1.0,), "n2": (2.0,)}}, notes=(text,),
    )  # fmt: skip
