"""Parse one line of a log: its prefixes (rank, host, process, level, clock) and the text.

Every pattern is anchored, bounded and tried at one place, so that a line costs time in proportion to its length.
"""

from __future__ import annotations

import re

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.model.record import Record

MAX_LINE_BYTES = 8192
"""Bytes of a line that are read; no cause is stated later than that in one line."""


MAX_PARTS = 8
"""How many parts of a line that overwrote each other are kept."""


class LogLine(Record):
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
    def folded_text(self) -> str:
        return " ".join(self.text.split())


_ESCAPE = LazyRegex(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|[@-Z\\-_()#][0-9A-Za-z]?)"
)
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), 127, *range(128, 160)])
_BAR = LazyRegex(r"\d{1,3}%[ |#█▏▎▍▌▋▊▉━╸-]|\d(?:it|s|B|examples?|steps?)/(?:s|it)\b|\[\d\d:\d\d<")


_AFTER_BAR = LazyRegex(
    r"(?:/s\]|/it\]|\]|\s)(\[rank\d{1,6}\]:|\[default\d{1,6}\]:|\[[EWF]\d{0,4} [^\]\n]{1,160}\]|Traceback \(most recent call last\)|(?:Killed|Segmentation fault|Aborted|Bus error)(?: \(core dumped\))?$)"
)
"""A rank, a C++ logger or a traceback that continues in the line of a progress bar."""


def shorten_line(line: bytes) -> bytes:
    """Return the beginning and the end of an overlong line: what ended a run may stand behind a thousand progress bars."""
    half = MAX_LINE_BYTES // 2
    return line if len(line) <= MAX_LINE_BYTES else line[: half - 5] + b" ... " + line[-half:]


def decode_line(line: bytes) -> str:
    """Decode UTF-8 with replacement; of an overlong line its beginning and its end."""
    line = shorten_line(line)
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace")


def visible_lines(text: str) -> list[str]:
    """What a terminal would show of a line: escapes removed, and the last of the parts that overwrote each other.

    A part that is not a progress bar is always kept: an error is often written after one.
    """
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\x08" in text:
        text = _apply_backspaces(text)
    parts = [part for part in text.rstrip("\r\n").split("\r") if part.strip()] or [""]
    last = len(parts) - 1
    kept = [
        piece
        for i, part in enumerate(parts)
        for piece in _split_progress_bar(part)
        if i == last or piece is not part or not _BAR.search(part)
    ]
    return [
        part.translate(_CONTROL)
        for part in (kept if len(kept) <= MAX_PARTS else kept[: MAX_PARTS // 2] + kept[-MAX_PARTS // 2 :])
    ]


def _split_progress_bar(part: str) -> list[str]:
    """Separate a progress bar from what another process wrote after it."""
    match = _AFTER_BAR.search(part[:600]) if _BAR.search(part[:400]) else None
    return [part[: match.start(1)], part[match.start(1) :]] if match else [part]


def _apply_backspaces(text: str) -> str:
    """Remove each backspace and the character before it."""
    kept: list[str] = []
    for char in text:
        if char != "\x08":
            kept.append(char)
        elif kept and kept[-1] not in "\r\n":
            kept.pop()
    return "".join(kept)


# -- prefixes ---------------------------------------------------------------------------------------------

_RANK = LazyRegex(r"\[(?:rank|Rank|RANK)[ :=_]?(\d{1,6})\]:? ?")
_DEFAULT = LazyRegex(r"\[(?:default|worker|trainer|actor)[_-]?(\d{1,6})(?:\|\d{1,6})?\]:")
_HOST_RANK = LazyRegex(r"\[([A-Za-z][\w.-]{0,63}):(\d{1,6})\]:")
_STD = LazyRegex(r"\[(?:stderr|stdout)\]:? ?")
_MPI = LazyRegex(r"\[\d{1,4},(\d{1,6})\]<(?:stdout|stderr|stddiag)>: ?")
_ACTOR = LazyRegex(r"\(([A-Za-z_][^()\n]{0,100})\) ?")
_POD = LazyRegex(r"\[pod/([\w.-]{1,100})(?:/[\w.-]{1,60})?\] ")
_ISO = LazyRegex(
    r"\[?(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?\]?,?[ \t:|-]{0,4}"
)
_SHORT = LazyRegex(r"\[?(\d\d)[-/](\d\d)(?:[-/]\d\d)? (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\]? ?(?:: )?")
_DMESG = LazyRegex(r"(?:<\d>)?\[ *(\d{1,9}\.\d{1,6})\](?:\[ *[TC]\d{1,12}\])? ")
_SYSLOG = LazyRegex(r"[A-Z][a-z]{2} [ \d]\d (\d\d):(\d\d):(\d\d) ([\w.-]{1,64}) ([\w./-]{1,40})(?:\[(\d{1,12})\])?: ")
_GLOG = LazyRegex(
    r"\[?([EWIF])(\d{3,4}) (\d\d):(\d\d):(\d\d)\.(\d{1,9}) (?:(\d{1,12}) )?([\w./<>-]{1,200}):(\d{1,12})\] ?"
)
_RAY = LazyRegex(r"([EWIFDC]) (\d{1,12}) \d{1,12}\] ")
"""What follows the time in a line of Ray's C++: ``[2024-08-04 18:18:01,609 E 4010 4012] core_worker.cc:234: ``."""
_CPP = LazyRegex(r"\[([EWIF]) ([\w./-]{1,120}):(\d{1,12})\] ?")
_LEVEL = LazyRegex(r"\[?(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?(?:[: |-]{1,10}|$)")
_LOGGER = LazyRegex(r"\[?(?:[\w./<>-]{1,80}:\d{1,6}(?::[\w<>]{1,60})?|\w{1,60}(?:\.\w{1,60}){1,6})\](?: |$)")
_FRAME_ID = LazyRegex(r"\[\d{1,5}/\d{1,5}(?:_\d{1,5})?\] |\[__\w{1,40}\] ")
_STREAM = LazyRegex(r"(?:stdout|stderr) [FP] ")
_PYTEST = LazyRegex(r"E {3,12}(?=\S)")
_COMPOSE = LazyRegex(r"([A-Za-z][\w.-]{0,60}[_-]\d{1,5}) {1,40}\| ")
_LOGURU = LazyRegex(r"(?:\| )?[\w.<>-]{1,120}:[\w<>]{1,80}:\d{1,6} - ")
_QUOTED = LazyRegex(r"(?:> |(?:stderr|stdout): )(?=\S| )")
_ARROW = LazyRegex(r"(?:\[?[\w./-]{1,80}:\d{1,6}\]? )?>> |[\w./-]{1,80}:\d{1,6}\] (?=\d{4}-\d\d-\d\d )")
_BOX = LazyRegex(r"[│┃|╎] ")
_REPEATED = LazyRegex(r" ?\[repeated (\d{1,12})x across cluster\](?: \(Ray deduplicates.{0,300})?$")
_NCCL = LazyRegex(
    r"([\w.-]{1,64}):(\d{1,12}):(\d{1,12}) \[(\d{1,12})\] (?:[\w./-]{1,120}:\d{1,12} )?(?:NCCL )?(WARN|INFO|TRACE|ABORT|CALL)"
)
_OLD_NCCL = LazyRegex(r"[\w.-]{1,64}:\d{1,12}:\d{1,12} \[\d{1,12}\] (?:[\w./-]{1,120}:\d{1,12} )?(?:WARN|INFO) ")
_NCCL_BARE = LazyRegex(r"\[(\d{1,5})\] (?:[\w./]{1,80}:\d{1,12} )?NCCL (WARN|INFO)")
_PG_RANK = LazyRegex(r"\[(?:PG [^\]]{1,120} )?Rank (\d{1,6})\]")


def parse_line(text: str, number: int = 0, source: int = 0) -> LogLine:
    """Strip all prefixes of a line and keep what they say."""
    raw = text
    inner = text.find("[rank", 1, 400)
    if inner > 0 and (match := _RANK.match(text, inner)) and match.group().rstrip().endswith(":"):
        text = text[inner:]  # a rank prefix after a progress bar or another label
    text, fields = strip_prefixes(text)
    if " [repeated " in text:
        text = _REPEATED.sub("", text)
    _parse_nccl_prefix(text, fields)
    if "Rank " in text[:200] and fields.get("rank") is None and (match := _PG_RANK.search(text[:400])):
        fields["rank"] = int(match[1])
    place = fields.pop("place", "") or _classify_place(text, str(fields.get("role", "")))
    return LogLine(number, text.rstrip(), raw, source, place=place, **fields)  # type: ignore[arg-type]


def strip_prefixes(text: str) -> tuple[str, dict[str, object]]:
    """The text without the prefixes whose forms are known, and what they say."""
    fields: dict[str, object] = {}
    for _ in range(10):
        rest = _strip_prefix(text, fields)
        if rest is None:
            break
        text = rest
    return text, fields


def _strip_prefix(text: str, fields: dict[str, object]) -> str | None:
    """Strip one prefix and store what it says; None where there is none."""
    body = text.lstrip(" \t") if text[:1] in " \t" else text
    first = body[:1]
    if first == "[":
        return _strip_bracket(body, fields)
    if first == "(" and (match := _ACTOR.match(body)):
        return body[match.end() :] if _parse_ray_actor(match[1], fields) else None
    if first.isdigit():
        return _strip_timestamp(body, fields)
    if first and first in "EWIFDC" and text is body and (rest := _strip_level(body, fields)) is not None:
        return rest
    if first and first in "│┃╎":
        match = _BOX.match(body)
        return body[match.end() :].rstrip().rstrip("│┃╎") if match else None
    if match := _QUOTED.match(body):
        return body[match.end() :]
    if "level" in fields and (match := _ARROW.match(body)):  # transformers, LLaMA-Factory
        return body[match.end() :]
    if " | " in body[:100] and (match := _COMPOSE.match(body)):  # docker compose
        fields["host"] = match[1]
        return body[match.end() :]
    if first.isupper() and (match := _SYSLOG.match(body)):
        fields["host"] = match[4]
        fields["seconds"] = _seconds_of_day(match[1], match[2], match[3])
        if match[5] == "kernel":
            fields["place"] = "kernel"
        return body[match.end() :]
    return None


def _strip_bracket(body: str, fields: dict[str, object]) -> str | None:
    if match := _RANK.match(body):
        fields["rank"] = int(match[1])
    elif match := _STD.match(body):
        pass
    elif match := _DEFAULT.match(body):
        fields.setdefault("rank", int(match[1]))
    elif match := _HOST_RANK.match(body):
        fields["host"], fields["rank"] = match[1], int(match[2])
    elif match := _MPI.match(body):
        fields["rank"] = int(match[1])
    elif match := _POD.match(body):
        fields["host"] = match[1]
    elif match := _GLOG.match(body) or _CPP.match(body):
        fields["level"] = match[1]
    elif match := _LEVEL.match(body):
        fields["level"] = match[1][0]
    elif match := _DMESG.match(body):
        fields["seconds"] = float(match[1])
    elif (match := _ISO.match(body)) or (match := _SHORT.match(body)):
        _store_time(match, fields)
    elif "level" in fields and (match := _FRAME_ID.match(body)):
        pass  # torch.compile numbers its frames
    elif not (fields and (match := _LOGGER.match(body))):
        return None
    elif "launch" in match.group():
        fields["place"] = "launcher"
    return body[match.end() :]


def _strip_level(body: str, fields: dict[str, object]) -> str | None:
    if match := _PYTEST.match(body):  # pytest
        return body[match.end() :]
    if match := _GLOG.match(body):
        fields["level"] = match[1]
        fields["seconds"] = _seconds_of_day(match[3], match[4], match[5])
        return body[match.end() :]
    if "seconds" in fields and (match := _RAY.match(body)):
        fields["level"], fields["pid"] = match[1], int(match[2])
        return body[match.end() :]
    match = _LEVEL.match(body)
    if not match:
        return None
    fields["level"] = match[1][0]
    rest = body[match.end() :]
    if (when := _SHORT.match(rest)) or (when := _ISO.match(rest)):
        _store_time(when, fields)
        rest = rest[when.end() :]
        if where := _LOGGER.match(rest):
            rest = rest[where.end() :]
    else:
        plain = body[match.end(1) : match.end(1) + 1] == ":"
        where = (_LOGGED.match(rest) if plain else None) or _LOGURU.match(rest)
        rest = rest[where.end() :] if where else rest
    return rest


_LOGGED = LazyRegex(r"[a-z_][\w.]{2,120}:")


_PYTHON = LazyRegex(r"(?:\[\d{1,12}\]|[\w.\[\]-]{1,120}) - (?=[A-Z]{4,8} - )")


def _strip_timestamp(body: str, fields: dict[str, object]) -> str | None:
    match = _ISO.match(body) or _SHORT.match(body)
    if not match:
        return None
    _store_time(match, fields)
    rest = body[match.end() :]
    if rest[:3] == "std" and (stream := _STREAM.match(rest)):  # Kubernetes
        return rest[stream.end() :]
    logger = _PYTHON.match(rest)
    return rest[logger.end() :] if logger else rest


def _store_time(match: re.Match[str], fields: dict[str, object]) -> None:
    groups = match.groups()
    clock = groups[3:6] if len(groups) == 7 else groups[2:5]
    fraction = groups[-1]
    seconds = _seconds_of_day(*clock) + (float(f"0.{fraction}") if fraction else 0.0)
    day = int(groups[2]) if len(groups) == 7 else int(groups[1])
    fields.setdefault("seconds", day * 86400.0 + seconds)


def _seconds_of_day(hours: str, minutes: str, seconds: str) -> float:
    return int(hours) * 3600.0 + int(minutes) * 60.0 + int(seconds)


def _parse_ray_actor(inside: str, fields: dict[str, object]) -> bool:
    """``EngineCore_DP0 pid=17374``, ``VllmWorker rank=1 pid=7``, ``Worker pid=1, ip=10.0.0.2``, ``raylet``."""
    words = inside.replace(",", " ").split()
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    if "pid" not in settings and words[0] not in ("raylet", "autoscaler", "gcs_server"):
        return False
    fields["role"] = words[0] if "=" not in words[0] else ""
    if settings.get("pid", "").isdecimal():
        fields["pid"] = int(settings["pid"][:12])
    if settings.get("rank", "").isdecimal():
        fields["rank"] = int(settings["rank"][:6])
    elif (match := _TAIL.search(words[0][-24:])) and "Worker" in words[0]:
        fields["rank"] = int(match[1])
    if "ip" in settings:
        fields["host"] = settings["ip"]
    return True


def _parse_nccl_prefix(text: str, fields: dict[str, object]) -> None:
    if "NCCL " not in text and not _OLD_NCCL.match(text):
        return
    match = _NCCL.search(text[:400])
    if match:
        fields.setdefault("host", match[1])
        fields["pid"], fields["gpu"], fields["place"] = int(match[2][:12]), int(match[4][:6]), "nccl"
        fields["level"] = {"WARN": "W", "ABORT": "E"}.get(match[5], "I")
    elif match := _NCCL_BARE.match(text):
        fields["gpu"], fields["place"], fields["level"] = int(match[1]), "nccl", match[2][0]


_TAIL = LazyRegex(r"_(?:TP|DP|PP|EP)?(\d{1,5})$")
_KERNEL = LazyRegex(
    r"NVRM: |oom-kill:|oom_reaper:|Out of memory: Killed process|Memory cgroup out of memory|invoked oom-killer"
)
_NCCL_MESSAGE = LazyRegex(r"NCCL WARN|^\s{0,8}nccl(?:SystemError|InternalError|UnhandledCudaError|Invalid|RemoteError)")
_LAUNCHER = LazyRegex(
    r"torch\.distributed\.elastic|slurmstepd:|srun: |Sending process |Killing subprocess|Root Cause \(first observed|failed \(exitcode:"
    r"|closing signal SIG|exits with return code|Main process received|death signal, shutting down|Worker exit type:|CANCELLED AT "
)


def _classify_place(text: str, role: str) -> str:
    if _KERNEL.search(text):
        return "kernel"
    if _NCCL_MESSAGE.search(text):
        return "nccl"
    return "launcher" if role == "raylet" or _LAUNCHER.search(text) else ""
