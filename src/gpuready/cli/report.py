"""``gpuready report``: one HTML page in one file."""

from __future__ import annotations

from gpuready.cli.command_spec import (
    COMMON_FLAGS,
    TARGET_FLAGS,
    WHAT_IF_FLAGS,
    CommandSpec,
    Flag,
    UsageError,
    what_if_values,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen

DEFAULT_FILE = "gpuready-report.html"
_FLAGS = (
    Flag("-o", f"the file to write ({DEFAULT_FILE}); - is stdout", "FILE"),
    *TARGET_FLAGS,
    Flag("--proofs", "also these proofs: evidence of gpuready prove -o", "FILE"),
    Flag("--bench", "also these measures: an answer of gpuready bench -o", "FILE"),
    Flag(
        "--fit",
        "also the memory of this job: a model, the file of its set-up, or an answer of gpuready fit --json",
        "MODEL|FILE",
        many=True,
    ),
    Flag("--plan", "also the plan, chosen without asking an index"),
    Flag("--fleet", "a fleet: an answer of gpuready fleet check -o FILE.json", "FILE"),
    *WHAT_IF_FLAGS,
)
COMMANDS = (
    CommandSpec(
        "report",
        "one page to look at: the verdict, the machine drawn, findings, proofs, memory, plan",
        _FLAGS + COMMON_FLAGS,
        "[FRAMEWORK ...]",
        most=999,
    ),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    """Gather, draw, write. With --json the document itself is the output, and a page only where -o asks for it."""
    flags = parsed.flags
    path = str(flags.get("o", "" if flags.get("json") else DEFAULT_FILE))
    if path == "-" and flags.get("json"):
        raise UsageError("--json and -o - do not go together: stdout takes one of them")
    from gpuready.workflow import report_data

    if path not in ("", "-"):
        report_data.check_overwrite(path)
    gathered = report_data.gather_report(
        list(parsed.arguments),
        **{name: flags.get(name) for name in ("on", "python", "proofs", "bench", "fleet")},
        fit=flags.get("fit", ()),
        plan=bool(flags.get("plan")),
        what_if=what_if_values(flags),
    )
    from gpuready.render import json_document, report

    document = report.report_document_fields(gathered)
    if path:
        page = _draw_report_page(document)
        if path == "-":
            return page, gathered.exit
        _write_report_page(path, page)
    return (
        json_document.format_json_document(document) if flags.get("json") else report.format_report_lines(gathered)
    ), gathered.exit


def _draw_report_page(document: dict[str, object]) -> str:
    from gpuready.render import html
    from gpuready.workflow import Refused

    try:
        return html.render_report_page(document)
    except ValueError as bad:
        raise Refused(f"the report cannot be drawn: {bad}") from None


def _write_report_page(path: str, page: str) -> None:
    from gpuready.cli.terminal import write_sentence
    from gpuready.workflow import save_text_file

    save_text_file(path, page)
    write_sentence(f"wrote {path}: {len(page.encode()):,} bytes, one file; any browser opens it")
