"""The screen of ``gpuready fit``: where the memory goes, which GPUs fit, and what to change."""

from __future__ import annotations

from gpuready.render.escape import command, visible
from gpuready.render.layout import Screen, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuready.fitted import Fitted, Largest, Place, Proposal

GIB = 1 << 30
SEEN = GIB // 200
"""Smaller sizes would print as zero."""
MARKS = {"fits": "ok", "does not fit": "error", "undecided": "undecided"}
ALWAYS = (
    "method",
    "micro_batch",
    "seq",
    "precision",
    "optimizer",
    "checkpointing",
    "attention",
    "loss",
    "accumulation",
)
"""Job fields that are always shown; others only where they are set."""
QUIET = (
    "loop", "steps", "clip", "experts", "kbit", "double_quant", "task", "model",
    "prefetch_bucket", "persistence", "live_parameters", "reuse_distance", "sub_group", "contiguous_gradients",
)  # fmt: skip


def fields(found: Fitted) -> dict[str, Any]:
    """The JSON fields, all sizes in bytes."""
    told = found.to_json()
    told["places"] = [_place(place) for place in found.places]
    told["gpus"] = [_place(place) for place in found.gpus]
    if found.largest is None:
        del told["largest"]
    return {"verdict": found.verdict, "fits": found.fits, "exit": found.exit} | told


def _place(place: Place) -> dict[str, Any]:
    return place.to_json() | {"room": list(place.room)}


def line(found: Fitted) -> str:
    """``llama-3.1-8b: 61.5 GiB; fits on NVIDIA H200 (139.8 GiB)``"""
    name = visible(found.model)
    if found.largest is not None:
        return f"{name}: {_most(found.largest)}\n"
    if found.minimum is None or not (found.places or found.gpus):
        return f"{name}: undecided ({visible(found.why)})\n"
    where = [f"{place.verdict} on {visible(place.name)} ({_band(*place.room)})" for place in found.places]
    if found.gpus and not where:
        fitting = [place for place in found.gpus if place.verdict == "fits"]
        where = [f"fits {visible(fitting[0].name)} and larger" if fitting else "fits no GPU of the catalogue"]
    least = found.proposals[0].says if found.proposals else ""
    change = [f"smallest change: {visible(least)}"] if least else []
    return f"{name}: {_size(_needed(found))}; {'; '.join([*where, *change])}\n"


def page(found: Fitted, screen: Screen, verbose: bool = False) -> str:
    sections = [_head(found, screen), _setup(found, screen, verbose)]
    if found.minimum is not None:
        sections += [_bar(found, screen), _phases(found, screen) if verbose else []]
    sections += [_places(found, screen), _gpus(found, screen, verbose)]
    sections += [_proposals(found.proposals, screen, verbose), _notes(found, screen), _verdict(found, screen)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _needed(found: Fitted) -> int:
    return (found.minimum or 0) + found.overhead[1]


def _size(count: int) -> str:
    """Always GiB, so that sizes compare at a glance."""
    return f"{count / GIB:.2f} GiB" if count < 10 * GIB else f"{count / GIB:.1f} GiB"


def _band(low: int, high: int) -> str:
    first, last = _size(low), _size(high)
    return first if first == last else f"{first.removesuffix(' GiB')} to {last}"


# -- job ------------------------------------------------------------------------------------------------------


def _head(found: Fitted, screen: Screen) -> list[str]:
    left = f"fit of {visible(found.model)}"
    right = "" if found.kind == "flags" else f"read as {visible(found.kind)}"
    first, *rest = screen.ends(left, right)
    return [screen.paint(left, "bold") + first[len(left) :] if first.startswith(left) else first, *rest]


def _setup(found: Fitted, screen: Screen, verbose: bool) -> list[str]:
    """The job in words; with -v the source of each setting."""
    job = dict(found.job)
    if verbose:
        rows = [
            (visible(name), _word(value), visible(found.said.get(name, "default")))
            for name, value in job.items()
        ]
        return ["  " + text for row in screen.table(rows, 2) for text in row]
    return screen.paragraph(", ".join(_words(job, found.said)), 2)


def _words(job: dict[str, Any], said: Any) -> list[str]:
    if job.get("task") == "generate":
        words = [f"generates {job['new_tokens']} tokens after {job['seq']}", f"batch of {job['micro_batch']}"]
        words += [job["precision"], f"{job['cache']} cache", job["attention"]]
        return words + ([f"weights in {job['quant']}"] if job.get("quant") else [])
    method = job["method"] + (f" of rank {job['lora_r']}" if job["method"] != "full" else "")
    words = [
        f"{method} training",
        f"{job['micro_batch']} x {job['seq']} tokens",
        job["precision"],
        job["optimizer"],
    ]
    words.append(
        {"none": "no checkpointing"}.get(job["checkpointing"], f"{job['checkpointing']} checkpointing")
    )
    words += [f"{job['attention']} attention", f"{job['loss']} loss"]
    if job["accumulation"] > 1:
        words.append(f"accumulation {job['accumulation']}")
    if not job.get("reshard", True):
        words.append("weights kept after the forward")
    more = {
        name: value for name, value in job.items() if name in said and name not in (*ALWAYS, *QUIET, "lora_r")
    }
    return words + [
        f"{name.replace('_', ' ')} {_word(value)}".removesuffix(" yes")
        for name, value in more.items()
        if value
    ]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == -1:  # the only negative value a setting can have
        return "auto"
    return visible(", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value) or "none"


# -- memory ---------------------------------------------------------------------------------------------------


def _bar(found: Fitted, screen: Screen) -> list[str]:
    """One bar for each part at the peak, the largest first, then fragmentation and overhead."""
    parts = sorted(((size, name) for name, size in found.parts.items() if size >= SEEN), reverse=True)
    lost = max((found.minimum or 0) - sum(size for size, _ in parts), 0)
    rows = [(name, size) for size, name in parts]
    rows += [("between blocks", lost)] if lost else []
    rows.append(("CUDA and its libraries", found.overhead[1]))
    most = max(size for _, size in rows) or 1
    wide = max(len(name) for name, _ in rows)
    room = screen.width - wide - 20
    lines = screen.paragraph(f"{_moment(found)}:")
    for name, size in rows:
        filled = max(round(room * size / most), 1) if room >= 8 else 0  # too narrow for bars
        bar = screen.paint(("#" if screen.ascii else "█") * filled, "info")
        lines.append(f"  {pad(visible(name), wide)}  {_size(size):>10}  {bar}".rstrip())
    total = f"  {pad('needed', wide)}  {_size(_needed(found)):>10}"
    lines.append(screen.paint(total, "bold"))
    spare = f"with room to spare nvidia-smi shows {_size(found.peak_device or 0)}"
    return [*lines, *screen.paragraph(f"{spare}; torch allocates {_size(found.peak_allocated or 0)}", 2)]


def _moment(found: Fitted) -> str:
    phase, op = (visible(word) for word in found.peak_at)
    if not phase:
        return "at the peak"
    return f"at the peak, in {phase}" + (f" ({op})" if op else "")


def _phases(found: Fitted, screen: Screen) -> list[str]:
    """The highest allocation in each phase, over all steps."""
    highest: dict[str, int] = {}
    for name, size in found.phases.items():
        plain = visible(name).rstrip("0123456789.")
        highest[plain] = max(highest.get(plain, 0), size)
    rows = [(name, _size(size)) for name, size in highest.items()]
    return [
        "highest allocation in each phase:",
        *("  " + text for row in screen.table(rows, 2) for text in row),
    ]


# -- GPUs -----------------------------------------------------------------------------------------------------


def _places(found: Fitted, screen: Screen) -> list[str]:
    lines: list[str] = []
    for place in found.places:
        count = f"{len(place.indexes)} x " if len(place.indexes) > 1 else ""
        held = f", {_size(place.held)} of it held by others" if place.held else ""
        memory = _band(*place.memory)
        text = f"{count}{visible(place.name)}: {memory}{held}"
        said = f"{place.verdict}{_left(place)}" if found.minimum is not None else "undecided"
        lines += _marked(screen, place.verdict if found.minimum is not None else "undecided", text, said)
    return lines


def _left(place: Place) -> str:
    if place.verdict == "fits":
        return f", {_size(place.room[0] - place.needs[1])} to spare"
    if place.verdict == "does not fit":
        return f", {_size(place.needs[0] - place.room[1])} short"
    return ""


def _marked(screen: Screen, verdict: str, text: str, said: str) -> list[str]:
    mark = screen.mark(MARKS[verdict])
    first, *rest = screen.ends(text, said, 2 + (1 if screen.ascii else 0))
    return [f"{mark} {first}", *("  " + more for more in rest)]


TITLES = {"fits": "GPUs that would do", "undecided": "on the edge", "does not fit": "too small"}


def _gpus(found: Fitted, screen: Screen, verbose: bool) -> list[str]:
    """Catalogue GPUs by size: fitting ones smallest first, borderline ones, then the largest that are too small."""
    if not found.gpus or found.minimum is None:
        return []
    lines: list[str] = []
    for verdict, title in TITLES.items():
        rows = _by_size([place for place in found.gpus if place.verdict == verdict])
        if verdict == "does not fit":
            rows = rows[::-1]
        few = rows if verbose else rows[: 6 if verdict == "fits" else 2]
        lines += [screen.paint(title, "bold")] if few else []
        for size, names in few:
            shown = names if verbose else names[:5]
            more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
            lines += screen.paragraph(f"{size:>3} GB: {', '.join(shown)}{more}", 2, 8)
        rest = len(rows) - len(few)
        lines += screen.paragraph(f"and {rest} sizes more: -v lists them", 2) if rest else []
    return lines


def _by_size(places: Sequence[Place]) -> list[tuple[int, list[str]]]:
    """GPU names by nominal size, each name once."""
    sizes: dict[int, dict[str, None]] = {}
    for place in places:
        name = place.name
        for word in ("NVIDIA ", "Tesla ", "GeForce "):
            name = name.replace(word, "")
        sizes.setdefault(round(place.memory[1] / GIB + 0.1), {})[visible(name)] = None
    return [(size, list(names)) for size, names in sorted(sizes.items())]


# -- proposals and verdict ------------------------------------------------------------------------------------


def _proposals(proposals: Sequence[Proposal], screen: Screen, verbose: bool) -> list[str]:
    title = screen.paragraph("what would make it fit, the least change first") if proposals else []
    lines = [screen.paint(text, "bold") for text in title]
    for number, one in enumerate(proposals, 1):
        needs = _size(one.minimum + one.peak_device - one.peak_reserved)
        first, *rest = screen.ends(visible(one.says), needs, 5)
        lines += [f"  {number}  {first}", *("     " + text for text in rest)]
        lines += screen.paragraph(f"costs: {visible(one.costs)}", 5, 7)
        if number == 1 or verbose:
            lines += ["     " + screen.cut(visible(text), screen.width - 5) for text in one.settings]
            lines += [
                screen.paint(text, "dim")
                for text in screen.paragraph("$ " + " ".join(command(one.run)), 5, 4)
            ]
    return lines


def _notes(found: Fitted, screen: Screen) -> list[str]:
    lines: list[str] = []
    for text in found.unmodelled:
        lines += screen.led("not counted:", visible(text), "warning")
    for text in found.lessened:
        if text not in found.unmodelled:
            lines += screen.led("takes less:", visible(text), "warning")
    for text in found.notes:
        lines += screen.paragraph(f"note: {visible(text)}", 0, 6)
    return lines


def _most(largest: Largest) -> str:
    name = largest.field.replace("_", "-")
    if not largest.value:
        return f"no {name} fits"
    beyond = f"; {largest.fails} does not" if largest.fails else ""
    return f"the largest {name} that fits is {largest.value}{beyond}"


def _verdict(found: Fitted, screen: Screen) -> list[str]:
    return screen.led(f"{found.verdict}:", visible(_because(found)), MARKS[found.verdict])


def _because(found: Fitted) -> str:
    if found.why and found.minimum is None:
        return found.why
    if found.largest is not None:
        return _most(found.largest)
    need = _band(*((found.minimum or 0) + extra for extra in found.overhead))
    if not found.places:
        fitting = [place for place in found.gpus if place.verdict == "fits"]
        least = (
            f"the smallest GPU that holds it is {fitting[0].name}"
            if fitting
            else "no GPU of the catalogue has that"
        )
        return f"{need} needed; {least}" + (f"; {found.why}" if found.why else "")
    if (found.unmodelled or found.lessened) and found.verdict == "undecided":
        return f"{need} by what is counted, and not everything is"
    if found.verdict == "undecided":
        return f"{need} needed, and inside what such a GPU may have"
    if found.verdict == "does not fit" and not found.proposals:
        return f"{need} needed, and no single set-up that was tried brings it under"
    return f"{need} needed"
