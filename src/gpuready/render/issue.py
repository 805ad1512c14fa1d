"""A bug report in Markdown: machine, versions, set variables and findings, short enough to be pasted into an issue."""

import textwrap
from collections.abc import Iterable

from gpuready import __version__
from gpuready.model import Facts, Report
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import facts_summary, units
from gpuready.render.check_report import describe_verdict

MAX_ROWS, WIDTH = 40, 110
_WRAP = textwrap.TextWrapper(WIDTH, subsequent_indent=" " * 13, break_on_hyphens=False)
_FACTS = {
    "machine": ("os.pretty", "os.kernel", "os.arch", "os.container", "memory.total", "system.shm"),
    "CUDA": ("toolkit.version", "compiler.gcc", "nccl.version", "cudnn.version"),
}

_FAMILIES = (("packages", "package.", "=="), ("variables", "env.", "="))


def render_issue(reports: list[Report]) -> str:
    """Everything that a machine or a package said stands inside a fence, where Markdown reads no markup."""
    facts = reports[0].facts
    rows = [
        ("gpus", facts_summary.summarize_hardware(facts)),
        ("environment", facts_summary.summarize_environment(facts)),
    ]
    rows += [(label, _format_facts(facts, keys)) for label, keys in _FACTS.items()]
    read = {key for report in reports for judged in report.judged for key in judged.read}
    read |= {fact.key for report in reports for finding in report.findings for fact in finding.found}
    read |= {"package.torch", "package.triton", *(f"package.{report.contract.framework}" for report in reports)}
    rows += [(label, _format_read(facts, read, prefix, sign)) for label, prefix, sign in _FAMILIES]
    lines = [f"### Environment (`gpuready issue`, {__version__})", *_fence(f"{a + ':':<13}{b}" for a, b in rows if b)]
    for report in reports:
        lines += ["", f"### `gpuready check {_visible(report.contract.framework)}`", *_fence(_list_findings(report))]
    return "\n".join(lines) + "\n"


def _fence(rows: Iterable[str]) -> list[str]:
    shown = [line for row in rows for line in _WRAP.wrap(_visible(row))]
    more = [f"... {len(shown) - MAX_ROWS} more lines"] if len(shown) > MAX_ROWS else []
    return ["```text", *shown[:MAX_ROWS], *more, "```"]


def _visible(text: str) -> str:
    return escape_unprintable(text).replace("`", "'")


def _format_facts(facts: Facts, keys: Iterable[str]) -> str:
    known = [facts.fact(key) for key in keys]
    return ", ".join(f"{one.key} {units.format_fact_value(one)}" for one in known if one.value is not None)


def _format_read(facts: Facts, read: set[str], prefix: str, sign: str) -> str:
    """``torch==2.13.0, trl==1.2.0``: what has a value among the facts that a rule read."""
    known = [fact for fact in facts if fact.key in read and fact.key.startswith(prefix) and isinstance(fact.value, str)]
    return ", ".join(f"{fact.key.removeprefix(prefix)}{sign}{fact.value}" for fact in known)


def _list_findings(report: Report) -> list[str]:
    rows = [f"{report.contract.name}: {describe_verdict(report)}"]
    for finding in report.findings:
        seen = "; ".join(f"{fact.key} {units.format_fact_value(fact)}" for fact in finding.found[:3])
        rows.append(f"{finding.code} {finding.severity}: {finding.says} ({seen})")
    return [*rows, *(f"{one.code} can't tell, may apply: {one.says}" for one in report.undecided)]
