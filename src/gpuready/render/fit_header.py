"""What all screens of ``gpuready fit`` have: the verdict with what it holds for, and the changes that would make it fit."""

from collections.abc import Callable, Sequence

from gpuready.model.facts import verdict_words
from gpuready.model.fit import FitResult, Proposal
from gpuready.render.facts_summary import shorten_gpu_name
from gpuready.render.fit_time import describe_proposal_time
from gpuready.render.layout import Screen
from gpuready.render.units import FIT_VERDICT_MARKS, format_count


def format_fit_header(result: FitResult, explanation: str, screen: Screen) -> list[str]:
    """The verdict with the job, the machine and what judged it; then the explanation."""
    word = verdict_words(result.verdict)
    scope = screen.format_header(f"{word}: {describe_scope(result)}", "", FIT_VERDICT_MARKS[result.verdict], f"{word}:")
    return [*scope, *screen.format_paragraph(explanation, 2)]


def describe_scope(result: FitResult) -> str:
    """``llama-3.1-8b on 1x H100 80GB (--on h100), by the templates of gpuready 0.1.0; no environment looked at``"""
    name = result.model if result.kind == "flags" else f"{result.model} ({result.kind})"
    world, found = int(result.job.get("world", 1)), sum(len(place.indexes) for place in result.places)
    gpus = ", ".join(f"{len(place.indexes)}x {shorten_gpu_name(place.name)}" for place in result.places)
    if not gpus:
        is_open = result.why or not result.gpus
        gpus = format_count(world, "unnamed GPU" if is_open else "GPU") + ("" if is_open else " of the catalogue")
    elif world < found:
        gpus = f"{world} of {gpus}"
    elif world > found:
        kinds = dict.fromkeys(shorten_gpu_name(place.name) for place in result.places)
        gpus = f"{world}x {' or '.join(kinds)}"
    machine = f" ({result.machine})" if result.machine and result.places else ""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items() if version)
    looked = f" with {versions}" if versions else "; no environment looked at"
    return f"{name} on {gpus}{machine}, by {result.judged_by or 'gpuready'}{looked}"


def format_proposals(
    proposals: Sequence[Proposal],
    screen: Screen,
    verbose: bool,
    beside: Callable[[Proposal], str],
    settings: bool = True,
) -> list[str]:
    title = screen.format_paragraph("what would make it fit, smallest change first") if proposals else []
    lines = [screen.apply_style(text, "bold") for text in title]
    for number, one in enumerate(proposals, 1):
        first, *rest = screen.align_ends(one.says, beside(one), 5)
        lines += [f"  {number}  {first}", *("     " + text for text in rest)]
        lines += screen.format_paragraph(f"costs: {one.costs}{describe_proposal_time(one)}", 5, 7)
        if number == 1 or verbose:
            shown = one.settings if settings else ()
            lines += ["     " + screen.truncate_text(text, screen.width - 5) for text in shown]
            lines += screen.format_command(one.run, 5) if one.run else []
    return lines
