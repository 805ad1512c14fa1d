"""The screen of ``gpuready fit`` for several roles: what each GPU holds in every phase, and the phase that peaks."""

from gpuready.model.facts import verdict_words
from gpuready.model.fit import FitResult, GpuTimeline
from gpuready.model.visible_text import escape_unprintable
from gpuready.render.fit_header import format_fit_header, format_proposals
from gpuready.render.layout import Screen, join_sections
from gpuready.render.units import FIT_VERDICT_MARKS, format_gib, format_gib_range


def format_timeline_line(result: FitResult) -> str:
    """``Qwen/Qwen2.5-7B: 79.1 GiB in generation; fits on NVIDIA H100 80GB HBM3``"""
    where = [f"{verdict_words(result.verdict)} on {one.name}" for one in result.places]
    change = [f"smallest change: {result.proposals[0].says}"] if result.proposals else []
    return escape_unprintable(f"{result.model}: {'; '.join([describe_peak(result), *where, *change])}") + "\n"


def describe_peak(result: FitResult) -> str:
    worst = max(result.timeline, key=lambda one: one.needs[1])
    return f"needs {format_gib_range(*worst.needs)}, most in {worst.peak}"


def render_timeline_screen(result: FitResult, screen: Screen, verbose: bool = False) -> str:
    place = result.places[0]
    text = f"{describe_peak(result)}; the GPU has {format_gib_range(*place.available_memory)}"
    if result.unmodelled:
        text += "; not all of the job is counted"
    header = format_fit_header(result, text, screen)
    timelines = [_format_timeline(one, place.name, screen, verbose) for one in result.timeline]
    notes = screen.format_paragraphs((f"note: {text}" for text in result.notes), 0, 6)
    gaps = screen.lead_paragraphs("not counted:", result.unmodelled, "warning")
    return join_sections([header, *timelines, _format_role_changes(result, screen), [*gaps, *notes]])


def _format_timeline(line: GpuTimeline, gpu: str, screen: Screen, verbose: bool) -> list[str]:
    mark = screen.status_mark(FIT_VERDICT_MARKS[line.verdict])
    title = f"{_describe_gpus(line.gpus)} ({gpu})"
    outcome = verdict_words(line.verdict)
    first, *rest = screen.align_ends(title, outcome, 2 + (1 if screen.ascii else 0))
    lines = [f"{mark} {first}", *("  " + more for more in rest)]
    for phase in line.phases:
        marked = "  << the peak" if phase.phase == line.peak and len(line.phases) > 1 else ""
        lines.append(f"  {phase.phase:<18}{format_gib_range(*phase.total):>18}{marked}")
        for role, (low, high) in phase.roles.items():
            if verbose or role in phase.working:
                state = "" if role in phase.working else " (waits)"
                lines.append(f"    {escape_unprintable(role) + state:<24}{format_gib_range(low, high)}")
        waiting = [size for role, size in phase.roles.items() if role not in phase.working]
        if waiting and not verbose:
            waiting_size = format_gib_range(sum(low for low, _ in waiting), sum(high for _, high in waiting))
            lines.append(f"    {'roles that wait':<24}{waiting_size}")
    return [screen.truncate_text(text, screen.width) for text in lines]


def _describe_gpus(gpus: tuple[int, ...]) -> str:
    """``GPUs 0 to 7``, ``GPU 3``, ``GPUs 0, 2 and 5``"""
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    if gpus == tuple(range(gpus[0], gpus[-1] + 1)):
        return f"GPUs {gpus[0]} to {gpus[-1]}"
    return f"GPUs {', '.join(map(str, gpus[:-1]))} and {gpus[-1]}"


def _format_role_changes(result: FitResult, screen: Screen) -> list[str]:
    if not result.proposals:
        return screen.format_paragraph("no tested change makes it fit") if result.verdict == "does not fit" else []
    return format_proposals(result.proposals, screen, True, lambda one: format_gib(one.peak_device))
