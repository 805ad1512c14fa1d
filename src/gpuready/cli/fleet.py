"""``gpuready fleet``: check, prove, bench, drift and bisect on every node, through Slurm, Ray, torchrun or ssh."""

from __future__ import annotations

import sys

from gpuready.cli.words import EVERYWHERE, Command, Flag, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.words import Told
    from gpuready.fleeted import FleetReport
    from gpuready.render.layout import Screen

_REACH = (
    Flag(
        "--engine",
        "what reaches the nodes (default: what is seen here)",
        "ENGINE",
        ("ray", "slurm", "ssh", "elastic"),
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
_REFERENCE = Flag("--reference", "compare with this recording, not with the majority", "FILE")
_PROLOG = Flag("--prolog", "this node alone, for Slurm's prolog or health check: one line, exit code")
_WANTS = Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST")
_ONLY = Flag("--only", "only these measures of gpuready bench", "LIST")


def _command(name: str, says: str, *flags: Flag, frameworks: bool = False) -> Command:
    words = ("[FRAMEWORK ...]", 0, 99) if frameworks else ("", 0, 0)
    return Command(f"fleet {name}", says, (*flags, *_REACH, *EVERYWHERE), *words)


COMMANDS = (
    _command(
        "check", "is every node clear, and are they alike?", _WANTS, _REFERENCE, _PROLOG, frameworks=True
    ),
    _command("prove", "prove on every node what a framework needs", _REFERENCE, frameworks=True),
    _command("bench", "measure every node, and name the slow ones", _ONLY),
    _command("drift", "in what do nodes differ?", _REFERENCE),
    _command("bisect", "find the bad node, GPU or link by pairs that reduce together"),
)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    flags = told.flags
    if flags.get("q") and flags.get("v"):
        raise Usage("-q and -v do not go together: choose one")
    if flags.get("prolog"):
        return _prolog(told)
    from gpuready.workflow import fleeting

    reach = _reach(flags)
    served = fleeting.serves(reach)
    if served is not None:
        return "", served
    live = Live(screen, quiet=bool(flags.get("q") or flags.get("json")))
    try:
        report, folder = fleeting.fleet(_asked(told), reach, live.say)
    finally:
        live.clear()
    if not flags.get("q"):
        from gpuready.cli.terminal import sentence

        sentence(f"kept in {folder}; --resume takes it up again")
    if "o" in flags:
        _written(flags["o"], report)
    return _shown(report, flags, screen), report.exit


def _reach(flags: Mapping[str, Any]) -> Any:
    from gpuready.workflow.reaching import Reach

    told = {
        key: str(flags.get(key, "")) for key in ("engine", "hosts", "hostfile", "nodes", "address", "python")
    }
    parallel = _number(flags, "parallel", whole=True)
    found = Reach().but(**told)
    return found.but(parallel=int(parallel)) if parallel else found


def _asked(told: Told) -> Any:
    from gpuready.workflow.fleeting import Asked

    flags = told.flags
    return Asked(
        told.command.partition(" ")[2],
        told.arguments,
        _number(flags, "timeout") or 0.0,
        str(flags.get("reference", "")),
        str(flags.get("resume", "")),
        bool(flags.get("strict")),
        {name: flags[name] for name in ("wants", "only") if name in flags},
    )


def _number(flags: Mapping[str, Any], name: str, whole: bool = False) -> float | None:
    if name not in flags:
        return None
    text = str(flags[name])
    try:
        value = float(int(text) if whole else text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise Usage(f"--{name} takes a number above 0, not {text!r}")
    return value


def _prolog(told: Told) -> tuple[str, int]:
    from gpuready.render import fleet as shown
    from gpuready.workflow import check

    reports = check(
        list(told.arguments), python=told.flags.get("python"), strict=bool(told.flags.get("strict"))
    )
    return shown.reason(reports)


def _shown(report: FleetReport, flags: Mapping[str, Any], screen: Screen) -> str:
    from gpuready.render import answers
    from gpuready.render import fleet as shown

    if flags.get("exclude"):
        return shown.exclude(report, as_json=bool(flags.get("json")))
    if flags.get("json"):
        return answers.fleet(report)
    if flags.get("q"):
        return shown.line(report)
    return shown.page(report, screen, verbose=bool(flags.get("v")))


def _written(path: str, report: FleetReport) -> None:
    from gpuready.render import answers
    from gpuready.render import fleet as shown
    from gpuready.workflow import save

    if path.endswith(".html"):
        from gpuready.render import fleet_html

        save(path, fleet_html.document(report))
    elif path.endswith(".json"):
        save(path, answers.fleet(report))
    else:
        from gpuready.render.layout import Screen as Plain

        save(path, shown.page(report, Plain()))


class Live:
    """Progress on one line of a terminal: the action, and how many of the nodes have answered."""

    def __init__(self, screen: Screen, quiet: bool):
        self.screen, self.drawn = screen, False
        self.live = sys.stderr is not None and sys.stderr.isatty() and not quiet

    def say(self, what: str, done: int, of: int) -> None:
        if not self.live:
            return
        text = f"{what}: {done:,} of {of:,} nodes" if of else what
        sys.stderr.write(f"\r\x1b[K{self.screen.cut(text, self.screen.width - 1)}")
        sys.stderr.flush()
        self.drawn = True

    def clear(self) -> None:
        if self.drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
