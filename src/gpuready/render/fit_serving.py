"""The screen of ``gpuready fit --serve``: where the GPU's memory goes, how many tokens it holds, what to change."""

from gpuready.model.facts import verdict_words
from gpuready.model.fit import FitResult, ServingFit
from gpuready.model.visible_text import escape_unprintable
from gpuready.render.fit_header import format_fit_header, format_proposals
from gpuready.render.layout import Screen, join_sections
from gpuready.render.units import FIT_VERDICT_MARKS, format_gib, format_gib_range


def format_serving_line(result: FitResult) -> str:
    """``llama-3.1-8b: vllm serves 131072 tokens, 3 at once; fits on NVIDIA H100 80GB HBM3``"""
    return escape_unprintable(f"{result.model}: {_describe_outcome(result)}") + "\n"


def _describe_outcome(result: FitResult) -> str:
    served = result.serving
    if served is None:
        return f"{verdict_words('undecided')} ({result.why})"
    where = [f"{verdict_words(one.verdict)} on {one.name}" for one in result.places]
    change = [f"smallest change: {result.proposals[0].settings[0]}"] if result.proposals else []
    return "; ".join([describe_serving(served), *where, *change])


def describe_serving(served: ServingFit) -> str:
    """``vllm: context 131072 of at most 433408 tokens, 3 sequences at once``"""
    if not served.largest_context[1]:
        room, budget = format_gib(served.weights), format_gib_range(*served.budget)
        return f"{served.engine}: no room for a KV cache: the weights take {room} of the {budget} that it uses"
    return (
        f"{served.engine}: context {served.context} of at most {_format_count_range(served.largest_context)} tokens, "
        f"{_format_count_range(served.sequences)} such sequences at once"
    )


def _format_count_range(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]} to {pair[1]}"


def render_serving_screen(result: FitResult, screen: Screen, verbose: bool = False) -> str:
    text = describe_serving(result.serving) if result.serving is not None else result.why
    sections = [format_fit_header(result, text, screen)]
    if result.serving is not None:
        sections += [_format_places(result, screen), _format_pool(result.serving, screen)]
    sections += [
        format_proposals(result.proposals, screen, verbose, lambda one: one.settings[0], settings=False),
        _format_gpus(result, screen),
    ]
    notes = [*([result.why] if result.why and result.serving is not None else []), *result.notes]
    return join_sections(
        [
            *sections,
            [
                *screen.lead_paragraphs("not counted:", result.unmodelled, "warning"),
                *screen.format_paragraphs((f"note: {text}" for text in notes), 0, 6),
            ],
        ]
    )


def _format_places(result: FitResult, screen: Screen) -> list[str]:
    lines = []
    for place in result.places:
        count = f"{len(place.indexes)} x " if len(place.indexes) > 1 else ""
        mark = screen.status_mark(FIT_VERDICT_MARKS[place.verdict])
        text = f"{count}{place.name}: {format_gib_range(*place.available_memory)}"
        first, *rest = screen.align_ends(text, verdict_words(place.verdict), 2 + (1 if screen.ascii else 0))
        lines += [f"{mark} {first}", *("  " + more for more in rest)]
    return lines


def _format_pool(served: ServingFit, screen: Screen) -> list[str]:
    """The budget as the engine divides it."""
    rows = [
        ("weights", format_gib(served.weights)),
        ("activations of the largest batch", format_gib_range(*served.activations)),
        ("CUDA graphs", format_gib_range(*served.graphs)),
        ("workspaces", format_gib_range(*served.reserve)),
        ("KV cache", format_gib_range(*served.pool)),
        ("tokens in the cache", _format_count_range(served.tokens)),
        ("largest context", f"{_format_count_range(served.largest_context)} tokens"),
        (f"sequences of {served.context} tokens at once", _format_count_range(served.sequences)),
    ]
    share = f"{served.engine} uses {served.fraction:.3g} of the GPU, {format_gib_range(*served.budget)}:"
    return [*screen.format_paragraph(share), *screen.indent_table(rows)]


def _format_gpus(result: FitResult, screen: Screen) -> list[str]:
    fitting = [place.name for place in result.gpus if place.verdict == "fits"]
    if not result.gpus:
        return []
    text = f"GPUs that fit: {', '.join(fitting[:6])}" if fitting else "no GPU of the catalogue is large enough"
    more = f" and {len(fitting) - 6} more" if len(fitting) > 6 else ""
    return screen.format_paragraph(text + more)
