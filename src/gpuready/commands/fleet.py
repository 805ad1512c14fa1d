"""``gpuready fleet``: check, prove, bench, drift and bisect on every node, through Slurm, Ray, kubectl or ssh."""

from typing import Any

from gpuready.commands.declaration import (
    Command,
    Parameter,
    Request,
    UsageError,
    collect_parameters,
    reject_together,
    reject_unread,
)
from gpuready.commands.parameters import AS_IF, COMMON, WHAT_IF, Strict, Wants, quiet_and_verbose
from gpuready.commands.result import Result
from gpuready.model.fleet import FleetReport
from gpuready.render import fleet as render
from gpuready.render import html, json_results
from gpuready.render.layout import Screen
from gpuready.workflow import require_writable, save_text_file
from gpuready.workflow.fleet import run_fleet
from gpuready.workflow.fleet_environments import check_environments, is_environment, name_recordings
from gpuready.workflow.fleet_node import check_this_node
from gpuready.workflow.fleet_run import RETRIES, FleetTask
from gpuready.workflow.fleet_transport import ReachOptions

_ENGINES = ("ray", "slurm", "ssh", "kubernetes")
_REACH = {
    "engine": Parameter("how to reach the nodes (default: detected)", "ENGINE", _ENGINES),
    "hosts": Parameter("hosts over ssh, such as n[01-16],me@gpu7:2222", "LIST"),
    "hostfile": Parameter("hosts over ssh, one on each line", "FILE"),
    "nodes": Parameter("only these nodes of the cluster, such as n[01-16]", "SET"),
    "address": Parameter("Ray's address: host:6379, or http://host:8265 for a Ray job", "ADDRESS"),
    "python": Parameter("the Python on the nodes, and the environment to examine", "PATH"),
    "image": Parameter(
        "Kubernetes: the image of the pods, with Python 3.10 or newer (default python:3.12-slim)", "IMAGE"
    ),
    "namespace": Parameter("Kubernetes: the namespace of the pods (default: kubectl's own)", "NAME"),
    "pods": Parameter("Kubernetes: start no pods, ask in running ones with these labels", "SELECTOR"),
    "timeout": Parameter("how long a node may take", "SECONDS", kind="number", most=1_000_000),
    "parallel": Parameter("how many nodes are asked at once (default 64)", "N", kind="whole", most=1_000_000),
    "retries": Parameter(
        "how often nodes that fail for now are asked again (default 3)", "N", kind="count", least=0, most=6
    ),
    "resume": Parameter("resume an interrupted run: its folder", "DIR"),
    "runs": Parameter("also tell which hosts stood out in earlier runs: the folder with their logs", "DIR"),
    "exclude": Parameter("print only the nodes to keep away from, as Slurm, Ray and kubectl take them"),
}
_SHOWN = {
    "output": Parameter("also write the report to a file: .html with a heat map, .json or .txt", "FILE", flag="-o"),
    **quiet_and_verbose("also the groups of nodes that agree, and every pair"),
}
_REFERENCE = {"reference": Parameter("compare with this recording, not with the majority", "FILE")}
_PROLOG = {
    "prolog": Parameter("this node's GPUs, driver, fabric, disk and clock, for Slurm: a fault is one line and exit 1")
}
_ON = {
    "on": Parameter("the machine that the named environments are for: a recording, or a name such as h100x8", "MACHINE")
}
_HARDWARE = {"hardware": Parameter("judge GPUs, driver, fabric, disk and clock of each node, and no Python")}
_ONLY = {"only": Parameter("only these measures of gpuready bench", "LIST")}


def run(request: Request) -> Result:
    if request.has_switch("prolog"):
        return _run_prolog(request)
    output = request.get_option("output") or ""
    if "." in output.rpartition("/")[2] and not output.endswith((".html", ".json", ".txt")):
        raise UsageError(f"-o {output}: a report of a fleet is written as .html, .json or .txt")
    require_writable(output or None)
    has_nodes = any(request.options.get(name) for name in ("engine", "hosts", "hostfile", "nodes", "pods"))
    request.arguments = name_recordings(request.arguments, has_nodes)
    reject_together(request, "hardware", "wants", "python", why="--hardware looks at no environment")
    if environments := [word for word in request.arguments if _is_path(word) and not word.endswith(".json")]:
        reject_unread(request, "wants", "strict", "output", "on", "as", *WHAT_IF)
        machines = [request.get_option("on"), *(word for word in request.arguments if word.endswith(".json"))]
        task = _make_fleet_task(request)
        named = [one for one in machines if one]
        return _make_result(request, check_environments(task, environments, named, request.show_progress))
    if request.get_option("on") is not None:
        raise UsageError("--on names the machine that environments are for: name their folders, such as /envs/a")
    reach = _parse_reach(request)
    tell = (lambda text: None) if request.has_switch("quiet") else request.session.write_sentence
    return _make_result(request, run_fleet(_make_fleet_task(request), reach, request.show_progress, tell))


def _is_path(word: str) -> bool:
    """Whether a word names a recording or an environment, and no framework."""
    return word.endswith(".json") or "/" in word or is_environment(word)


def _parse_reach(request: Request) -> Any:
    names = ("engine", "hosts", "hostfile", "nodes", "address", "python", "image", "namespace", "pods")
    recordings = tuple(word for word in request.arguments if word.endswith(".json"))
    reach = ReachOptions(recordings=recordings, **{name: request.get_option(name, "") for name in names})
    parallel = request.get_option("parallel")
    for name in (*names, "resume") if reach.recordings else ():
        if request.options.get(name):
            raise UsageError(f"{request.command.parameters[name].flag} is not read beside recordings: leave it out")
    return reach.replace(parallel=parallel) if parallel else reach


def _make_fleet_task(request: Request) -> Any:
    return FleetTask(
        request.command.name.partition(" ")[2],
        tuple(word for word in request.arguments if not _is_path(word)),
        request.get_option("timeout", 0.0),
        request.get_option("reference", ""),
        request.get_option("resume", ""),
        request.has_switch("strict"),
        {name: request.options[name] for name in ("wants", "only", "hardware") if name in request.options}
        | ({"what_if": request.what_if} if request.what_if else {}),
        request.get_option("retries", RETRIES),
        request.get_option("runs", ""),
    )


def _run_prolog(request: Request) -> Result:
    """Judge this node alone; who names a framework or an environment here is told that neither can drain a node."""
    reject_together(request, "prolog", "json", why="Slurm reads one line and the exit code")
    reject_unread(request, "prolog", "python", "wants", "strict")
    reason, unseen = render.drain_reason(check_this_node())
    ignored = [*request.arguments, *(f"--{name}" for name in ("python", "wants") if request.get_option(name))]
    said = f"gpuready: {', '.join(ignored)}: not looked at, --prolog judges the node alone" if ignored else ""
    if said or unseen:
        request.session.write_note("\n".join(text for text in (said, unseen) if text))
    return Result.from_text(reason, 1 if reason else 0)


def _make_result(request: Request, report: FleetReport) -> Result:
    _write_fleet_report(request.get_option("output"), report)
    is_list = request.has_switch("exclude")
    return Result(
        report,
        json_results.renderer("fleet"),
        render.render_fleet_screen,
        line=render.format_fleet_line,
        text=render.render_exclude_list(report, as_json=request.has_switch("json")) if is_list else None,
    )


def _write_fleet_report(path: str | None, report: FleetReport) -> None:
    if path is None:
        return
    if path.endswith(".html"):
        text = html.render_fleet_page(report)
    elif path.endswith(".json"):
        text = json_results.render_json("fleet", report)
    else:
        text = render.render_fleet_screen(report, Screen())
    save_text_file(path, text)


def _fleet_command(name: str, help: str, *groups: Any, most: int = 0, examples: tuple[str, ...]) -> Command:
    parameters = collect_parameters(*groups, _REACH, Strict, _SHOWN, COMMON)
    arguments = "" if not most else "[FRAMEWORK|FILE.json|FOLDER ...]" if name == "check" else "[FRAMEWORK ...]"
    usual = "hosts hostfile engine on as hardware prolog reference only exclude o q v"
    return Command(f"fleet {name}", help, run, parameters, arguments, 0, most, examples=examples, usual=usual)


COMMANDS = (
    _fleet_command(
        "check",
        "check every node, and whether they are alike",
        Wants,
        _REFERENCE,
        _PROLOG,
        _HARDWARE,
        _ON,
        WHAT_IF,
        AS_IF,
        most=999,
        examples=(
            "vllm --hosts 'n[01-16]'",
            "axolotl --engine slurm -o fleet.html",
            "trl a.json b.json --hardware",
            "/envs/a /envs/b --on h100x8 --as driver=580.95.05",
            "--prolog",
        ),
    ),
    _fleet_command(
        "prove",
        "prove a framework's capabilities on every node",
        _REFERENCE,
        most=99,
        examples=("vllm --engine slurm", "axolotl --hostfile hosts.txt", "trl --engine ray --address head:6379"),
    ),
    _fleet_command(
        "bench",
        "measure every node and name the slow ones",
        _ONLY,
        examples=("--only matmul --exclude", "--hosts 'n[01-16]' -o fleet.json", "--engine slurm --timeout 600"),
    ),
    _fleet_command(
        "drift",
        "show where nodes differ",
        _REFERENCE,
        examples=("--reference good.json", "--hosts 'n[01-16]'", "--engine ray --json"),
    ),
    _fleet_command(
        "bisect",
        "find the bad node, GPU or link by all-reduces in pairs",
        examples=("--engine slurm --nodes 'n[01-16]'", "--hosts 'n[01-16]'", "--resume gpuready-fleet/RUN"),
    ),
)
