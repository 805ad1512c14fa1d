"""``gpuready fleet``: check, prove, bench, drift and bisect on every node, through Slurm, Ray, torchrun or ssh."""

from __future__ import annotations

import sys

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.model.fleet import FleetReport
    from gpuready.render.layout import Screen

_REACH_FLAGS = (
    Flag(
        "--engine", "what reaches the nodes (default: what is seen here)", "ENGINE", ("ray", "slurm", "ssh", "elastic")
    ),
    Flag("--hosts", "hosts over ssh, such as n[01-16],me@gpu7:2222", "LIST"),
    Flag("--hostfile", "hosts over ssh, one on each line", "FILE"),
    Flag("--nodes", "only these nodes of the cluster, such as n[01-16]", "SET"),
    Flag("--address", "Ray's address: host:6379, or http://host:8265 for a Ray job", "ADDRESS"),
    Flag("--python", "the Python on the nodes, and the environment that is looked at", "PATH"),
    Flag("--timeout", "how long a node may take", "SECONDS"),
    Flag("--parallel", "how many nodes are asked at once (default 64)", "N"),
    Flag("--resume", "go on with a run that was broken off: its folder", "DIR"),
    Flag("--exclude", "print only the nodes to keep away from, as Slurm and Ray take them"),
    Flag("--strict", "count warnings and everything undecided as errors"),
    Flag("-o", "also write the report to a file: .html with a heat map, or .json", "FILE"),
    Flag("-q", "one line"),
    Flag("-v", "also the groups that hold, and every pair"),
)
_REFERENCE_FLAG = Flag("--reference", "compare with this recording, not with the majority", "FILE")
_PROLOG_FLAG = Flag("--prolog", "this node alone, for Slurm's prolog or health check: one line, exit code")
_WANTS_FLAG = Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST")
_ONLY_FLAG = Flag("--only", "only these measures of gpuready bench", "LIST")


def _fleet_command(name: str, says: str, *flags: Flag, frameworks: bool = False) -> CommandSpec:
    words = ("[FRAMEWORK ...]", 0, 99) if frameworks else ("", 0, 0)
    return CommandSpec(f"fleet {name}", says, (*flags, *_REACH_FLAGS, *COMMON_FLAGS), *words)


COMMANDS = (
    _fleet_command(
        "check", "is every node clear, and are they alike?", _WANTS_FLAG, _REFERENCE_FLAG, _PROLOG_FLAG, frameworks=True
    ),
    _fleet_command("prove", "prove on every node what a framework needs", _REFERENCE_FLAG, frameworks=True),
    _fleet_command("bench", "measure every node, and name the slow ones", _ONLY_FLAG),
    _fleet_command("drift", "in what do nodes differ?", _REFERENCE_FLAG),
    _fleet_command("bisect", "find the bad node, GPU or link by pairs that reduce together"),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    flags = parsed.flags
    if flags.get("q") and flags.get("v"):
        raise UsageError("-q and -v do not go together: choose one")
    if flags.get("prolog"):
        return _run_prolog(parsed)
    from gpuready.workflow import fleet

    reach = _parse_reach(flags)
    served = fleet.serve_torchrun_rank(reach)
    if served is not None:
        return "", served
    live = FleetProgressLine(screen, quiet=bool(flags.get("q") or flags.get("json")))
    try:
        report, folder = fleet.run_fleet(_make_fleet_task(parsed), reach, live.show_progress)
    finally:
        live.clear_line()
    if not flags.get("q"):
        from gpuready.cli.terminal import write_sentence

        write_sentence(f"kept in {folder}; --resume takes it up again")
    if "o" in flags:
        _write_fleet_report(flags["o"], report)
    return _format_fleet_report(report, flags, screen), report.exit


def _parse_reach(flags: Mapping[str, Any]) -> Any:
    from gpuready.workflow.fleet_transport import ReachOptions

    values = {key: str(flags.get(key, "")) for key in ("engine", "hosts", "hostfile", "nodes", "address", "python")}
    parallel = _parse_positive_number(flags, "parallel", whole=True)
    reach = ReachOptions().replace(**values)
    return reach.replace(parallel=int(parallel)) if parallel else reach


def _make_fleet_task(parsed: ParsedCommand) -> Any:
    from gpuready.workflow.fleet import FleetTask

    flags = parsed.flags
    return FleetTask(
        parsed.command.partition(" ")[2],
        parsed.arguments,
        _parse_positive_number(flags, "timeout") or 0.0,
        str(flags.get("reference", "")),
        str(flags.get("resume", "")),
        bool(flags.get("strict")),
        {name: flags[name] for name in ("wants", "only") if name in flags},
    )


def _parse_positive_number(flags: Mapping[str, Any], name: str, whole: bool = False) -> float | None:
    if name not in flags:
        return None
    text = str(flags[name])
    try:
        value = float(int(text) if whole else text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise UsageError(f"--{name} takes a number above 0, not {text!r}")
    return value


def _run_prolog(parsed: ParsedCommand) -> tuple[str, int]:
    from gpuready.render import fleet as shown
    from gpuready.workflow import check_machine

    reports = check_machine(
        list(parsed.arguments), python=parsed.flags.get("python"), strict=bool(parsed.flags.get("strict"))
    )
    return shown.drain_reason(reports)


def _format_fleet_report(report: FleetReport, flags: Mapping[str, Any], screen: Screen) -> str:
    from gpuready.render import fleet as shown
    from gpuready.render import json_results

    if flags.get("exclude"):
        return shown.render_exclude_list(report, as_json=bool(flags.get("json")))
    if flags.get("json"):
        return json_results.render_fleet_json(report)
    if flags.get("q"):
        return shown.format_fleet_line(report)
    return shown.render_fleet_screen(report, screen, verbose=bool(flags.get("v")))


def _write_fleet_report(path: str, report: FleetReport) -> None:
    from gpuready.render import fleet as shown
    from gpuready.render import json_results
    from gpuready.workflow import save_text_file

    if path.endswith(".html"):
        from gpuready.render import fleet_html

        save_text_file(path, fleet_html.render_fleet_html(report))
    elif path.endswith(".json"):
        save_text_file(path, json_results.render_fleet_json(report))
    else:
        from gpuready.render.layout import Screen as Plain

        save_text_file(path, shown.render_fleet_screen(report, Plain()))


class FleetProgressLine:
    """Progress on one line of a terminal: the action, and how many of the nodes have answered."""

    def __init__(self, screen: Screen, quiet: bool):
        self.screen, self.is_drawn = screen, False
        self.is_enabled = sys.stderr is not None and sys.stderr.isatty() and not quiet

    def show_progress(self, what: str, done: int, of: int) -> None:
        if not self.is_enabled:
            return
        text = f"{what}: {done:,} of {of:,} nodes" if of else what
        sys.stderr.write(f"\r\x1b[K{self.screen.truncate_text(text, self.screen.width - 1)}")
        sys.stderr.flush()
        self.is_drawn = True

    def clear_line(self) -> None:
        if self.is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
