"""Summarise logs: lines, exceptions, process exits, and pattern matches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from time import thread_time

from gpuready.logs.excerpt import READING_SHARE, Row, extract_excerpt
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.literal_search import LiteralSearch
from gpuready.logs.log_lines import LogLine
from gpuready.logs.log_patterns import LogPattern, lower_ascii
from gpuready.logs.log_prefixes import parse_lines
from gpuready.logs.logged_exception import LoggedException
from gpuready.logs.pattern_index import PatternIndex
from gpuready.logs.process_exits import ProcessExit, find_exits
from gpuready.logs.run_activity import states_error
from gpuready.logs.runs import keep_last_run
from gpuready.logs.stated_errors import state_errors
from gpuready.logs.tracebacks import find_tracebacks, is_cut_line
from gpuready.model.record import Record

NEAR_LINES = 8
"""Lines of the same process before and after a line that count as its context."""

_NOT_RAY = (
    "EngineCore", "Worker_", "VllmWorker", "APIServer", "ApiServer", "DPCoordinator", "raylet", "derived", "head",
    "worker",
)  # fmt: skip

LINES_PER_SCAN, MAX_WHOLE, MIN_WRAPPED = 200, 2000, 40
"""Lines searched at once, characters of a message of several lines, and the least width at which a terminal wraps."""

MATCHING_SHARE, SAMPLE_ROWS, COST_OF_PARSED = 0.8, 200, 6
"""Share of the time that is over when a log is matched, rows by which the cost of all is estimated, and how many times as much
as to parse a row it costs to judge it."""


class LogSource(Record):
    """Where bytes come from: a display name and the bytes."""

    name: str
    chunks: Iterable[bytes]
    rank: int | None = None  # from its path: attempt_0/3/stderr.log
    host: str = ""


class PatternMatch(Record):
    """A pattern that matched: its captures, the line, and the exception it is part of."""

    sign: LogPattern
    captures: dict[str, str]
    index: int  # of the line in the summary
    line: LogLine
    failure: int | None = None


class LogSummary(Record):
    """Everything the diagnosis gets to know of some logs."""

    names: tuple[str, ...] = ()
    totals: tuple[tuple[int, int], ...] = ()  # lines and bytes of each source
    lines: tuple[LogLine, ...] = ()
    failures: tuple[LoggedException, ...] = ()
    exits: tuple[ProcessExit, ...] = ()
    matches: tuple[PatternMatch, ...] = ()
    aftermath: tuple[PatternMatch, ...] = ()
    heard: frozenset[str] = frozenset()  # texts of also and unless that occur anywhere
    commands: tuple[str, ...] = ()  # by which the last run of each source was started


def read_logs(
    sources: Sequence[LogSource],
    wording: PatternIndex,
    derive: Callable[[Sequence[LogLine]], list[LogLine]] | None = None,
    is_spent: Callable[..., bool] = lambda *_: False,
) -> LogSummary:
    """Read every source once and summarise them together. Where a share of the time is spent, what is left is not looked at."""
    log_lines: list[LogLine] = []
    totals, commands, excerpts = [], [], []
    for source in sources:
        chunks = () if is_spent(READING_SHARE) else source.chunks
        part = extract_excerpt(chunks, wording.search, wording.quotas, max(len(sources), 1), is_spent)
        totals.append((part.lines, part.bytes))
        excerpts.append(part.rows)
    excerpts = _drop_first_rows(excerpts, is_spent)
    for number, source in enumerate(sources):
        rows, excerpts[number] = excerpts[number], ()  # memory: the lines are kept, and not what they were made of
        last_run, command = keep_last_run(_lines_of_source(rows, number, source))
        del rows
        log_lines += last_run
        commands.append(command)
    log_lines = assign_ranks(log_lines)
    log_lines += derive(log_lines) if derive else []
    failures = find_tracebacks(log_lines)
    matches, present_texts = _find_matches(log_lines, failures, wording, is_spent)
    return LogSummary(
        tuple(source.name for source in sources), tuple(totals), tuple(log_lines), tuple(failures), tuple(find_exits(log_lines)),
        tuple(s for s in matches if s.sign.code),
        tuple(s for s in matches if not s.sign.code), present_texts, tuple(commands),
    )  # fmt: skip


def _drop_first_rows(excerpts: list[tuple[Row, ...]], is_spent: Callable[..., bool]) -> list[tuple[Row, ...]]:
    """Of every source the last rows, as many as there is time for: a sample of all tells what one costs."""
    rows = [row for excerpt in excerpts for row in excerpt]
    if len(rows) <= 4 * SAMPLE_ROWS:
        return excerpts
    sample, started = rows[:: len(rows) // SAMPLE_ROWS], thread_time()
    list(parse_lines(sample))
    seconds, parts = (thread_time() - started) * len(rows) / len(sample) * COST_OF_PARSED, 1
    while is_spent(MATCHING_SHARE, seconds / parts) and len(rows) > parts * SAMPLE_ROWS:
        parts *= 2
    return [excerpt[-max(len(excerpt) // parts, 1) :] for excerpt in excerpts]


def _lines_of_source(excerpt: Sequence[Row], number: int, source: LogSource) -> list[LogLine]:
    rows = list(parse_lines(list(excerpt), number))
    if source.rank is None and not source.host:
        return rows
    return [
        line.replace(rank=source.rank if line.rank is None else line.rank, host=line.host or source.host)
        for line in rows
    ]


_OWN_RANK = LazyRegex(r"Duplicate GPU detected : rank (\d{1,6}) and")

_TREES = LazyRegex(r"NCCL INFO Trees \[\d{1,4}\] [-\d/]{1,40}->(\d{1,6})->")
_SENDS = LazyRegex(r"NCCL INFO Channel [\d/]{1,9} ?: (\d{1,6})\[\w{1,16}\] -> (\d{1,6})\[\w{1,16}\] \[(send|receive)\]")


def _own_rank(text: str) -> int | None:
    """The rank an NCCL line states as its own."""
    if " nranks " in text:
        words = text.replace(",", " ").split()
        after = words[words.index("rank") + 1 :][:1] if "rank" in words else []
        return int(after[0][:9]) if after and after[0].isdecimal() else None
    if found := _TREES.search(text[:400]):
        return int(found[1])
    found = _SENDS.search(text[:400]) if "] [" in text else None
    return int(found[1] if found[3] == "send" else found[2]) if found else None


def assign_ranks(log_lines: Sequence[LogLine]) -> list[LogLine]:
    """Assign ranks to lines whose process stated its rank elsewhere: NCCL logs both."""
    ranks: dict[tuple[str, int | None, int | None], int] = {}
    for line in log_lines:
        if line.place == "nccl" and (stated_rank := _own_rank(line.text)) is not None:
            ranks[line.host, line.pid, line.gpu] = stated_rank
    by_gpu = _is_single_node(log_lines)
    by_pid = {(host, pid): rank for (host, pid, _), rank in ranks.items()}
    shared = len(by_pid) < len(ranks)  # one process with several GPUs
    result = []
    for line in log_lines:
        if line.rank is None and (line.pid is not None or line.gpu is not None):
            rank = ranks.get((line.host, line.pid, line.gpu))
            if rank is None and not shared:
                rank = by_pid.get((line.host, line.pid))
            if rank is None and line.place == "nccl" and by_gpu:
                own = _OWN_RANK.search(line.text)
                rank = int(own[1]) if own else line.gpu  # on one machine rank and GPU number are the same
            line = line.replace(rank=rank) if rank is not None else line
        result.append(line)
    return result


def _is_single_node(log_lines: Sequence[LogLine]) -> bool:
    """Whether a GPU's number may stand for a rank: one machine, and no rank above its GPUs."""
    hosts = {line.host for line in log_lines if line.place == "nccl" and line.host}
    gpus = [line.gpu for line in log_lines if line.gpu is not None]
    ranks = [line.rank for line in log_lines if line.rank is not None]
    return len(hosts) < 2 and max(ranks, default=0) <= max(max(gpus, default=0), 7)


def _find_matches(
    log_lines: list[LogLine], failures: Sequence[LoggedException], wording: PatternIndex, is_spent: Callable[..., bool]
) -> tuple[list[PatternMatch], frozenset[str]]:
    texts = [line.folded_text for line in log_lines]
    present_texts: set[str] = set()
    candidates: dict[tuple[int, int], LogPattern] = {}
    others = _other_wordings(log_lines, texts, failures)
    pairs = [(i, text) for i, wordings in others.items() for text in wordings]
    reworded = (
        (pairs[at][0], which) for at, which in _literal_hits([text for _, text in pairs], wording.search, is_spent)
    )
    for index, which in (*_literal_hits(texts, wording.search, is_spent), *reworded):
        literal = wording.literals[which]
        if literal in wording.remarks:
            present_texts.add(literal)
        for number, pattern in wording.patterns_for(literal):
            candidates[index, number] = pattern
    remarks = frozenset(present_texts)
    exception_of_line = find_exception_lines(log_lines, failures)
    found = (
        _match_pattern(
            pattern, index, log_lines, texts, failures, exception_of_line.get(index), remarks, others.get(index, ())
        )
        for (index, _), pattern in sorted(candidates.items(), key=lambda item: item[0], reverse=True)
    )
    in_time = takewhile(lambda _: not is_spent(MATCHING_SHARE), found)
    return [match for match in in_time if match is not None][::-1], remarks


def _other_wordings(
    log_lines: Sequence[LogLine], texts: Sequence[str], failures: Sequence[LoggedException]
) -> dict[int, list[str]]:
    """What else the patterns are matched with, by the index of the line: paths with slashes, what it states, a message of several lines."""
    found = {i: [text.replace("\\", "/")] for i, text in enumerate(texts) if "\\" in text}
    for i, (line, after) in enumerate(pairwise(log_lines)):  # what a terminal broke in two
        is_rest = (
            (after.raw or after.text)[:1].islower() and not (after.level or after.place) and line.source == after.source
        )
        if is_rest and len(texts[i]) >= MIN_WRAPPED and states_error(line):
            found.setdefault(i, []).append(f"{texts[i]} {texts[i + 1]}")
    for i, statement in state_errors(log_lines).items():
        found.setdefault(i, []).append(statement)
    long = {
        (f.source, f.at): f"{f.type}: {' '.join(f.message.split())}"[:MAX_WHOLE] for f in failures if "\n" in f.message
    }
    for i, line in enumerate(log_lines if long else ()):
        if whole := long.get((line.source, line.number)):
            found.setdefault(i, []).append(whole)
    return found


def _literal_hits(
    texts: Sequence[str], search: LiteralSearch, is_spent: Callable[..., bool]
) -> Iterator[tuple[int, int]]:
    """Which literals are in which text, each once, the last texts first; scanned in portions to bound memory."""
    for first in takewhile(lambda _: not is_spent(MATCHING_SHARE), range(0, len(texts), LINES_PER_SCAN)[::-1]):
        encoded = [text.encode("utf-8", "replace") for text in texts[first : first + LINES_PER_SCAN]]
        starts, at = [], 0
        for piece in encoded:
            starts.append(at)
            at += len(piece) + 1
        hits = {(bisect_right(starts, end - 1) - 1, which) for end, which in search.find_literals(b"\n".join(encoded))}
        yield from sorted((first + index, which) for index, which in hits)


def find_exception_lines(log_lines: Sequence[LogLine], failures: Sequence[LoggedException]) -> dict[int, int]:
    """Which exception each line is part of."""
    speakers: dict[object, list[int]] = {}
    for i, line in enumerate(log_lines):
        speakers.setdefault((line.source, line.rank, line.pid, line.role), []).append(i)
    numbers = {key: [log_lines[i].number for i in indices] for key, indices in speakers.items()}
    found: dict[int, int] = {}
    for which, failure in enumerate(failures):
        key = (failure.source, failure.rank, failure.pid, failure.role)
        if key in speakers:
            low, high = bisect_left(numbers[key], failure.number), bisect_right(numbers[key], failure.last)
            found.update(dict.fromkeys(speakers[key][low:high], which))
    return found


def _match_pattern(
    pattern: LogPattern,
    index: int,
    log_lines: Sequence[LogLine],
    texts: Sequence[str],
    failures: Sequence[LoggedException],
    failure: int | None,
    present_texts: frozenset[str],
    others: Sequence[str] = (),
) -> PatternMatch | None:
    line = log_lines[index]
    if failure is not None and is_cut_line(failures[failure], line):
        return None  # the code of a traceback that ends before its error
    if pattern.place and not _is_in_place(pattern.place, line, failures, failure):
        if pattern.place == "derived" or pattern.strength not in ("root", "symptom") or not states_error(line):
            return None
        pattern = pattern.replace(strength="clue")  # the same text from elsewhere: pasted, or repeated by a logger
    if (pattern.also and not present_texts & set(pattern.also)) or (
        pattern.unless and present_texts & set(pattern.unless)
    ):
        return None
    text = texts[index] if not pattern.spans_lines else "\n".join(_texts_beside(index, log_lines, texts, 6, 16))
    found = (pattern.match_text(wording) for wording in (text, *others))
    captures = next((captured for captured in found if captured is not None), None)
    if captures is None:
        return None
    if pattern.near or pattern.without:
        block = lower_ascii(_surrounding_text(index, log_lines, texts, failures, failure))
        slashed = block.replace("\\", "/")  # paths of Windows as patterns write them
        block = f"{block}\n{slashed}" if "\\" in block else block
        if any(t in block for t in pattern.without):
            return None
        if pattern.near and not _is_spoken_of(pattern.near, block):
            return None
    return PatternMatch(pattern, captures, index, line, failure)


def _is_spoken_of(words: Sequence[str], block: str) -> bool:
    """Whether a text has one of the words elsewhere than in a folder of packages: ``/opt/conda/lib/…-packages/`` is not conda speaking."""
    found = [word for word in words if word in block]
    if not all(word.isalnum() for word in found):
        return True
    parts = (word.rpartition("-packages") if "-packages" in word else ("", "", word) for word in block.split())
    spoken = " ".join(mark + rest for _, mark, rest in parts) if found else ""
    return any(word in spoken for word in found)


def _is_in_place(place: str, line: LogLine, failures: Sequence[LoggedException], failure: int | None) -> bool:
    if place != "exception":
        return line.place == place
    return failure is not None and line.number >= failures[failure].at


def _texts_beside(index: int, log_lines: Sequence[LogLine], texts: Sequence[str], before: int, after: int) -> list[str]:
    """The lines around one, of the same process."""
    line = log_lines[index]
    kept = []
    for step, room in ((-1, before), (1, after)):
        i, found = index + step, list[str]()
        while (
            0 <= i < len(log_lines)
            and len(found) < room
            and abs(i - index) < 40 * room
            and log_lines[i].source == line.source
        ):
            if (log_lines[i].rank, log_lines[i].role) == (line.rank, line.role):
                found.append(texts[i])
            i += step
        kept.append(found)
    return [*reversed(kept[0]), texts[index], *kept[1]]


def _surrounding_text(
    index: int,
    log_lines: Sequence[LogLine],
    texts: Sequence[str],
    failures: Sequence[LoggedException],
    failure: int | None,
) -> str:
    around = _texts_beside(index, log_lines, texts, NEAR_LINES, NEAR_LINES)
    role = log_lines[index].role
    if role and not role.startswith(_NOT_RAY):
        around.append(f"ray::{role}")  # only Ray names a process by its class; the prefix was stripped
    if failure is not None:
        texts = [failures[i].text for i in exception_chain(failures, failure)]
        around += [*texts, *(" ".join(text.split()) for text in texts)]
    return "\n".join(around)


def exception_chain(failures: Sequence[LoggedException], index: int) -> list[int]:
    """An exception with all it was raised from and all raised from it, first to last."""
    first = index
    while (before := failures[first].after) is not None and before < first:
        first = before
    links, last = [first], first
    for i in range(first + 1, min(first + 200, len(failures))):
        if failures[i].after == last:
            links.append(i)
            last = i
    return links
