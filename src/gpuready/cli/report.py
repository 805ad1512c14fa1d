"""``gpuready report``: one HTML page in one file."""

from __future__ import annotations

from gpuready.cli.words import EVERYWHERE, PATIENT, WHAT_IF, Command, Flag, Usage, what_if

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen

FILE = "gpuready-report.html"
_FLAGS = (
    Flag("-o", f"the file to write ({FILE}); - is stdout", "FILE"),
    *PATIENT,
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
    *WHAT_IF,
)
COMMANDS = (
    Command(
        "report",
        "one page to look at: the verdict, the machine drawn, findings, proofs, memory, plan",
        _FLAGS + EVERYWHERE,
        "[FRAMEWORK ...]",
        most=999,
    ),
)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    """Gather, draw, write. With --json the document itself is the output, and a page only where -o asks for it."""
    flags = told.flags
    path = str(flags.get("o", "" if flags.get("json") else FILE))
    if path == "-" and flags.get("json"):
        raise Usage("--json and -o - do not go together: stdout takes one of them")
    from gpuready.workflow import reporting

    if path not in ("", "-"):
        reporting.writable(path)
    found = reporting.gather(
        list(told.arguments),
        **{name: flags.get(name) for name in ("on", "python", "proofs", "bench", "fleet")},
        fit=flags.get("fit", ()),
        plan=bool(flags.get("plan")),
        what_if=what_if(flags),
    )
    from gpuready.render import json, report

    document = report.fields(found)
    if path:
        page = _page(document)
        if path == "-":
            return page, found.exit
        _written(path, page)
    return (json.document(document) if flags.get("json") else report.lines(found)), found.exit


def _page(document: dict[str, object]) -> str:
    from gpuready.render import html
    from gpuready.workflow import Refused

    try:
        return html.page(document)
    except ValueError as bad:
        raise Refused(f"the report cannot be drawn: {bad}") from None


def _written(path: str, page: str) -> None:
    from gpuready.cli.terminal import sentence
    from gpuready.workflow import save

    save(path, page)
    sentence(f"wrote {path}: {len(page.encode()):,} bytes, one file; any browser opens it")
