"""Parse one line of a log: its prefixes (rank, host, process, level, clock) and the text.

Every pattern is anchored, bounded and tried at one place, so that a line costs time in proportion to its length.
"""

from __future__ import annotations

from gpuready.logs.pattern import Pattern
from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

LONGEST = 8192
"""Bytes of a line that are read; no cause is stated later than that in one line."""


PARTS = 8
"""How many parts of a line that overwrote each other are kept."""


class Line(Noun):
    """One line, or one of several that a terminal would have shown in its place."""

    number: int
    text: str  # with its indent
    raw: str = ""  # the line as it was written, without escapes
    source: int = 0
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    role: str = ""  # raylet, EngineCore_DP0, a Ray actor's class
    level: str = ""  # E, W, I, D where stated
    place: str = ""  # nccl, kernel, launcher
    gpu: int | None = None
    seconds: float | None = None  # timestamp; never compared across hosts

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


_ESCAPE = Pattern(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|[@-Z\\-_()#][0-9A-Za-z]?)"
)
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), 127, *range(128, 160)])
_BAR = Pattern(r"\d{1,3}%[ |#█▏▎▍▌▋▊▉━╸-]|\d(?:it|s|B|examples?|steps?)/(?:s|it)\b|\[\d\d:\d\d<")


_BEHIND = Pattern(
    r"(?:/s\]|/it\]|\]|\s)(\[rank\d{1,6}\]:|\[default\d{1,6}\]:|\[[EWF]\d{0,4} [^\]\n]{1,160}\]|Traceback \(most recent call last\)|(?:Killed|Segmentation fault|Aborted|Bus error)(?: \(core dumped\))?$)"
)
"""A rank, a C++ logger or a traceback that continues in the line of a progress bar."""


def decoded(line: bytes) -> str:
    """Decode UTF-8 with replacement. Only the beginning of an overlong line."""
    try:
        return line[:LONGEST].decode()
    except UnicodeDecodeError:
        return line[:LONGEST].decode("utf-8", "replace")


def shown(text: str) -> list[str]:
    """What a terminal would show of a line: escapes removed, and the last of the parts that overwrote each other.

    A part that is not a progress bar is always kept: an error is often written after one.
    """
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\x08" in text:
        text = _rubbed(text)
    parts = [part for part in text.rstrip("\r\n").split("\r") if part.strip()] or [""]
    last = len(parts) - 1
    kept = [
        piece
        for i, part in enumerate(parts)
        for piece in _unbarred(part)
        if i == last or piece is not part or not _BAR.search(part)
    ]
    return [
        part.translate(_CONTROL)
        for part in (kept if len(kept) <= PARTS else kept[: PARTS // 2] + kept[-PARTS // 2 :])
    ]


def _unbarred(part: str) -> list[str]:
    """Separate a progress bar from what another process wrote after it."""
    found = _BEHIND.search(part[:600]) if _BAR.search(part[:400]) else None
    return [part[: found.start(1)], part[found.start(1) :]] if found else [part]


def _rubbed(text: str) -> str:
    """Remove each backspace and the character before it."""
    kept: list[str] = []
    for char in text:
        if char != "\x08":
            kept.append(char)
        elif kept and kept[-1] not in "\r\n":
            kept.pop()
    return "".join(kept)


# -- prefixes ---------------------------------------------------------------------------------------------

_RANK = Pattern(r"\[(?:rank|Rank|RANK)[ :=_]?(\d{1,6})\]:? ?")
_DEFAULT = Pattern(r"\[(?:default|worker|trainer|actor)[_-]?(\d{1,6})(?:\|\d{1,6})?\]:")
_HOST_RANK = Pattern(r"\[([A-Za-z][\w.-]{0,63}):(\d{1,6})\]:")
_STD = Pattern(r"\[(?:stderr|stdout)\]:? ?")
_MPI = Pattern(r"\[\d{1,4},(\d{1,6})\]<(?:stdout|stderr|stddiag)>: ?")
_ACTOR = Pattern(r"\(([A-Za-z_][^()\n]{0,100})\) ?")
_POD = Pattern(r"\[pod/([\w.-]{1,100})(?:/[\w.-]{1,60})?\] ")
_ISO = Pattern(
    r"\[?(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?\]?,?[ :|-]{0,4}"
)
_SHORT = Pattern(r"\[?(\d\d)[-/](\d\d)(?:[-/]\d\d)? (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\]? ?(?:: )?")
_DMESG = Pattern(r"(?:<\d>)?\[ *(\d{1,9}\.\d{1,6})\](?:\[ *[TC]\d{1,12}\])? ")
_SYSLOG = Pattern(
    r"[A-Z][a-z]{2} [ \d]\d (\d\d):(\d\d):(\d\d) ([\w.-]{1,64}) ([\w./-]{1,40})(?:\[(\d{1,12})\])?: "
)
_GLOG = Pattern(
    r"\[?([EWIF])(\d{3,4}) (\d\d):(\d\d):(\d\d)\.(\d{1,9}) (?:(\d{1,12}) )?([\w./<>-]{1,200}):(\d{1,12})\] ?"
)
_CPP = Pattern(r"\[([EWIF]) ([\w./-]{1,120}):(\d{1,12})\] ?")
_LEVEL = Pattern(r"\[?(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?(?:[: |-]{1,10}|$)")
_LOGGER = Pattern(r"\[?(?:[\w./<>-]{1,80}:\d{1,6}(?::[\w<>]{1,60})?|\w{1,60}(?:\.\w{1,60}){1,6})\](?: |$)")
_FRAME_ID = Pattern(r"\[\d{1,5}/\d{1,5}(?:_\d{1,5})?\] |\[__\w{1,40}\] ")
_STREAM = Pattern(r"(?:stdout|stderr) [FP] ")
_TESTED = Pattern(r"E {3,12}(?=\S)")
_COMPOSED = Pattern(r"([A-Za-z][\w.-]{0,60}[_-]\d{1,5}) {1,40}\| ")
_LOGURU = Pattern(r"(?:\| )?[\w.<>-]{1,120}:[\w<>]{1,80}:\d{1,6} - ")
_QUOTED = Pattern(r"(?:> |(?:stderr|stdout): )(?=\S| )")
_ARROW = Pattern(r"(?:\[?[\w./-]{1,80}:\d{1,6}\]? )?>> |[\w./-]{1,80}:\d{1,6}\] (?=\d{4}-\d\d-\d\d )")
_BOX = Pattern(r"[│┃|╎] ")
_REPEATED = Pattern(r" ?\[repeated (\d{1,12})x across cluster\](?: \(Ray deduplicates.{0,300})?$")
_NCCL = Pattern(
    r"([\w.-]{1,64}):(\d{1,12}):(\d{1,12}) \[(\d{1,12})\] (?:[\w./]{1,80}:\d{1,12} )?NCCL (WARN|INFO|TRACE|ABORT|CALL)"
)
_NCCL_BARE = Pattern(r"\[(\d{1,5})\] (?:[\w./]{1,80}:\d{1,12} )?NCCL (WARN|INFO)")
_PG_RANK = Pattern(r"\[(?:PG [^\]]{1,120} )?Rank (\d{1,6})\]")


def parsed(text: str, number: int = 0, source: int = 0) -> Line:
    """Strip all prefixes of a line and keep what they say."""
    raw = text
    told: dict[str, object] = {}
    inner = text.find("[rank", 1, 400)
    if inner > 0 and (found := _RANK.match(text, inner)) and found.group().rstrip().endswith(":"):
        text = text[inner:]  # a rank prefix after a progress bar or another label
    for _ in range(10):
        rest = _one(text, told)
        if rest is None:
            break
        text = rest
    if " [repeated " in text:
        text = _REPEATED.sub("", text)
    _nccl(text, told)
    if "Rank " in text[:200] and told.get("rank") is None and (found := _PG_RANK.search(text[:400])):
        told["rank"] = int(found[1])
    place = told.pop("place", "") or _place(text, str(told.get("role", "")))
    return Line(number, text.rstrip(), raw, source, place=place, **told)  # type: ignore[arg-type]


def _one(text: str, told: dict[str, object]) -> str | None:
    """Strip one prefix and store what it says; None where there is none."""
    body = text.lstrip(" \t") if text[:1] in " \t" else text
    first = body[:1]
    if first == "[":
        return _bracket(body, told)
    if first == "(" and (found := _ACTOR.match(body)):
        return body[found.end() :] if _actor(found[1], told) else None
    if first.isdigit():
        return _clock(body, told)
    if first and first in "EWIFDC" and text is body and (rest := _levelled(body, told)) is not None:
        return rest
    if first and first in "│┃╎":
        found = _BOX.match(body)
        return body[found.end() :].rstrip().rstrip("│┃╎") if found else None
    if found := _QUOTED.match(body):
        return body[found.end() :]
    if "level" in told and (found := _ARROW.match(body)):  # transformers, LLaMA-Factory
        return body[found.end() :]
    if " | " in body[:100] and (found := _COMPOSED.match(body)):  # docker compose
        told["host"] = found[1]
        return body[found.end() :]
    if first.isupper() and (found := _SYSLOG.match(body)):
        told["host"] = found[4]
        told["seconds"] = _of_day(found[1], found[2], found[3])
        if found[5] == "kernel":
            told["place"] = "kernel"
        return body[found.end() :]
    return None


def _bracket(body: str, told: dict[str, object]) -> str | None:
    if found := _RANK.match(body):
        told["rank"] = int(found[1])
    elif found := _STD.match(body):
        pass
    elif found := _DEFAULT.match(body):
        told.setdefault("rank", int(found[1]))
    elif found := _HOST_RANK.match(body):
        told["host"], told["rank"] = found[1], int(found[2])
    elif found := _MPI.match(body):
        told["rank"] = int(found[1])
    elif found := _POD.match(body):
        told["host"] = found[1]
    elif found := _GLOG.match(body) or _CPP.match(body):
        told["level"] = found[1]
    elif found := _LEVEL.match(body):
        told["level"] = found[1][0]
    elif found := _DMESG.match(body):
        told["seconds"] = float(found[1])
    elif (found := _ISO.match(body)) or (found := _SHORT.match(body)):
        _noted_time(found, told)
    elif "level" in told and (found := _FRAME_ID.match(body)):
        pass  # torch.compile numbers its frames
    elif not (told and (found := _LOGGER.match(body))):
        return None
    elif "launch" in found.group():
        told["place"] = "launcher"
    return body[found.end() :]


def _levelled(body: str, told: dict[str, object]) -> str | None:
    if found := _TESTED.match(body):  # pytest
        return body[found.end() :]
    if found := _GLOG.match(body):
        told["level"] = found[1]
        told["seconds"] = _of_day(found[3], found[4], found[5])
        return body[found.end() :]
    found = _LEVEL.match(body)
    if not found:
        return None
    told["level"] = found[1][0]
    rest = body[found.end() :]
    if (when := _SHORT.match(rest)) or (when := _ISO.match(rest)):
        _noted_time(when, told)
        rest = rest[when.end() :]
        if where := _LOGGER.match(rest):
            rest = rest[where.end() :]
    else:
        plain = body[found.end(1) : found.end(1) + 1] == ":"
        where = (_LOGGED.match(rest) if plain else None) or _LOGURU.match(rest)
        rest = rest[where.end() :] if where else rest
    return rest


_LOGGED = Pattern(r"[a-z_][\w.]{2,120}:")


_PYTHON = Pattern(r"(?:\[\d{1,12}\]|[\w.\[\]-]{1,120}) - (?=[A-Z]{4,8} - )")


def _clock(body: str, told: dict[str, object]) -> str | None:
    found = _ISO.match(body) or _SHORT.match(body)
    if not found:
        return None
    _noted_time(found, told)
    rest = body[found.end() :]
    if rest[:3] == "std" and (stream := _STREAM.match(rest)):  # Kubernetes
        return rest[stream.end() :]
    logger = _PYTHON.match(rest)
    return rest[logger.end() :] if logger else rest


def _noted_time(found: re.Match[str], told: dict[str, object]) -> None:
    groups = found.groups()
    clock = groups[3:6] if len(groups) == 7 else groups[2:5]
    fraction = groups[-1]
    seconds = _of_day(*clock) + (float(f"0.{fraction}") if fraction else 0.0)
    day = int(groups[2]) if len(groups) == 7 else int(groups[1])
    told.setdefault("seconds", day * 86400.0 + seconds)


def _of_day(hours: str, minutes: str, seconds: str) -> float:
    return int(hours) * 3600.0 + int(minutes) * 60.0 + int(seconds)


def _actor(inside: str, told: dict[str, object]) -> bool:
    """``EngineCore_DP0 pid=17374``, ``VllmWorker rank=1 pid=7``, ``Worker pid=1, ip=10.0.0.2``, ``raylet``."""
    words = inside.replace(",", " ").split()
    named = dict(word.split("=", 1) for word in words if "=" in word)
    if "pid" not in named and words[0] not in ("raylet", "autoscaler", "gcs_server"):
        return False
    told["role"] = words[0] if "=" not in words[0] else ""
    if named.get("pid", "").isdecimal():
        told["pid"] = int(named["pid"][:12])
    if named.get("rank", "").isdecimal():
        told["rank"] = int(named["rank"][:6])
    elif (found := _TAIL.search(words[0][-24:])) and "Worker" in words[0]:
        told["rank"] = int(found[1])
    if "ip" in named:
        told["host"] = named["ip"]
    return True


def _nccl(text: str, told: dict[str, object]) -> None:
    if "NCCL " not in text:
        return
    found = _NCCL.search(text[:400])
    if found:
        told.setdefault("host", found[1])
        told["pid"], told["gpu"], told["place"] = int(found[2][:12]), int(found[4][:6]), "nccl"
        told["level"] = {"WARN": "W", "ABORT": "E"}.get(found[5], "I")
    elif found := _NCCL_BARE.match(text):
        told["gpu"], told["place"], told["level"] = int(found[1]), "nccl", found[2][0]


_TAIL = Pattern(r"_(?:TP|DP|PP|EP)?(\d{1,5})$")
_KERNEL = Pattern(
    r"NVRM: |oom-kill:|oom_reaper:|Out of memory: Killed process|Memory cgroup out of memory|invoked oom-killer"
)
_NCCL_SAID = Pattern(
    r"NCCL WARN|^\s{0,8}nccl(?:SystemError|InternalError|UnhandledCudaError|Invalid|RemoteError)"
)
_LAUNCHER = Pattern(
    r"torch\.distributed\.elastic|slurmstepd:|srun: |Sending process |Killing subprocess|Root Cause \(first observed|failed \(exitcode:"
    r"|closing signal SIG|exits with return code|Main process received|death signal, shutting down|Worker exit type:|CANCELLED AT "
)


def _place(text: str, role: str) -> str:
    if _KERNEL.search(text):
        return "kernel"
    if _NCCL_SAID.search(text):
        return "nccl"
    return "launcher" if role == "raylet" or _LAUNCHER.search(text) else ""


# -- prefixes recognisable only in the whole log -------------------------------------------------------------------

_TASK = Pattern(r" {0,4}(\d{1,5}): ?")
_TASK_SAID = Pattern(r" {0,4}\d{1,5}: ?(?: *File \"|Traceback|[\w.]{0,80}(?:Error|Exception)\b)")
_TASK_BRACKET = Pattern(r"\[(\d{1,5})\]:? ")
_PIPED = Pattern(r"([A-Za-z][\w.-]{0,63}) {1,40}\| ?")
_NODE = Pattern(r"([A-Za-z][\w.-]{1,63}): ")
_LEVELS = {
    "DEBUG",
    "INFO",
    "WARNING",
    "WARN",
    "ERROR",
    "CRITICAL",
    "FATAL",
    "NVRM",
    "RuntimeError",
    "ValueError",
}


def custom(sample: list[str]) -> str:
    """What every line of this log begins with: ``task`` (srun -l), ``bracket``, ``node`` (pdsh), ``piped`` (docker compose), or nothing."""
    lines = [text for text in sample if text.strip()]
    if len(lines) < 4:
        return "task" if lines and all(_TASK_SAID.match(text) for text in lines) else ""
    for kind, pattern in (("task", _TASK), ("bracket", _TASK_BRACKET)):
        tasks = [found[1] for text in lines if (found := pattern.match(text))]
        if len(tasks) >= (0.4 if len(set(tasks)) > 1 else 0.8) * len(
            lines
        ):  # lines of the launcher itself have none
            return kind
    if all(_PIPED.match(text) for text in lines):
        return "piped"
    names = [found[1] for text in lines if (found := _NODE.match(text)) and found[1] not in _LEVELS]
    if len(names) >= 0.8 * len(lines) and any(c.isdigit() for c in "".join(set(names))):
        return "node" if len(set(names)) <= 512 else ""
    return ""


def uncustomed(text: str, kind: str) -> tuple[str, int | None, str]:
    """Strip a prefix that the whole log has; return the text and the rank or host it names."""
    pattern = {"task": _TASK, "bracket": _TASK_BRACKET, "node": _NODE, "piped": _PIPED}.get(kind)
    found = pattern.match(text) if pattern else None
    if not found:
        return text, None, ""
    if kind in ("node", "piped"):
        return text[found.end() :], None, found[1]
    return text[found.end() :], int(found[1]), ""


def lines(rows: list[tuple[int, bytes]], source: int = 0) -> Iterator[Line]:
    """Parse the numbered raw lines of one source."""
    visible = [(number, text) for number, line in rows for text in shown(decoded(line))]
    kind = custom([text for _, text in visible[:400]])
    for number, text in visible:
        rest, rank, host = uncustomed(text, kind) if kind else (text, None, "")
        line = parsed(rest, number, source)
        if kind:
            rank = rank if line.rank is None else line.rank
            line = line.but(raw=text, rank=rank, host=line.host or host)
        yield line
