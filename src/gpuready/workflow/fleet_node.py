"""The node's side of a fleet run: probe, check, prove or measure here, and answer in one line."""

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpuready import __version__, probe, rules, system, workflow
from gpuready.catalog import bands, kernels
from gpuready.check.evaluate import judge
from gpuready.fleet import areas, node_payload, node_program
from gpuready.fleet.outliers import DISK_FIGURES, SHARED_PREFIX
from gpuready.model import Contract, Facts, Finding, Report, worst_verdict
from gpuready.model.bench import BenchResult
from gpuready.probe import fleet_facts
from gpuready.probe.environment_choice import choose_interpreter
from gpuready.rollcall.interface_check import interface_towards
from gpuready.system import own_folders
from gpuready.workflow import bench, machine_facts, prove

NodeRequest = Mapping[str, Any]


PAIR_RESERVE_SECONDS = 3.0
"""Seconds of a pair's deadline reserved for starting Python and writing the answer."""
FAILED_VERDICTS = ("failed", "crashed", "hung")
NETWORK_FILE_SYSTEMS = (
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "panfs", "wekafs", "fuse.glusterfs", "fuse.ceph-fuse", "cifs", "9p",
    "virtiofs", "fuse.juicefs", "fuse.s3fs", "fuse.gcsfuse", "smb3", "afs", "pvfs2", "orangefs",
)  # fmt: skip
REDUCE_BYTES = {"gloo": 4 << 20, "nccl": 64 << 20}
"""Bytes that a pair reduces to measure its link."""


def _request_options(request: NodeRequest) -> Mapping[str, Any]:
    options = request.get("options")
    return options if isinstance(options, dict) else {}


def _format_node_line(
    request: NodeRequest, name: str, facts: Facts, verdict: str = "", codes: Any = (), **more: Any
) -> str:
    return areas.format_node_answer(
        name,
        facts,
        verdict,
        codes,
        run=str(request.get("token", "")),
        do=str(request["do"]),
        attempt=int(request.get("try", 1)),
        at=time.time(),
        compiled=kernels.list_kernels(),
        **more,
    )


def _probe_node(options: Mapping[str, Any]) -> Facts:
    on, stated = options.get("on"), options.get("what_if")
    facts = workflow.probe_machine(python=options.get("python"), on=on, what_if=stated)
    return facts if on else _add_fleet_facts(facts)


def _add_fleet_facts(facts: Facts) -> Facts:
    """Add facts that only a fleet compares: firmware, mounts, governor, clock."""
    return facts.with_facts(*fleet_facts.probe_fleet_facts(system.LiveHost()))


def fingerprint_node(request: NodeRequest, name: str) -> str:
    """Return this node's facts, without a verdict."""
    return _format_node_line(request, name, _probe_node(_request_options(request)))


def describe_node_areas(request: NodeRequest, name: str) -> str:
    """Return the facts behind the requested areas."""
    keys = [str(key) for key in request.get("keys") or areas.AREAS]
    facts = _probe_node(_request_options(request))
    return areas.format_node_details(
        name, facts, keys, run=str(request.get("token", "")), compiled=kernels.list_kernels()
    )


def check_node(request: NodeRequest, name: str) -> str:
    """Return this node's facts, and whether it is ready for the frameworks."""
    options = _request_options(request)
    if options.get("hardware"):
        node = judge_hardware(_probe_node(options)) if options.get("on") else check_this_node()
        reports = [node.replace(findings=(*node.findings, *_find_no_gpu(node.facts)))]
    else:
        arguments: dict[str, Any] = {key: options.get(key) for key in ("on", "python", "wants", "model", "what_if")}
        words = [str(one) for one in request.get("framework") or ()]
        reports = workflow.check_machine(words, strict=bool(options.get("strict")), **arguments)
    verdict = worst_verdict(report.verdict for report in reports)
    facts = reports[0].facts if options.get("on") else _add_fleet_facts(reports[0].facts)
    judged = "hardware" if options.get("hardware") else ", ".join(one.contract.judged_name for one in reports)
    return _format_node_line(request, name, facts, verdict, verdict_codes(reports, verdict), judged=judged)


def _find_no_gpu(facts: Facts) -> list[Finding]:
    """What an administrator asks of a node; a prolog does not: a node without GPUs may be meant for jobs without."""
    if facts.value_if_known("gpu.count") != 0 or facts.value_if_known("platform.name") not in (None, "cpu"):
        return []
    return [Finding(NO_GPU, "error", "no GPU found")]


def verdict_codes(reports: list[Report], verdict: str) -> list[str]:
    """Return the codes behind a verdict: errors; where it is undecided, what could not be seen."""
    if verdict == "undecided":
        return [u.code for report in reports for u in report.undecided if report.strict or u.severity == "error"]
    grave = {True: ("error", "warning"), False: ("error",)}
    return [f.code for report in reports for f in report.findings if f.severity in grave[report.strict]]


NODE_FACTS = (
    "gpu.", "driver.", "fabric.", "libcuda.", "os.", "platform.", "clock.", "kernel.", "job.wants", "job.gpus"
)  # fmt: skip
"""What the rules of a prolog read: the node's own facts, of no environment, variable or contract."""
CLOCK, DISK, NO_GPU = "SYS011", "SYS002", "GPU001"


def check_this_node() -> Report:
    """Judge this node alone, without any Python environment: its GPUs, driver, fabric, disk and clock."""
    host = machine_facts.choose_probed_host()
    probes = [spec for spec in probe.list_probes(host) if spec[0] != "python"]
    report = judge_hardware(probe.assemble_host_facts(host, system.start_probes(host, probes).collect_facts()))
    full = own_folders.find_disk_fault()
    return report.replace(findings=(*report.findings, *([Finding(DISK, "error", full)] if full else [])))


def judge_hardware(facts: Facts) -> Report:
    """Judge the facts of a node by the rules that read nothing of an environment."""
    modules = map(rules.load_rule, rules.list_rule_modules())
    node_rules = [rule for rule in modules if all(key.startswith(NODE_FACTS) for key in rule.READS)]
    report = judge(node_rules, facts, Contract("hardware", __version__))
    return report.replace(findings=tuple(f for f in report.findings if f.severity == "error" or f.code == CLOCK))


def prove_node(request: NodeRequest, name: str) -> str:
    """Return the verdict of the proofs executed on this node."""
    options = _request_options(request)
    words = [str(one) for one in request.get("framework") or ()]
    strict = bool(options.get("strict"))
    reports = prove.run_proofs(words, python=options.get("python"), wants=options.get("wants"), strict=strict).reports
    verdict = worst_verdict(report.verdict for report in reports)
    facts = _add_fleet_facts(reports[0].facts) if reports else _probe_node(options)
    judged = ", ".join(report.contract.judged_name for report in reports)
    return _format_node_line(request, name, facts, verdict, verdict_codes(list(reports), verdict), judged=judged)


def bench_node(request: NodeRequest, name: str) -> str:
    """Return how fast this node is: one value per measure, or one per GPU."""
    options = _request_options(request)
    only = options.get("only")
    result = bench.measure_machine(python=options.get("python"), only=only, repeat=1)
    verdict = result.report.verdict
    return _format_node_line(
        request,
        name,
        _add_fleet_facts(result.report.facts),
        verdict,
        verdict_codes([result.report], verdict),
        figures=bench_figures(result, str(result.report.facts.value_if_known("disk.kind") or "")),
    )


def bench_figures(result: BenchResult, disk_kind: str = "") -> dict[str, list[float]]:
    """Return the measured values, four digits each, GPU by GPU; the suffix ``_latency`` marks those where less is better.

    A GPU that failed where another did not counts as 0, so that each value stays at the index of its GPU.
    """
    rows: dict[str, list[float]] = {}
    shared = SHARED_PREFIX if disk_kind in NETWORK_FILE_SYSTEMS else ""
    for one in result.measures:
        kind = bands.find_measure(one.name)
        less = kind is not None and kind.better == "less"
        value = one.value if one.value is not None else 0.0 if one.verdict in FAILED_VERDICTS and not less else None
        if kind is not None and value is not None:
            name = f"{shared}{one.name}" if one.name in DISK_FIGURES else one.name
            rows.setdefault(f"{name}_latency" if less else name, []).append(float(f"{value:.4g}"))
    return {name: row for name, row in rows.items() if any(row)}


def measure_pair(request: NodeRequest, name: str) -> str:
    """Run one rank per GPU in the target's Python, each paired with a rank of the other node, and check the reduced numbers."""
    host = system.LiveHost()
    pair_request = node_program.parse_pair_request(request, name)
    limit = float(pair_request.get("seconds", 30.0))
    python = choose_interpreter(host, _request_options(request).get("python"))
    count = min(max(int(pair_request.get("gpus", 1)), 1), 64)
    with ThreadPoolExecutor(count) as pool:
        outputs = pool.map(lambda index: _run_pair_rank(host, pair_request, python, limit, index), range(count))
        ranks = [_parse_pair_output(one) for one in outputs]
    combined = _combine_ranks(ranks)
    combined |= {
        "peer": str(pair_request.get("peer", "")),
        "round": int(pair_request.get("round", 0)),
        "rank": pair_request["rank"],
    }
    head = {"schema": areas.SCHEMA, "node": name, "run": str(request.get("token", "")), "do": "pair"}
    return json.dumps({**head, "pair": combined}, separators=(",", ":"))


def _run_pair_rank(
    host: system.LiveHost, pair_request: Mapping[str, Any], python: str, limit: float, index: int
) -> system.RunResult:
    """Run the rank of one GPU in its own process, so that a GPU that fails or hangs affects no other."""
    backend = pair_request["backend"]
    words = [
        python,
        f"{node_payload.SCRIPTS}/pair.py",
        pair_request["rank"],
        pair_request["address"],
        int(pair_request["port"]) + index,
        backend,
    ]
    words += [max(limit - PAIR_RESERVE_SECONDS, 2.0), REDUCE_BYTES[backend], _rank_device(pair_request, index)]
    env = {"OMP_NUM_THREADS": "1"}
    interface = interface_towards(str(pair_request["address"]))[0] if backend == "gloo" else ""
    if interface and not host.get_environment().get("GLOO_SOCKET_IFNAME"):
        env["GLOO_SOCKET_IFNAME"] = interface  # that leads to the peer: gloo would guess by the host's name
    return host.run([str(word) for word in words], limit, env=env)


def _rank_device(pair_request: Mapping[str, Any], index: int) -> str:
    return f"cuda:{index}" if pair_request["backend"] == "nccl" else "cpu"


def _combine_ranks(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Combine the ranks of one node: the first failure, the slowest rate, and the outcome of each."""
    if len(ranks) == 1:
        return ranks[0]
    outcomes = [str(one.get("outcome")) for one in ranks]
    rates = [float(one.get("rate") or 0.0) for one in ranks]
    for grave in ("unclear", "absent", "failed", "slow"):
        if grave in outcomes:
            index = outcomes.index(grave)
            why = (
                f"GPU {index}: {ranks[index].get('why', '')}"
                if grave in ("failed", "slow")
                else ranks[index].get("why")
            )
            return {**ranks[index], "outcome": grave, "why": why, "gpus": outcomes, "ready": _last_ready(ranks)}
    seconds = max(float(one.get("seconds") or 0.0) for one in ranks)
    return {"outcome": "passed", "rate": min(rates), "rates": rates, "gpus": outcomes, "seconds": seconds}


def _last_ready(ranks: list[dict[str, Any]]) -> float:
    return max(float(one.get("ready") or 0.0) for one in ranks)


def _parse_pair_output(ran: system.RunResult) -> dict[str, Any]:
    ready = 0.0
    for line in ran.out.splitlines():
        if line.startswith("@ready "):
            ready = float(line[7:])
        if line.startswith("@pair "):
            result: dict[str, Any] = json.loads(line[6:])
            return result
    if ran.end == "deadline":
        late = "the pair was not done" if ready else "torch was not imported"
        why = f"{late} within {ran.seconds:.0f} s"
        return {"outcome": "slow", "why": why, "ready": ready or ran.seconds, "ended": ran.seconds}
    last_lines = [line for line in ran.err.strip().splitlines() if line.strip()][-1:]
    return {"outcome": "failed", "why": (last_lines or [ran.end or f"exit {ran.rc}"])[0][:200]}


NODE_ACTIONS: dict[str, Callable[[NodeRequest, str], str]] = {
    "fingerprint": fingerprint_node,
    "details": describe_node_areas,
    "check": check_node,
    "prove": prove_node,
    "bench": bench_node,
    "pair": measure_pair,
}


def answer_node_request(request: object, name: str) -> str:
    """Answer a request; called by fleet/scripts/boot.py in a process of its own."""
    return node_program.answer_request(request, name, NODE_ACTIONS)
