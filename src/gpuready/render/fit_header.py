"""The first lines of ``gpuready fit``: the verdict, and what it holds for."""

from __future__ import annotations

from gpuready.model.facts import verdict_words
from gpuready.model.fit import FitResult
from gpuready.render.facts_summary import shorten_gpu_name
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
        gpus = format_count(world, "GPU") + (" of the catalogue" if result.gpus else " that is not named")
    elif world != found:
        gpus = f"{world} of {gpus}" if world < found else f"{world} GPUs like {gpus}"
    machine = f" ({result.machine})" if result.machine and result.places else ""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items() if version)
    looked = f" with {versions}" if versions else "; no environment looked at"
    return f"{name} on {gpus}{machine}, by {result.judged_by or 'gpuready'}{looked}"
