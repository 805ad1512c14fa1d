"""``gpuready diagnose``: read logs, judge them, and say how to fix the cause. The launcher calls ``diagnose_logs`` too."""

from __future__ import annotations

from gpuready import catalog, rules, system
from gpuready.catalog import causes
from gpuready.diagnose import judge
from gpuready.logs import places, recorder
from gpuready.logs.derived import derived
from gpuready.logs.story import Source, Wording, read, table
from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from gpuready.diagnosed import Diagnosis, Evidence
    from gpuready.logs.story import Story
    from gpuready.system.streams import Stream

_WORDING: dict[str, Wording] = {}


def wording(engine: str = "auto") -> Wording:
    """Return every rule's patterns and the known consequences, as compiled in the catalogue."""
    if engine not in _WORDING:
        _WORDING[engine] = Wording(catalog.load("signs"), engine)
    return _WORDING[engine]


def signs_of_rules() -> dict[str, Any]:
    """Collect the same from the rules themselves, to compile the catalogue."""
    rows = [(code, sign) for code in rules.LEDGER for sign in rules.rule(code).SIGNS]
    return table([*rows, *(("", row["says"]) for row in causes.aftermath())])


def diagnose(
    logs: Sequence[str | Iterable[bytes]],
    *,
    framework: str | None = None,
    on: str | None = None,
    look: bool = True,
) -> Diagnosis:
    """Find out why a run died. A log is a path (a file, a folder, - for stdin), or its bytes in pieces.

    ``on`` is the recording of the machine that it ran on. With ``look``, this machine is probed where the log is its own.
    """
    sources, dumps, streams, notes = _opened(logs)
    if dumps:
        sources.append(Source(f"{len(dumps)} dumps of flight recorders", ()))
    try:
        story = read(
            sources, wording(), lambda told: derived(told, recorder.standstill(dumps), len(sources) - 1)
        )
    except system.Blind as blind:
        raise Refused(f"cannot read the log: {blind}") from None
    cut = [f"{stream.name}: {stream.cut}" for stream in streams if stream.cut]
    found = told(story, framework, on, look, (*notes, *cut))
    unread = "" if dumps or any(lines for lines, _ in story.totals) else "the log is empty: nothing was read"
    unread = unread or ("a log was not read to its end: what is missing may tell of a failure" if cut else "")
    if found.verdict == "healthy" and unread:
        return found.but(verdict="unknown", cause="", confidence=0.0, says=unread)
    return found


def told(
    story: Story,
    framework: str | None = None,
    on: str | None = None,
    look: bool = True,
    notes: Sequence[str] = (),
) -> Diagnosis:
    """Judge a log summary, and add the cause's text and its fixes."""
    from gpuready.workflow import mending

    found = judge(story, causes.of, {row["says"]: row["means"] for row in causes.aftermath()})
    found = found.but(notes=(*found.notes, *notes), framework=framework or mending.framework_of(story))
    return _redacted(mending.mended(found, story, on, look))


def _redacted(found: Diagnosis) -> Diagnosis:
    """Remove secrets that a log may contain; only the judging code has read them."""
    hide = system.redact
    evidence = tuple(_quoted(e) for e in found.evidence)
    return found.but(
        says=hide(found.says),
        evidence=evidence,
        captures={name: hide(value) for name, value in found.captures.items()},
        consequences=tuple(c.but(says=hide(c.says)) for c in found.consequences),
        alternatives=tuple(
            a.but(evidence=tuple(e.but(text=hide(e.text), before=(), after=()) for e in a.evidence))
            for a in found.alternatives
        ),
    )


def _quoted(one: Evidence) -> Evidence:
    """Redact the lines of one evidence together: a key may continue over several lines."""
    from gpuready.system.flow import redact_lines

    lines = redact_lines((*one.before, one.text, *one.after))
    at = len(one.before)
    return one.but(before=lines[:at], text=lines[at], after=lines[at + 1 :])


# -- reading logs -----------------------------------------------------------------------------------------


def _opened(
    logs: Sequence[str | Iterable[bytes]],
) -> tuple[list[Source], list[recorder.Dump], list[Stream], list[str]]:
    sources: list[Source] = []
    dumps: list[recorder.Dump] = []
    streams: list[Stream] = []
    notes: list[str] = []
    for number, log in enumerate(logs):
        if not isinstance(log, str):
            sources.append(Source(f"log {number + 1}" if len(logs) > 1 else "log", log))
            continue
        found = _streams(log)
        folder = len(found) != 1 or found[0].path != log
        for stream in found:
            _sort(stream, folder and log != "-", sources, dumps, streams, notes)
    if logs and not sources and not dumps:
        raise Refused(
            f"there is no log in {', '.join(str(log) for log in logs)}: name a file, a folder of logs, or - for stdin"
        )
    return sources, dumps, streams, notes


def _streams(path: str) -> list[Stream]:
    from gpuready.system.streams import streams

    try:
        return streams(path)
    except system.Blind as blind:
        raise Refused(f"cannot read {path}: {blind}") from None


def _sort(
    stream: Stream,
    in_folder: bool,
    sources: list[Source],
    dumps: list[recorder.Dump],
    streams: list[Stream],
    notes: list[str],
) -> None:
    """Add a stream as a dump or a log, or skip it with a note."""
    from gpuready.system.streams import foreign, sealed

    try:
        head = stream.head()
    except (OSError, system.Blind):
        notes.append(f"{stream.name} cannot be read")
        return
    if recorder.is_dump(head):
        _dumped(stream, dumps, notes)
    elif (why := sealed(head)) or (not in_folder and (why := foreign(head))):
        if not in_folder:
            raise Refused(f"cannot read {stream.name}: {why}")
        notes.append(f"{stream.name} is left out: {why}")
    elif not in_folder or (head and places.may_be_log(stream.name, head)):
        sources.append(Source(stream.name, stream, places.rank_of(stream.name) if in_folder else None))
        streams.append(stream)


def _dumped(stream: Stream, dumps: list[recorder.Dump], notes: list[str]) -> None:
    data = bytearray()
    for piece in stream:
        data += piece
        if len(data) > 256 << 20:
            notes.append(f"{stream.name} is larger than 256 MiB, too large for a dump")
            return
    try:
        dumps.append(recorder.dump(bytes(data), places.rank_of(stream.name)))
    except (ValueError, RecursionError) as bad:
        notes.append(f"{stream.name} is not read as a flight recorder's dump: {bad}")


# -- a log that is still being written ------------------------------------------------------------------------

HELD = 8 << 20
"""Bytes of a live log that are judged: its end."""

SETTLED = 10
"""Polls without new text, half a second apart, before the end of a log is accepted."""

_DONE = ("'train_runtime':", "Training completed", "Training finished", "training done")


def follow(path: str, *, framework: str | None = None, patience: float | None = None) -> Iterator[Diagnosis]:
    """Yield a Diagnosis whenever the cause becomes known or changes, judged by the last 8 MiB.

    End when the log shows the end of the run (the launcher's line, or that training is done) and nothing follows, or after
    ``patience`` seconds without new text.
    """
    from gpuready.system.streams import growing

    held, fresh, last, lost, over, idle = b"", False, None, 0, False, 0
    try:
        for piece in growing(path, patience=patience):
            held, fresh = held + piece, fresh or bool(piece)
            if len(held) > HELD:
                cut = held.index(b"\n", len(held) - HELD) + 1 if b"\n" in held[-HELD:] else len(held) - HELD
                lost, held = lost + held.count(b"\n", 0, cut), held[cut:]
            idle = 0 if piece else idle + 1
            if over and idle > SETTLED:
                return
            if piece or not fresh:
                continue  # judge when it pauses, not at every line
            fresh = False
            found, over = _now(path, held, lost, framework)
            if found.verdict == "cause" and (found.cause, found.rank) != last:
                last = found.cause, found.rank
                yield found
    except system.Blind as blind:
        raise Refused(f"cannot follow {path}: {blind}") from None


def _now(path: str, held: bytes, lost: int, framework: str | None) -> tuple[Diagnosis, bool]:
    """Diagnose the log so far, and tell whether it shows that the run is over."""
    story = read([Source(path, [held])], wording(), derived)
    found = told(story, framework, look=False)
    if lost:
        found = found.but(evidence=tuple(e.but(line=e.line + lost) for e in found.evidence))
    last = [line.text for line in story.lines[-40:]]
    done = any(words in text for text in last for words in _DONE)
    return found, done or (found.verdict != "healthy" and any(end.code for end in story.exits))
