"""``gpuready diagnose``: read logs, judge them, and say how to fix the cause. The launcher calls ``diagnose_logs`` too."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from gpuready import catalog, system
from gpuready.catalog import causes, symbols
from gpuready.diagnose import judge
from gpuready.logs import flight_recorder, log_paths
from gpuready.logs.derived_lines import derive_lines
from gpuready.logs.log_patterns import pattern_text
from gpuready.logs.log_summary import LogSource, LogSummary, read_logs
from gpuready.logs.pattern_index import PatternIndex
from gpuready.model.diagnosis import Diagnosis, LogEvidence
from gpuready.system.log_streams import (
    LogStream,
    ReadBudget,
    follow_growing_file,
    non_log_reason,
    open_log_streams,
    unreadable_reason,
)
from gpuready.system.redaction.lines import redact_lines
from gpuready.workflow import diagnosis_fixes, refusal, run_record
from gpuready.workflow.diagnosis_fixes import read_log_machine
from gpuready.workflow.refusal import Refused
from gpuready.workflow.second_opinion import ask_second_opinion


@cache
def load_pattern_table() -> PatternIndex:
    """Return every rule's patterns and the known consequences, as compiled in the catalogue."""
    return PatternIndex(catalog.load_catalog("patterns"))


SERVER_SECONDS = 8.0


def limit_reading_time() -> None:
    """Bound the processor time of every diagnosis of this process, which is a server's: others wait for it."""
    ReadBudget.most_seconds = SERVER_SECONDS


def diagnose_logs(
    logs: Sequence[str | Iterable[bytes]],
    *,
    framework: str | None = None,
    on: str | None = None,
    look: bool = True,
    ask: Sequence[str] = (),
    show: Callable[[str], None] = lambda _: None,
    show_progress: Callable[..., None] = lambda *_: None,
    read_as: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Find out why a run died. A log is a path (a file, a folder, - for stdin), or its bytes in pieces.

    ``on`` is the recording of the machine that it ran on. With ``look``, this machine is probed where the log is its own.
    ``read_as`` has causes that cannot be, each with that which its words then tell. ``ask`` is a program of the user's that is asked where no cause is found; ``show`` gets what it is asked, before.
    """
    budget = ReadBudget()
    sources, dumps, streams, notes = _open_logs(logs, budget)
    sources = _count_bytes(sources, streams, show_progress)
    if dumps:
        sources.append(LogSource(f"{len(dumps)} dumps of flight recorders", ()))
    try:
        summary = read_logs(
            sources,
            load_pattern_table(),
            lambda summary_so_far: derive_lines(
                summary_so_far, flight_recorder.find_standstills(dumps), len(sources) - 1
            ),
            budget.is_spent,
        )
    except system.AccessError as error:
        raise Refused(f"cannot read the log: {error}") from None
    cut = [f"{stream.name}: {stream.cut}" for stream in streams if stream.cut]
    if budget.is_over:
        read = sum(size for _, size in summary.totals) / (1 << 20)
        cut.append(
            f"read {read:.1f} MiB in {budget.seconds:.0f} s of processor time; the rest was not looked at: name the log of one rank, or its end"
        )
    diagnosis = diagnose_summary(summary, framework, on, look, (*notes, *cut), ask, show, read_as)
    empty = "" if dumps or any(lines for lines, _ in summary.totals) else "the log is empty: nothing was read"
    unread = empty or ("a log was not read to its end: the rest may show a failure" if cut else "")
    if unread and (diagnosis.verdict == "healthy" or (diagnosis.verdict == "unknown" and empty)):
        return diagnosis.replace(verdict="unknown", cause="", confidence=0.0, says=unread)
    return diagnosis


def diagnose_summary(
    summary: LogSummary,
    framework: str | None = None,
    on: str | None = None,
    look: bool = True,
    notes: Sequence[str] = (),
    ask: Sequence[str] = (),
    show: Callable[[str], None] = lambda _: None,
    read_as: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Judge a log summary, and add the cause's text and its fixes."""
    meanings = {pattern_text(row): row["means"] for row in causes.list_consequences()}
    other = read_as or {}
    diagnosis = judge(
        summary,
        lambda code, slug: causes.find_cause_for_code(code, other.get(slug, slug)),
        meanings,
        symbols.find_symbol_spans,
        causes.find_cause_for_pair,
    )
    if ask and diagnosis.verdict == "unknown" and summary.lines:
        diagnosis = ask_second_opinion(diagnosis, summary, ask, show)
    diagnosis = diagnosis.replace(
        notes=(*diagnosis.notes, *notes),
        framework=framework or diagnosis_fixes.detect_framework(summary),
        command=diagnosis.command or next(filter(None, summary.commands), ""),
    )
    return _redact_diagnosis(diagnosis_fixes.add_fixes(diagnosis, summary, on, look))


def _redact_diagnosis(diagnosis: Diagnosis) -> Diagnosis:
    """Remove secrets that a log may contain; only the judging code has read them."""
    redact = system.redact_text
    evidence = tuple(_redact_evidence(e) for e in diagnosis.evidence)
    return diagnosis.replace(
        says=redact(diagnosis.says),
        evidence=evidence,
        exceptions=tuple(e.replace(message=redact(e.message)) for e in diagnosis.exceptions),
        command=redact(diagnosis.command),
        captures={name: redact(value) for name, value in diagnosis.captures.items()},
        consequences=tuple(c.replace(says=redact(c.says)) for c in diagnosis.consequences),
        alternatives=tuple(
            a.replace(evidence=tuple(e.replace(text=redact(e.text), before=(), after=()) for e in a.evidence))
            for a in diagnosis.alternatives
        ),
    )


def _redact_evidence(evidence: LogEvidence) -> LogEvidence:
    """Redact the lines of one evidence together: a key may continue over several lines."""
    lines = redact_lines((*evidence.before, evidence.text, *evidence.after))
    count = len(evidence.before)
    return evidence.replace(before=lines[:count], text=lines[count], after=lines[count + 1 :])


_LARGE_BYTES = 32 << 20
"""Logs below this size are read before a person looks for a display."""


def _count_bytes(
    sources: list[LogSource], streams: Sequence[LogStream], show_progress: Callable[..., None]
) -> list[LogSource]:
    """Return the same logs; large ones report how much of them is read, as they are stored."""
    total = sum(stream.size for stream in streams)
    if total < _LARGE_BYTES:
        return sources
    read = 0

    def count_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal read
        for chunk in chunks:
            yield chunk
            read += len(chunk)
            show_progress("reading logs (MiB)", min(read, total) >> 20, total >> 20)

    return [source.replace(chunks=count_chunks(source.chunks)) for source in sources]


# -- reading logs -----------------------------------------------------------------------------------------


def _open_logs(
    logs: Sequence[str | Iterable[bytes]], budget: ReadBudget
) -> tuple[list[LogSource], list[flight_recorder.RecorderDump], list[LogStream], list[str]]:
    sources: list[LogSource] = []
    dumps: list[flight_recorder.RecorderDump] = []
    streams: list[LogStream] = []
    notes: list[str] = []
    for number, log in enumerate(logs):
        if not isinstance(log, str):
            sources.append(LogSource(f"log {number + 1}" if len(logs) > 1 else "log", log))
            continue
        log_streams = _list_streams(log, budget)
        folder = len(log_streams) != 1 or log_streams[0].path != log
        for stream in log_streams:
            _classify_stream(stream, folder and log != "-", sources, dumps, streams, notes)
    if logs and not sources and not dumps:
        raise Refused(
            f"there is no log in {', '.join(str(log) for log in logs)}: name a file, a folder of logs, or - for stdin"
        )
    return sources, dumps, streams, notes


def _list_streams(path: str, budget: ReadBudget) -> list[LogStream]:
    try:
        return open_log_streams(path, refusal.fence_of_named_files(), budget)
    except system.AccessError as error:
        raise Refused(f"cannot read {path}: {error}") from None


def _classify_stream(
    stream: LogStream,
    in_folder: bool,
    sources: list[LogSource],
    dumps: list[flight_recorder.RecorderDump],
    streams: list[LogStream],
    notes: list[str],
) -> None:
    """Add a stream as a dump or a log, or skip it with a note."""
    try:
        head = stream.read_head()
    except (OSError, system.AccessError):
        notes.append(f"{stream.name} cannot be read")
        return
    if (
        in_folder
        and os.path.basename(stream.name) == run_record.NAME
        and (record := run_record.describe_file(stream.path or ""))
    ):
        notes.append(record)
    elif flight_recorder.is_recorder_dump(head):
        _read_dump(stream, dumps, notes)
    elif (why := unreadable_reason(head)) or (not in_folder and (why := non_log_reason(head))):
        if not in_folder:
            raise Refused(f"cannot read {stream.name}: {why}")
        notes.append(f"{stream.name} is left out: {why}")
    elif not in_folder or (head and log_paths.may_be_log(stream.name, head)):
        sources.append(LogSource(stream.name, stream, log_paths.rank_from_path(stream.name) if in_folder else None))
        streams.append(stream)


def _read_dump(stream: LogStream, dumps: list[flight_recorder.RecorderDump], notes: list[str]) -> None:
    data = bytearray()
    for piece in stream:
        data += piece
        if len(data) > 256 << 20:
            notes.append(f"{stream.name} is larger than 256 MiB, too large for a dump")
            return
    try:
        dumps.append(flight_recorder.parse_recorder_dump(bytes(data), log_paths.rank_from_path(stream.name)))
    except (ValueError, RecursionError) as error:
        notes.append(f"{stream.name} is not read as a flight recorder's dump: {error}")


# -- a log that is still being written ------------------------------------------------------------------------

FOLLOW_BYTES = 8 << 20
"""Bytes of a live log that are judged: its end."""

QUIET_CHECKS = 10
"""Polls without new text, half a second apart, before the end of a log is accepted."""

_DONE_MARKERS = ("'train_runtime':", "Training completed", "Training finished", "training done")


def follow_log(
    path: str, *, framework: str | None = None, on: str | None = None, patience: float | None = None
) -> Iterator[Diagnosis]:
    """Yield a Diagnosis whenever the cause becomes known or changes, judged by the last 8 MiB.

    ``on`` is the recording of the machine that it runs on, or the name of its GPU. End when the log shows the end of the run
    (the launcher's line, or that training is done) and nothing follows, or after ``patience`` seconds without new text.
    """
    read_log_machine(on)  # refuse it now, and not when the run fails
    tail, has_new_text, last, lost_lines, is_over, idle = b"", False, None, 0, False, 0
    try:
        for piece in follow_growing_file(path, patience=patience):
            tail, has_new_text = tail + piece, has_new_text or bool(piece)
            if len(tail) > FOLLOW_BYTES:
                cut = (
                    tail.index(b"\n", len(tail) - FOLLOW_BYTES) + 1
                    if b"\n" in tail[-FOLLOW_BYTES:]
                    else len(tail) - FOLLOW_BYTES
                )
                lost_lines, tail = lost_lines + tail.count(b"\n", 0, cut), tail[cut:]
            idle = 0 if piece else idle + 1
            if is_over and idle > QUIET_CHECKS:
                return
            if piece or not has_new_text:
                continue  # judge when it pauses, not at every line
            has_new_text = False
            diagnosis, is_over = _diagnose_tail(path, tail, lost_lines, framework, on)
            if diagnosis.verdict == "cause" and (diagnosis.cause, diagnosis.rank) != last:
                last = diagnosis.cause, diagnosis.rank
                yield diagnosis
    except system.AccessError as error:
        raise Refused(f"cannot follow {path}: {error}") from None


def _diagnose_tail(
    path: str, tail: bytes, lost_lines: int, framework: str | None, on: str | None
) -> tuple[Diagnosis, bool]:
    """Diagnose the log so far, and tell whether it shows that the run is over."""
    summary = read_logs([LogSource(path, [tail])], load_pattern_table(), derive_lines, ReadBudget().is_spent)
    diagnosis = diagnose_summary(summary, framework, on, look=False)
    if lost_lines:
        diagnosis = diagnosis.replace(evidence=tuple(e.replace(line=e.line + lost_lines) for e in diagnosis.evidence))
    last_lines = [line.text for line in summary.lines[-40:]]
    is_done = any(words in text for text in last_lines for words in _DONE_MARKERS)
    return diagnosis, is_done or (diagnosis.verdict != "healthy" and any(end.code for end in summary.exits))
