"""The screens of ``gpuready run``: preflight, start plan, live output and post-mortem."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuready.model.last_error import NATIVE_STACK, last_error_line, names_error
from gpuready.model.run import CRASHED, LATER, LaunchAttempt, PreflightItem, RankEnd, RunNote, RunOutcome
from gpuready.model.visible_text import cut_middle, escape_unprintable
from gpuready.render.layout import PLAIN_SCREEN, Screen, join_sections
from gpuready.render.units import format_count

RANK_COLOURS = ("36", "33", "32", "35", "34", "31", "96", "93", "92", "95", "94", "91")
CAUSES = ("limit", "place")
"""Kinds of notes that state the cause."""
MAX_OUTPUT_LINES = 12
"""Last lines shown of the first failing rank."""
LIBRARY_PATHS = ("-packages/", "/lib/python3", "<frozen")
TRACEBACK, CRASH, WORDS_BEFORE_CRASH = "Traceback (most recent call last)", "Fatal Python error", 3
"""How the last words of a rank begin; what a library says before a crash stands in the lines before its stack."""
MAX_MESSAGE = 600
"""Letters of an exception's line, or of the last one, which are never cut at the width of the screen."""
_OWN_TO_A_RANK = re.compile(r"\[/[^\s\[\]]+:\d+\] | \[[\d.:a-f]+\]:\d+| This is typically caused by .*")
"""What differs in the same error of several ranks: ``[/pytorch/gloo/pair.cc:553] Connection closed by peer [10.0.0.1]:1941. This is ...``"""
_VISIBLE = re.compile(r"[^\s\x00-\x1f\x7f]")
MAX_CHAIN = 4
ORIGINAL, OF_PROCESS = "Original Traceback (most recent call last):", "-- Process "
"""Behind ``RuntimeError: Caught ValueError in DataLoader worker process 1.``; ``-- Process 2 terminated with the following error:``"""
CHAIN_WORDS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
"""How Python joins the tracebacks of a chain; so many exceptions of one are shown before the last."""


# -- live output ------------------------------------------------------------------------------------------


def format_rank_lines(rank: int, texts: Sequence[str], colour: bool, tagged: bool = True) -> str:
    """Output lines of a rank, each with its tag; plain ones all at once."""
    block = "".join(texts)
    if escape_unprintable(block) is not block or "[rank" in block:
        return "".join(_format_rank_line(rank, text, colour, tagged) for text in texts)
    tag = _rank_tag(rank, colour) if tagged else ""
    return tag + f"\n{tag}".join(texts) + "\n" if texts else ""


def _rank_tag(rank: int, colour: bool) -> str:
    tag = f"[rank{rank}]:"
    return f"\x1b[{RANK_COLOURS[rank % len(RANK_COLOURS)]}m{tag}\x1b[0m " if colour else f"{tag} "


def _format_rank_line(rank: int, text: str, colour: bool, tagged: bool) -> str:
    """One output line of a rank with its tag, which torch may have added already."""
    shown = text.rsplit("\r", 1)[-1] if "\r" in text.rstrip("\r") else text.rstrip("\r")
    shown = escape_unprintable(_strip_rank_tag(shown, rank).replace("\t", "    "))
    return f"{_rank_tag(rank, colour) if tagged else ''}{shown}\n"


def _strip_rank_tag(text: str, rank: int) -> str:
    """Remove the ``[rank0]:`` that torch writes before the lines of a traceback, once for each group that was made."""
    tag = f"[rank{rank}]:"
    while text.startswith(tag):
        text = text.removeprefix(tag).removeprefix(" ")
    return text


def format_run_note(run_note: RunNote) -> list[str]:
    """A note during the run: what was detected, how certain, the fix, and the innermost frames."""
    lead = "gpuready:" if run_note.sure else "gpuready: probably"
    lines = [f"{lead} {run_note.says}" + (f" [{run_note.code}]" if run_note.code else "")]
    lines += [f"        fix: {run_note.fix}"] if run_note.fix else []
    lines += [f"        {text.strip()}" for text in innermost_frames(run_note.stack)]
    return lines


def innermost_frames(stack: Sequence[str], max_frames: int = 4) -> list[str]:
    """The innermost frames of the main thread, which faulthandler prints last."""
    frames: list[str] = []
    for text in stack:
        if text.startswith(("Thread 0x", "Current thread 0x")):
            frames = []
        elif text.startswith("  File "):
            frames.append(text)
    return frames[:max_frames]


# -- preflight --------------------------------------------------------------------------------------------


def render_preflight(rows: Iterable[PreflightItem], screen: Screen = PLAIN_SCREEN) -> str:
    lines: list[str] = []
    shown = list(rows)
    for row, after in zip(shown, [*shown[1:], None], strict=True):
        code = f" [{row.code}]" if row.code and row.severity != "ok" else ""
        lines += _format_beside_label(row.what, row.says + code, 16, screen, "bold", row.severity)
        if row.severity != "ok" and row.fix and not (after and after.fix == row.fix):  # one fix of several: once
            if row.fix.startswith("gpuready "):
                lines += screen.format_command(tuple(shlex.split(row.fix)), 16)
            else:
                lines += _format_beside_label(f"{'fix':>12}", row.fix, 16, screen)
    return "\n".join(lines) + "\n"


def _format_beside_label(
    label: str, text: str, at: int, display: Screen, role: str = "dim", mark: str = ""
) -> list[str]:
    """Text in the column ``at`` behind a label; a mark goes before the label."""
    first, *rest = display.wrap_text(text, display.width - at)
    before = f"  {display.status_mark(mark)} " if mark else "  "
    used = 2 + (2 if display.ascii else 1) + 1 if mark else 2
    head = before + display.apply_style(label, role) + " " * max(at - used - len(label), 1)
    return [head + first, *(" " * at + more for more in rest)]


def render_run_refusal(items: Iterable[PreflightItem], screen: Screen = PLAIN_SCREEN) -> str:
    rows = list(items)
    problems = format_count(sum(item.severity == "error" for item in rows), "problem")
    end = f"not started: {problems}; --no-preflight starts without these checks"
    return render_preflight(rows, screen) + "\n" + "\n".join(screen.format_paragraph(end)) + "\n"


def render_run_plan(start_plan: Mapping[str, Any], screen: Screen = PLAIN_SCREEN) -> str:
    """What would start where, with every variable and its reason."""
    job = start_plan["job"]
    nodes = f" on each of {job['nnodes']} nodes" if job["nnodes"] > 1 else ""
    lines = screen.format_paragraph(
        f"{format_count(job['nproc'], 'rank')}{nodes} by {job['engine']}; dry run: nothing is started", 0
    )
    lines += screen.format_paragraph(f"logs in {job['logs']}", 2)
    lines += screen.format_command(tuple(start_plan["command"]), 2)
    rows = [(v["name"], v["value"], v["why"]) for v in start_plan["variables"]]
    sections = [lines, ["every rank:", *screen.indent_table(rows)] if rows else []]
    for rank_variables in start_plan["seats"]:
        words = " ".join(f"{name}={value}" for name, value in rank_variables.items())
        sections.append([f"rank {rank_variables['RANK']}:", *screen.format_paragraph(words, 2)])
    if not start_plan["seats"]:
        names = "RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        sections.append(screen.format_paragraph(f"{names} are set in each rank by {job['engine']}"))
    rows_before = [PreflightItem.from_json(row) for row in start_plan["sights"]]
    return join_sections(sections) + (f"\n{render_preflight(rows_before, screen)}" if rows_before else "")


# -- post-mortem ------------------------------------------------------------------------------------------


def format_outcome_line(outcome: RunOutcome) -> str:
    last = outcome.last
    if outcome.verdict == "done":
        return f"done: {_describe_ranks(outcome)}, {outcome.seconds:.1f} s{_start_count_suffix(outcome)}\n"
    first = ", ".join(f"rank {rank}" for rank in last.first)
    who = f", {first} failed first" if first else ""
    return f"{outcome.verdict}: exit {outcome.code}{who}, {outcome.seconds:.1f} s{_start_count_suffix(outcome)}\n"


def _describe_ranks(outcome: RunOutcome) -> str:
    """The ranks that this gpuready has started; under torchrun those of one node."""
    several = outcome.job.engine == "torchrun" and outcome.job.nnodes > 1
    return format_count(len(outcome.last.ends), "rank") + (f" on node {outcome.job.node_rank}" if several else "")


def _start_count_suffix(outcome: RunOutcome) -> str:
    count = len(outcome.attempts)
    return f", {count} starts" if count > 1 else ""


def render_post_mortem(outcome: RunOutcome, screen: Screen = PLAIN_SCREEN, explained: bool = True) -> str:
    """Who failed first and how, its last output, the effect on other ranks, and where the logs are; where the diagnosis does not
    explain it, that no cause is known, and what to look at.
    """
    last = outcome.last
    first = outcome.attempts[0].first_ends if any(note.kind == LATER for note in last.notes) else ()
    earlier = [note.says for attempt in outcome.attempts[:-1] for note in attempt.notes if note.kind == "restart"]
    blocks = [screen.lead_paragraphs("failed:" if first else "before:", earlier, "error" if first else "warning")]
    blocks += [_format_last_output(end, screen) for end in first[:1]]
    blocks.append(_format_outcome_verdict(outcome, screen))
    if last.first_ends:
        blocks += [_format_last_output(last.first_ends[0], screen, bool(last.decided)), _format_late_rank(last, screen)]
        blocks.append(_format_other_ranks(last, screen))
    elif last.why == "engine":
        blocks.append(_truncate_lines(last.engine_said[-MAX_OUTPUT_LINES:], screen))
    if last.why in ("hung", "missing"):
        blocks.append(_format_rank_stacks(last, screen))
    blocks += [_format_run_notes(last, screen), _format_exit_warnings(last, screen)]
    if last.first_ends and not explained and not _is_stated(last):
        log = f"{outcome.job.logs}/rank-{last.first[0]}.log"
        blocks.append(
            screen.lead_paragraph("no known cause:", f"look at what stands before these lines in {log}", "info")
        )
    return join_sections([*blocks, _format_run_footer(outcome, screen)])


def _is_stated(last: LaunchAttempt) -> bool:
    """Whether the verdict, an exception, the stack of a crash or a limit says already what happened."""
    end = last.first_ends[0]
    told = last.decided or end.left_early or end.stopped or end.lost or _find_exception_line(end)
    return bool(told) or any(CRASH in text for text in end.last) or any(note.kind in CAUSES for note in last.notes)


def _truncate_lines(texts: Iterable[str], display: Screen, indent: int = 2) -> list[str]:
    return [" " * indent + display.truncate_text(text, display.width - indent) for text in texts]


def _format_outcome_verdict(outcome: RunOutcome, display: Screen) -> list[str]:
    last = outcome.last
    if outcome.verdict == "done":
        done = f"{_describe_ranks(outcome)} in {outcome.seconds:.1f} s{_start_count_suffix(outcome)}"
        return display.lead_paragraph("done:", done, "ok")
    if outcome.verdict == "interrupted":
        return display.lead_paragraph("interrupted:", f"all ranks were ended after {outcome.seconds:.1f} s", "warning")
    if not last.first_ends:
        message = next((_note_with_code(note) for note in reversed(last.notes) if note.kind == last.why), "")
        message = message or f"{outcome.job.engine} ended with {last.code} before any rank did"
        lines = display.lead_paragraph(f"{outcome.verdict}:", message, "error")
    else:
        lines = _format_first_failure(last, display)
    return lines + (display.lead_paragraph("no restart:", outcome.says, "warning") if outcome.says else [])


def _note_with_code(note: RunNote) -> str:
    return f"{note.says} [{note.code}]" if note.code else str(note.says)


def _format_first_failure(last: LaunchAttempt, display: Screen) -> list[str]:
    ends = last.first_ends
    if len(ends) > 1 and all(end.lost for end in ends):
        who = f"{_name_ranks([end.rank for end in ends])} on {', '.join(sorted({end.host for end in ends}))}"
        return display.lead_paragraph("failed:", f"{who} failed first: {ends[0].how}", "error")
    if len(ends) > 1:
        who = " and ".join(f"rank {e.rank} on {e.host}" for e in ends[:4]) + (" and more" if len(ends) > 4 else "")
        why = last.decided or "the first is not known"
        if "--check-collectives" in why:
            return display.lead_paragraph("failed:", f"it is not known which rank: {why}", "error")
        return display.lead_paragraph("failed:", f"{who} failed at the same time: {why}", "error")
    end = ends[0]
    if end.lost:
        where = f" on {end.host}" if end.host else ""
        return display.lead_paragraph("failed:", f"rank {end.rank}{where} failed first: {end.how}", "error")
    how = f"failed first: {end.how} after {end.seconds:.1f} s"
    if last.decided:
        how = f"differs from the others: {last.decided}"
    elif last.why == CRASHED:
        how = f"crashed while exiting, after its script had ended well: {end.how} after {end.seconds:.1f} s"
    elif end.stopped and not _find_exception_line(end):
        how = f"did not come: the others gave up waiting for it after {end.seconds:.1f} s"
        how += f"; it was {end.stood}" if end.stood else ""
    elif end.stopped and end.signal:  # by gpuready: its own error is the reason
        how = f"failed first: {_find_exception_line(end)}; gpuready ended it after {end.seconds:.1f} s"
    elif end.left_early:
        how = f"left first: exit {end.code} after {end.seconds:.1f} s, while the others still needed it"
    return display.lead_paragraph("failed:", f"rank {end.rank} on {end.host} (pid {end.pid}) {how}", "error")


def _format_last_output(end: RankEnd, display: Screen, voted: bool = False) -> list[str]:
    """Its last lines: from its last traceback on, where there is one; what stands before it, where others have named it."""
    lines = [_strip_rank_tag(text, end.rank).rstrip("\r").rsplit("\r", 1)[-1] for text in end.last]
    lines = [text for text in lines if _VISIBLE.search(text) and not text.startswith(NATIVE_STACK)]
    starts = [i for i, text in enumerate(lines) if any(opener in text for opener in (TRACEBACK, CRASH))]
    start = starts[-1] if starts else max(0, len(lines) - MAX_OUTPUT_LINES)
    if starts and start and (lines[start] == ORIGINAL or lines[start - 1].startswith(OF_PROCESS)):
        start -= 1  # it says whose
    chain = _list_thread_errors(lines[:start]) + _chained_exceptions(lines[:start]) if starts else []
    spoke_first = voted or (starts and (CRASH in lines[start] or "CalledProcessError" in lines[-1]))
    if starts and spoke_first:  # a library, a program, or the rank itself
        start = max(0, start - WORDS_BEFORE_CRASH)
    shown = lines[start:]
    if len(shown) > 2 * MAX_OUTPUT_LINES:
        shown = [*shown[:MAX_OUTPUT_LINES], display.ellipsis, *shown[-MAX_OUTPUT_LINES:]]
    return _fit_lines([*chain, *shown], display)


def _fit_lines(texts: Iterable[str], display: Screen) -> list[str]:
    """Truncate lines, but for those of exceptions, and the last one, which are wrapped."""
    fitted, lines = [], list(texts)
    for at, text in enumerate(lines):
        whole = names_error(text) or (at == len(lines) - 1 and not text.startswith((" ", "Extension modules")))
        wrapped = display.format_paragraph(cut_middle(text, MAX_MESSAGE), 2, 2) if whole else []
        fitted += wrapped or _truncate_lines([text], display)
    return fitted


def _format_late_rank(last: LaunchAttempt, display: Screen) -> list[str]:
    """Where the rank stood that the others waited for in vain."""
    end = last.first_ends[0]
    frames = innermost_frames(last.stacks.get(end.rank, ()), 40) if end.stopped else []
    own = [text for text in frames[3:] if not any(part in text for part in LIBRARY_PATHS)]
    return _truncate_lines((text.strip() for text in [*frames[:3], *own[:1]]), display)


def _list_thread_errors(lines: Sequence[str]) -> list[str]:
    """``Exception in thread Thread-1 (read):`` and what it was: the thread has ended by it, and the rank later."""
    at = next((i for i in reversed(range(len(lines))) if lines[i].startswith("Exception in thread ")), len(lines))
    end = next((i for i in range(at, len(lines)) if names_error(lines[i])), -MAX_OUTPUT_LINES)
    return [lines[at], lines[end]] if len(lines) - end <= WORDS_BEFORE_CRASH else []  # else it went on


def _chained_exceptions(lines: Sequence[str]) -> list[str]:
    """The exceptions before the last one of a chain, each with Python's words for what follows from it; innermost cause first."""
    links = [i for i, text in enumerate(lines) if text.strip() in CHAIN_WORDS]
    if not links or any(text.strip() for text in lines[links[-1] + 1 :]):
        return []  # the last traceback is not part of a chain
    shown = []
    for i in links[-MAX_CHAIN:]:
        found = next((text for text in reversed(lines[:i]) if text.strip()), "")
        shown += [found, lines[i]] if found else []
    return shown


def _format_other_ranks(last: LaunchAttempt, display: Screen) -> list[str]:
    """What the failure did to the other ranks."""
    groups: dict[str, list[int]] = {}
    for end in last.ends:
        if end.rank not in last.first:
            groups.setdefault(_describe_rank_fate(end, last), []).append(end.rank)
    lines = []
    for i, (fate, ranks) in enumerate(groups.items()):
        label = f"{'then' if i == 0 else '':>4}"
        lines += _format_beside_label(label, f"{_name_ranks(sorted(ranks))} {fate}", 8, display)
    return lines


def _name_ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks[:16]))


def _describe_rank_fate(end: RankEnd, last: LaunchAttempt) -> str:
    frames = innermost_frames(last.stacks.get(end.rank, ()), 1)
    at = f", in {frames[0].strip()}" if frames else ""
    if not end.failed:
        return "finished"
    if end.lost and not end.stopped:
        return "no longer heard of"
    if end.stopped:
        exception_text = _find_exception_line(end)
        return (
            f"failed because of it: {exception_text}" if exception_text else f"waited until gpuready ended the run{at}"
        )
    return f"failed afterwards: {_find_exception_line(end) or end.how}"


def _find_exception_line(end: RankEnd) -> str:
    return cut_middle(_OWN_TO_A_RANK.sub("", last_error_line(end.last)), 160)


def _format_rank_stacks(last: LaunchAttempt, display: Screen) -> list[str]:
    lines = []
    for rank, stack in sorted(last.stacks.items())[:16]:
        frames = (text.strip() for text in innermost_frames(stack))
        lines += [f"  rank {rank}:", *_truncate_lines(frames, display, 4)]
    return lines


def _format_run_notes(last: LaunchAttempt, display: Screen) -> list[str]:
    lines = []
    for run_note in last.notes:
        if run_note.kind in (last.why, "engine"):
            continue
        seen = f"after {run_note.seconds:.0f} s: {_note_with_code(run_note)}"
        is_cause = run_note.kind in CAUSES
        lines += (
            display.lead_paragraph("cause:", run_note.says, "error")
            if is_cause
            else display.lead_paragraph("note:", seen, "info")
        )
        lines += _format_beside_label(f"{'fix':>4}", run_note.fix, 8, display) if run_note.fix else []
    return lines


def _format_exit_warnings(last: LaunchAttempt, display: Screen) -> list[str]:
    """Other ranks that had finished, then crashed while exiting."""
    ends = [end for end in last.ends if end.done and end.signal and not end.stopped and end.rank not in last.first]
    if not ends:
        return []
    crash = f"had finished and then crashed while exiting ({ends[0].how}): {_words_before_crash(ends[0])}"
    advice = "end the script with torch.distributed.destroy_process_group()"
    ranks = _name_ranks([end.rank for end in ends])
    says = f"{ranks} {crash}" + (f"; {advice}" if all(end.left_group for end in ends) else "")
    return display.lead_paragraph("warning:", says, "warning")


def _words_before_crash(end: RankEnd) -> str:
    """The last line that it wrote before the stack of its crash: ``free(): double free detected in tcache 2``"""
    at = next((i for i, text in enumerate(end.last) if CRASH in text), len(end.last))
    return next((cut_middle(text.strip(), 160) for text in reversed(end.last[:at]) if text.strip()), "it said nothing")


def _format_run_footer(outcome: RunOutcome, display: Screen) -> list[str]:
    if outcome.verdict == "done":
        return []
    logs = display.truncate_text(outcome.job.logs, display.width - 20)
    return display.align_ends(f"logs in {logs}", f"exit {outcome.code}")
