"""The screens of ``gpuready run``: preflight, start plan, live output and post-mortem."""

from __future__ import annotations

from gpuready.render.escape import command, visible
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

COLOURS = ("36", "33", "32", "35", "34", "31", "96", "93", "92", "95", "94", "91")
SHOWN = 12
"""Last lines shown of the first failing rank."""
_SIGNALS = {
    1: "HUP",
    2: "INT",
    3: "QUIT",
    4: "ILL",
    6: "ABRT",
    7: "BUS",
    8: "FPE",
    9: "KILL",
    11: "SEGV",
    13: "PIPE",
    14: "ALRM",
    15: "TERM",
    24: "XCPU",
    25: "XFSZ",
}


def signal_name(number: int) -> str:
    return f"SIG{_SIGNALS[number]}" if number in _SIGNALS else f"signal {number}"


# -- live output ------------------------------------------------------------------------------------------


def line(rank: int, text: str, colour: bool) -> str:
    """One output line of a rank with its tag, which torch may have added already."""
    tag = f"[rank{rank}]:"
    shown = text.rsplit("\r", 1)[-1] if "\r" in text.rstrip("\r") else text.rstrip("\r")
    shown = visible(_untagged(shown, rank).replace("\t", "    "))
    return f"\x1b[{COLOURS[rank % len(COLOURS)]}m{tag}\x1b[0m {shown}\n" if colour else f"{tag} {shown}\n"


def _untagged(text: str, rank: int) -> str:
    """Remove the ``[rank0]:`` tag that torch writes before traceback lines."""
    tag = f"[rank{rank}]: "
    return text[len(tag) :] if text.startswith(tag) else text.removeprefix(tag.rstrip())


def note(said: Any) -> list[str]:
    """A note during the run: what was detected, how certain, the fix, and the innermost frames."""
    lead = "gpuready:" if said.sure else "gpuready: it seems that"
    lines = [f"{lead} {said.says}" + (f" [{said.code}]" if said.code else "")]
    lines += [f"        fix: {said.fix}"] if said.fix else []
    lines += [f"        {text.strip()}" for text in innermost(said.stack)]
    return lines


def innermost(stack: Sequence[str], most: int = 4) -> list[str]:
    """The innermost frames of the main thread, which faulthandler prints last."""
    frames: list[str] = []
    for text in stack:
        if text.startswith(("Thread 0x", "Current thread 0x")):
            frames = []
        elif text.startswith("  File "):
            frames.append(text)
    return frames[:most]


# -- preflight --------------------------------------------------------------------------------------------


def sights(found: Iterable[Any], screen: Screen | None = None) -> str:
    on = screen or Screen()
    lines: list[str] = []
    for sight in found:
        code = f" [{sight.code}]" if sight.code and sight.severity != "ok" else ""
        lines += _beside(sight.what, visible(sight.says) + code, 16, on, "bold", sight.severity)
        if sight.severity != "ok" and sight.fix:
            lines += _beside(f"{'fix':>12}", visible(sight.fix), 16, on)
    return "\n".join(lines) + "\n"


def _beside(label: str, text: str, at: int, on: Screen, role: str = "dim", mark: str = "") -> list[str]:
    """Text in the column ``at`` behind a label; a mark goes before the label."""
    first, *rest = on.wrap(text, on.width - at)
    before = f"  {on.mark(mark)} " if mark else "  "
    used = (2 + len(_MARKS_WIDE if on.ascii else "x") + 1) if mark else 2
    head = before + on.paint(label, role) + " " * max(at - used - len(label), 1)
    return [head + first, *(" " * at + more for more in rest)]


_MARKS_WIDE = "ok"
"""As wide as a mark is on an ASCII-only screen."""


def refusal(found: Iterable[Any], screen: Screen | None = None) -> str:
    on = screen or Screen()
    rows = list(found)
    errors = sum(sight.severity == "error" for sight in rows)
    end = f"not started: {errors} {'thing stands' if errors == 1 else 'things stand'} in the way; --no-preflight starts without looking"
    return sights(rows, on) + "\n" + "\n".join(on.paragraph(end)) + "\n"


def plan(told: Mapping[str, Any], screen: Screen | None = None) -> str:
    """What would start where, with every variable and its reason."""
    on, job = screen or Screen(), told["job"]
    nodes = f" on each of {job['nnodes']} nodes" if job["nnodes"] > 1 else ""
    lines = on.paragraph(f"{job['nproc']} ranks{nodes} by {job['engine']}; nothing is started", 0)
    lines += on.paragraph(f"logs in {visible(job['logs'])}", 2)
    lines += on.paragraph("$ " + " ".join(command(tuple(told["command"]))), 2, 2)
    rows = [(visible(v["name"]), visible(v["value"]), visible(v["why"])) for v in told["variables"]]
    if rows:
        lines += ["", "every rank:", *("  " + text for row in on.table(rows, 2) for text in row)]
    for seat in told["seats"]:
        words = " ".join(f"{name}={value}" for name, value in seat.items())
        lines += ["", f"rank {seat['RANK']}:", *on.paragraph(words, 2)]
    if not told["seats"]:
        lines += [
            "",
            *on.paragraph(
                f"RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set in each rank from what {job['engine']} gives it"
            ),
        ]
    text = "\n".join(lines) + "\n"
    return text + ("\n" + sights([_Row(s) for s in told["sights"]], on) if told["sights"] else "")


class _Row:
    def __init__(self, fields: Mapping[str, Any]):
        self.what, self.severity = fields["what"], fields["severity"]
        self.says, self.fix, self.code = fields["says"], fields.get("fix", ""), fields.get("code", "")


# -- post-mortem ------------------------------------------------------------------------------------------


def summary(outcome: Any) -> str:
    last = outcome.last
    job = outcome.job
    if outcome.verdict == "done":
        return f"done: {job.world} ranks, {outcome.seconds:.1f} s{_starts(outcome)}\n"
    first = ", ".join(f"rank {rank}" for rank in last.first)
    who = f", first {first}" if first else ""
    return f"{outcome.verdict}: exit {outcome.code}{who}, {outcome.seconds:.1f} s{_starts(outcome)}\n"


def _starts(outcome: Any) -> str:
    count = len(outcome.attempts)
    return f", {count} starts" if count > 1 else ""


def post_mortem(outcome: Any, screen: Screen | None = None) -> str:
    """Who failed first and how, its last output, the effect on other ranks, and where the logs are."""
    on, last = screen or Screen(), outcome.last
    blocks = [_verdict(outcome, on)]
    if last.first:
        end = last.end(last.first[0])
        blocks += [_words(end, on), _followed(last, on)]
    elif last.why == "engine":
        blocks += [[f"  {on.cut(visible(text), on.width - 2)}" for text in last.engine_said[-SHOWN:]]]
    if last.why in ("hung", "missing"):
        blocks += [_standing(last, on)]
    blocks += [_noted(last, on), _warned(last, on), _foot(outcome, on)]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _verdict(outcome: Any, on: Screen) -> list[str]:
    last = outcome.last
    if outcome.verdict == "done":
        return on.led(
            "done:", f"{outcome.job.world} ranks in {outcome.seconds:.1f} s{_starts(outcome)}", "ok"
        )
    if outcome.verdict == "interrupted":
        return on.led("interrupted:", f"all ranks were ended after {outcome.seconds:.1f} s", "warning")
    if not last.first:
        told = next((_coded(note) for note in reversed(last.notes) if note.kind == last.why), "")
        told = told or f"{outcome.job.engine} ended with {last.code} before any rank did"
        lines = on.led(f"{outcome.verdict}:", visible(told), "error")
    else:
        lines = _first(last, on)
    return lines + (on.led("no restart:", visible(outcome.says), "warning") if outcome.says else [])


def _coded(note: Any) -> str:
    return f"{note.says} [{note.code}]" if note.code else str(note.says)


def _first(last: Any, on: Screen) -> list[str]:
    ends = [last.end(rank) for rank in last.first]
    if len(ends) > 1:
        who = " and ".join(f"rank {e.rank} on {visible(e.host)}" for e in ends[:4]) + (
            " and more" if len(ends) > 4 else ""
        )
        return on.led("failed:", f"{who} failed together: which was first cannot be told", "error")
    end = ends[0]
    return on.led(
        "failed:",
        f"rank {end.rank} on {visible(end.host)} (pid {end.pid}) was the first: {how(end)} after {end.seconds:.1f} s",
        "error",
    )


def how(end: Any) -> str:
    if end.oom:
        return "the kernel killed it because memory ran out (SIGKILL, OOM killer)"
    if end.signal == 9:
        if end.oom is None:
            return "killed by SIGKILL: by somebody, or by the kernel for want of memory, which cannot be seen from here"
        return "somebody killed it with SIGKILL (the kernel tells of no lack of memory)"
    return f"ended by {signal_name(end.signal)}" if end.signal else f"exit {end.code}"


def _words(end: Any, on: Screen) -> list[str]:
    """Its last lines: from its last traceback on, where there is one."""
    kept = list(end.last)
    starts = [
        i
        for i, text in enumerate(kept)
        if "Traceback (most recent call last)" in text or "Fatal Python error" in text
    ]
    shown = kept[starts[-1] :] if starts else kept[-SHOWN:]
    if len(shown) > 2 * SHOWN:
        shown = [*shown[:SHOWN], on.ellipsis, *shown[-SHOWN:]]
    return [
        "  " + on.cut(visible(_untagged(text, end.rank).rsplit("\r", 1)[-1]), on.width - 2) for text in shown
    ]


def _followed(last: Any, on: Screen) -> list[str]:
    """What the failure did to the other ranks."""
    groups: dict[str, list[int]] = {}
    for end in last.ends:
        if end.rank not in last.first:
            groups.setdefault(_fate(end, last), []).append(end.rank)
    lines = []
    for i, (fate, ranks) in enumerate(groups.items()):
        who = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, sorted(ranks)[:16]))
        lines += _beside(f"{'then' if i == 0 else '':>4}", f"{who} {fate}", 8, on)
    return lines


def _fate(end: Any, last: Any) -> str:
    stood = innermost(last.stacks.get(end.rank, ()), 1)
    at = f", in {visible(stood[0].strip())}" if stood else ""
    if end.code == 0 or end.done:
        return "ended well"
    if end.stopped:
        said = _exception(end)
        return f"failed of it: {said}" if said else f"waited until gpuready ended the run{at}"
    return f"failed after it: {_exception(end) or how(end)}"


def _exception(end: Any) -> str:
    for text in reversed(end.last):
        plain = _untagged(text, end.rank).strip()
        name = plain.partition(":")[0]
        if name.replace(".", "_").isidentifier() and name.endswith(("Error", "Exception")):
            return visible(plain[:160])
    return ""


def _standing(last: Any, on: Screen) -> list[str]:
    lines = []
    for rank, stack in sorted(last.stacks.items())[:16]:
        lines += [
            f"  rank {rank}:",
            *(f"    {on.cut(visible(text.strip()), on.width - 4)}" for text in innermost(stack)),
        ]
    return lines


def _noted(last: Any, on: Screen) -> list[str]:
    lines = []
    for said in last.notes:
        if said.kind in (last.why, "engine"):
            continue
        lines += on.led("seen:", visible(f"after {said.seconds:.0f} s: {_coded(said)}"), "info")
        lines += _beside(f"{'fix':>4}", visible(said.fix), 8, on) if said.fix else []
    return lines


def _warned(last: Any, on: Screen) -> list[str]:
    """Ranks that had finished, then crashed while exiting."""
    ranks = [end.rank for end in last.ends if end.done and end.code]
    if not ranks:
        return []
    who = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks[:16]))
    end = next(end for end in last.ends if end.rank == ranks[0])
    return on.led(
        "warning:",
        f"{who} had finished and then crashed on the way out ({how(end)}): end the script with torch.distributed.destroy_process_group()",
        "warning",
    )


def _foot(outcome: Any, on: Screen) -> list[str]:
    if outcome.verdict == "done":
        return []
    return on.ends(f"logs in {on.cut(visible(outcome.job.logs), on.width - 20)}", f"exit {outcome.code}")
