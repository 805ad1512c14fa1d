"""The screen of ``gpuready fit``: where the memory goes, which GPUs fit, and what to change."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.model.facts import verdict_words
from gpuready.model.fit import FitResult, GpuCandidate, LargestFit
from gpuready.model.visible_text import escape_unprintable
from gpuready.render.fit_header import format_fit_header, format_proposals
from gpuready.render.fit_serving import format_serving_line, render_serving_screen
from gpuready.render.fit_time import format_gpu_times, format_time
from gpuready.render.fit_timeline import format_timeline_line, render_timeline_screen
from gpuready.render.layout import Screen, join_sections, pad_text
from gpuready.render.units import FIT_VERDICT_MARKS, GIB, format_count, format_gib, format_gib_range

MIN_SHOWN_BYTES = GIB // 200
"""Smaller sizes would print as zero."""
ALWAYS_SHOWN_FIELDS = (
    "method", "micro_batch", "seq", "precision", "optimizer", "checkpointing", "attention", "loss", "accumulation",
)  # fmt: skip
"""Job fields that are always shown; others only where they are set."""
NEVER_SHOWN_FIELDS = (
    "loop", "steps", "clip", "kbit", "double_quant", "task", "model",
    "prefetch_bucket", "persistence", "live_parameters", "reuse_distance", "sub_group", "contiguous_gradients",
)  # fmt: skip


def fit_json_fields(result: FitResult) -> dict[str, Any]:
    """The JSON fields, all sizes in bytes."""
    result_json = result.to_json()
    result_json["places"] = [_place_json_fields(place) for place in result.places]
    result_json["gpus"] = [_place_json_fields(place) for place in result.gpus]
    if result.largest is None:
        del result_json["largest"]
    return {"verdict": result.verdict, "fits": result.fits, "exit": result.exit} | result_json


def _place_json_fields(place: GpuCandidate) -> dict[str, Any]:
    return place.to_json() | {"room": list(place.available_memory)}


def format_fit_line(result: FitResult) -> str:
    """``llama-3.1-8b: 61.5 GiB; fits on NVIDIA H200 (139.8 GiB)``"""
    if result.serving is not None:
        return format_serving_line(result)
    if result.timeline:
        return format_timeline_line(result)
    return escape_unprintable(f"{result.model}: {_describe_fit_outcome(result)}") + "\n"


def _describe_fit_outcome(result: FitResult) -> str:
    if result.largest is not None:
        return _describe_largest(result.largest)
    if result.minimum is None or not (result.places or result.gpus):
        return f"{verdict_words('undecided')} ({result.why})"
    where = [
        f"{verdict_words(one.verdict)} on {one.name} ({format_gib_range(*one.available_memory)})"
        for one in result.places
    ]
    if result.gpus and not where:
        fitting = [place for place in result.gpus if place.verdict == "fits"]
        where = [f"fits {fitting[0].name} and larger" if fitting else "fits no GPU that was judged"]
    least = result.proposals[0].says if result.proposals else ""
    change = [f"smallest change: {least}"] if least else []
    return "; ".join([format_gib(_total_needed_bytes(result)), *where, *change])


def render_fit_screen(result: FitResult, screen: Screen, verbose: bool = False) -> str:
    if result.serving is not None:
        return render_serving_screen(result, screen, verbose)
    if result.timeline:
        return render_timeline_screen(result, screen, verbose)
    header = format_fit_header(result, explain_fit_verdict(result), screen)
    sections = [[*header, *_format_job_setup(result, screen, verbose)]]
    sections.append(_format_fit_places(result, screen))
    if result.minimum is not None:
        sections += [_format_memory_bars(result, screen), _format_code_lines(result, screen)]
        sections += [_format_phase_table(result, screen)] if verbose else []
    sections.append(format_time(result.time, screen, verbose))
    sections += [
        _format_smallest_gpu(result, screen),
        format_proposals(
            result.proposals, screen, verbose, lambda one: format_gib(one.minimum + one.peak_device - one.peak_reserved)
        ),
    ]
    sections += [_format_catalogue_gpus(result, screen, verbose), format_gpu_times(result.gpus, screen, verbose)]
    sections += [result.traceback.splitlines()] if verbose else []
    return join_sections([*sections, _format_fit_notes(result, screen, verbose)])


def _total_needed_bytes(result: FitResult) -> int:
    return (result.minimum or 0) + result.overhead[1]


# -- job ------------------------------------------------------------------------------------------------------


def _format_job_setup(result: FitResult, screen: Screen, verbose: bool) -> list[str]:
    """The job in words; with -v the source of each setting."""
    job = dict(result.job)
    if verbose:
        rows = [(name, _format_job_value(value), result.said.get(name, "default")) for name, value in job.items()]
        return screen.indent_table(rows)
    return screen.format_paragraph(", ".join(describe_job_setup(job, result.said)), 2)


def describe_job_setup(job: dict[str, Any], sources: Any) -> list[str]:
    quantised = [f"weights in {job['quant']}"] if job.get("quant") else []
    if job.get("task") == "generate":
        words = [f"generates {job['new_tokens']} tokens after {job['seq']}", f"batch of {job['micro_batch']}"]
        return [*words, job["precision"], f"{job['cache']} cache", job["attention"], *quantised]
    if job.get("task") == "script":
        ranks = [f"one of {job['world']} ranks"] if job["world"] > 1 else []
        return [f"{format_count(job.get('steps', 0), 'optimizer step')} of the script run", *ranks]
    if job.get("task") == "score":
        words = [f"scores {job['micro_batch']} x {job['seq']} tokens", job["precision"]]
        return [*words, f"{job['attention']} attention", *quantised]
    rank = f" of rank {job['lora_r']}" if job["method"] != "full" else ""
    words = [f"{job['method']} training{rank}", f"{job['micro_batch']} x {job['seq']} tokens"]
    words += [job["precision"], job["optimizer"]]
    words.append({"none": "no checkpointing"}.get(job["checkpointing"], f"{job['checkpointing']} checkpointing"))
    words += [f"{job['attention']} attention", f"{job['loss']} loss"]
    if job["accumulation"] > 1:
        words.append(f"accumulation {job['accumulation']}")
    if not job.get("reshard", True):
        words.append("weights kept after the forward")
    hidden = (*ALWAYS_SHOWN_FIELDS, *NEVER_SHOWN_FIELDS, "lora_r")
    more = {name: value for name, value in job.items() if value and name in sources and name not in hidden}
    return words + [f"{k.replace('_', ' ')} {_format_job_value(v)}".removesuffix(" yes") for k, v in more.items()]


def _format_job_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == -1:  # the only negative value a setting can have
        return "auto"
    return ", ".join(map(str, value if isinstance(value, (list, tuple)) else (value,))) or "none"


# -- memory ---------------------------------------------------------------------------------------------------


def _format_memory_bars(result: FitResult, screen: Screen) -> list[str]:
    """One bar for each part at the peak, the largest first, then fragmentation and overhead."""
    parts = sorted(((size, name) for name, size in result.parts.items() if size >= MIN_SHOWN_BYTES), reverse=True)
    unused = max((result.minimum or 0) - sum(size for size, _ in parts), 0)
    rows = [(name, size) for size, name in parts]
    rows += [("fragmentation", unused)] if unused else []
    rows.append(("CUDA and its libraries", result.overhead[1]))
    largest_size = max(size for _, size in rows) or 1
    name_width = max(len(name) for name, _ in rows)
    bar_width = screen.width - name_width - 20
    lines = screen.format_paragraph(f"{describe_peak_moment(result)}:")
    for name, size in rows:
        filled = max(round(bar_width * size / largest_size), 1) if bar_width >= 8 else 0  # too narrow for bars
        bar = screen.apply_style(("#" if screen.ascii else "█") * filled, "info")
        lines.append(f"  {pad_text(escape_unprintable(name), name_width)}  {format_gib(size):>10}  {bar}".rstrip())
    total = f"  {pad_text('total', name_width)}  {format_gib(_total_needed_bytes(result)):>10}"
    lines.append(screen.apply_style(total, "bold"))
    return [*lines, *screen.format_paragraph(f"torch allocates {format_gib(result.peak_allocated or 0)} of it", 2)]


def _format_code_lines(result: FitResult, screen: Screen) -> list[str]:
    """``train.py:41  logits.float()  3.9 GiB``: what is live at the peak, by the line that asked for it."""
    shown = [one for one in result.lines if one.bytes >= MIN_SHOWN_BYTES]
    lines = screen.format_paragraph("by line of code:") if shown else []
    for one in shown:
        text = screen.truncate_text(escape_unprintable(f"{one.where}  {one.code}"), screen.width - 14)
        lines += [f"  {format_gib(one.bytes):>10}  {text}"]
    return lines


def describe_peak_moment(result: FitResult) -> str:
    phase, op = result.peak_at
    if not phase:
        return "at the peak"
    return f"at the peak, in {phase}" + (f" ({op})" if op else "")


def _format_phase_table(result: FitResult, screen: Screen) -> list[str]:
    """The highest allocation in each phase, over all steps."""
    highest: dict[str, int] = {}
    for name, size in result.phases.items():
        plain = name.rstrip("0123456789.")
        highest[plain] = max(highest.get(plain, 0), size)
    rows = [(name, format_gib(size)) for name, size in highest.items()]
    return ["highest allocation in each phase:", *screen.indent_table(rows)]


# -- GPUs -----------------------------------------------------------------------------------------------------


def _format_fit_places(result: FitResult, screen: Screen) -> list[str]:
    lines: list[str] = []
    for place in result.places:
        used = min(int(result.job.get("world", 1)), len(place.indexes))
        count = f"{used} of " * (used < len(place.indexes)) + f"{len(place.indexes)} x " * (len(place.indexes) > 1)
        in_use = f", {format_gib(place.held)} used by other processes" if place.held else ""
        memory = format_gib_range(*place.memory)
        verdict = place.verdict if result.minimum is not None else "undecided"
        outcome = verdict_words(verdict) + (describe_spare_memory(place) if result.minimum is not None else "")
        lines += _format_marked_line(screen, verdict, f"{count}{place.name}: {memory}{in_use}", outcome)
    return lines


def describe_spare_memory(place: GpuCandidate) -> str:
    if place.verdict == "fits":
        return f", {format_gib(place.available_memory[0] - place.needs[1])} to spare"
    if place.verdict == "does not fit":
        return f", {format_gib(place.needs[0] - place.available_memory[1])} short"
    return ""


def _format_marked_line(screen: Screen, verdict: str, text: str, right_text: str) -> list[str]:
    mark = screen.status_mark(FIT_VERDICT_MARKS[verdict])
    first, *rest = screen.align_ends(text, right_text, 2 + (1 if screen.ascii else 0))
    return [f"{mark} {first}", *("  " + more for more in rest)]


GPU_GROUP_TITLES = {"fits": "GPUs that fit", "undecided": "too close to call", "does not fit": "too small"}


def _format_catalogue_gpus(result: FitResult, screen: Screen, verbose: bool) -> list[str]:
    """Catalogue GPUs by size: fitting ones smallest first, borderline ones, then the largest that are too small."""
    if not result.gpus or result.minimum is None:
        return []
    lines: list[str] = []
    for verdict, title in GPU_GROUP_TITLES.items():
        rows = _group_gpus_by_size([place for place in result.gpus if place.verdict == verdict])
        if verdict == "does not fit":
            rows = rows[::-1]
        shown_rows = rows if verbose else rows[: 6 if verdict == "fits" else 2]
        lines += [screen.apply_style(title, "bold")] if shown_rows else []
        for size, names in shown_rows:
            shown = names if verbose else names[:5]
            more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
            lines += screen.format_paragraph(f"{size:>3} GB: {', '.join(shown)}{more}", 2, 8)
        rest = len(rows) - len(shown_rows)
        lines += screen.format_paragraph(f"and {rest} more sizes: -v", 2) if rest else []
    return lines


def _group_gpus_by_size(places: Sequence[GpuCandidate]) -> list[tuple[int, list[str]]]:
    """GPU names by nominal size, each name once."""
    sizes: dict[int, dict[str, None]] = {}
    for place in places:
        name = place.name
        for word in ("NVIDIA ", "Tesla ", "GeForce "):
            name = name.replace(word, "")
        sizes.setdefault(round(place.memory[1] / GIB + 0.1), {})[name] = None
    return [(size, list(names)) for size, names in sorted(sizes.items())]


# -- proposals and verdict ------------------------------------------------------------------------------------


def _format_smallest_gpu(result: FitResult, screen: Screen) -> list[str]:
    """The smallest GPU for the job as it is, where those at hand are too small."""
    if result.smallest_gpu is None:
        return []
    size = format_gib_range(*result.smallest_gpu.available_memory)
    return screen.format_paragraph(f"smallest GPU that it fits as it is: {result.smallest_gpu.name} ({size})")


def _format_fit_notes(result: FitResult, screen: Screen, verbose: bool) -> list[str]:
    unknown = [f"keys that {result.kind} does not declare: {', '.join(result.unknown_keys)}"]
    notes = [*result.notes, *(unknown if verbose and result.unknown_keys else ())]
    lessened = [text for text in result.lessened if text not in result.unmodelled]
    return [
        *screen.lead_paragraphs("not counted:", result.unmodelled, "warning"),
        *screen.lead_paragraphs("may need less:", lessened, "warning"),
        *screen.format_paragraphs((f"note: {text}" for text in notes), 0, 6),
    ]


def _describe_largest(largest: LargestFit) -> str:
    name = largest.field.replace("_", "-")
    if not largest.value:
        return f"no {name} fits"
    beyond = f"; {largest.fails} does not" if largest.fails else ""
    return f"the largest {name} that fits is {largest.value}{beyond}"


def explain_fit_verdict(result: FitResult) -> str:
    """``needs 79.7 GiB of 80 GiB; expect about 79.7 GiB in nvidia-smi``"""
    if result.why and result.minimum is None:
        return result.why
    if result.largest is not None:
        return _describe_largest(result.largest)
    need = f"needs {format_gib_range(*((result.minimum or 0) + extra for extra in result.overhead))}"
    each = describe_sharing(result.job)
    if not result.places:
        return "; ".join([need + each, _describe_smallest_gpu(result), *([result.why] if result.why else [])])
    place = next((one for one in result.places if one.verdict == result.verdict), result.places[0])
    if result.verdict == "fits":
        available, peak = place.available_memory[0], result.peak_device or 0
        shown = f"about {format_gib(peak)}" if peak < available else "a full GPU"  # torch keeps what it need not free
        return f"{need} of {format_gib(available)}{each}; expect {shown} in nvidia-smi"
    room = f"{need}{each}, the GPU has {format_gib_range(*place.available_memory)}"
    if result.verdict == "does not fit":
        return room if result.proposals else f"{room}; no tested change makes it fit"
    unsure = "; not all of the job is counted" if result.unmodelled or result.lessened else ", too close to call"
    return room + unsure


def describe_sharing(job: Mapping[str, Any]) -> str:
    """`` on each of 8 GPUs (DDP)``; nothing for one GPU."""
    if job.get("world", 1) < 2:
        return ""
    kind = f"ZeRO {job['zero']}" if job["zero"] else "FSDP" if job["fsdp"] else "DDP"
    return f" on each of {job['world']} GPUs ({'tensor parallel' if job['tensor_parallel'] == job['world'] else kind})"


def _describe_smallest_gpu(result: FitResult) -> str:
    fitting = [place for place in result.gpus if place.verdict == "fits"]
    which = "usual GPU" if result.why else "GPU"
    return f"the smallest {which} that fits is {fitting[0].name}" if fitting else f"no {which} is large enough"
