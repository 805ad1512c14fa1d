"""What one line says of a run: that it makes progress, that it ended well, that something is wrong, or that it starts."""

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine

MAX_TEXT = 400
"""Characters of a line that are looked at."""

_IGNORE_CASE = 2  # re.IGNORECASE, without importing re here

_BAR = LazyRegex(
    r"\d{1,3}%[ ]{0,2}\||\d{1,12}/\d{1,12} \[\d\d:\d\d|\[\d\d:\d\d<\d\d:\d\d|\d(?:it|steps?|examples?)/s\b"
)
_AT_ZERO = LazyRegex(r"(?<![\d.])0%[ ]{0,2}\|(?!.{0,80}?\b[1-9]\d{0,11}/\d{1,12} \[)|(?<![\d.])0/\d{1,12} \[\d\d:\d\d")
"""A bar that has only been drawn."""
_ANSWERED = LazyRegex(
    r"\"(?:POST|PUT) [^\"\s]{1,300} HTTP/[\d.]{1,3}\" 2\d\d\b|\| 2\d\d \| {1,12}[\d.hm]{1,12}[mµn]?s \|[^|]{1,60}\| POST\b"
)
"""A request that a server answered, as its log of requests has it; that somebody asks for its health proves nothing."""
_STEP = LazyRegex(
    r"\b(?:global[ _]?step|steps?|iter(?:ation)?s?|epochs?|batch|updates?|samples|tokens|shards?|trial)\b['\"]{0,2}[ #:=\[(]{0,12}\d"
    r"|\b\d[\d.,]{0,12} (?:steps|iterations|epochs|batches|samples|tokens|shards|examples|rows)\b"
    r"|\b(?:throughput|tokens?[/_]s(?:ec)?|samples?[/_]s(?:ec)?|it/s|lr|grad_norm)['\"]{0,2}[ :=]{1,6}\d",
    _IGNORE_CASE,
)
_LOSS = LazyRegex(r"(?:^|[\W_])loss['\"]{0,2}[ :=|]{1,6}['\"]?-?\d", _IGNORE_CASE)
_NAN = LazyRegex(r"(?:\b|_)(?:is)?nans?\b(?!.{0,20}[:=] {0,4}0\b)", _IGNORE_CASE)
_SETTING = LazyRegex(r"batch_size|max_|num_|argument|config|world_size|--", _IGNORE_CASE)
"""Words of a configuration: a number beside one of them is a setting, and no progress."""

_DIGIT = LazyRegex(r"\d")
_ENDED_WELL = LazyRegex(
    r"\b(?:finished(?!: {1,9}(?:\w{3}, )?\d)|done|completed?|succeeded|successful(?:ly)?|train_runtime|all (?:tests )?passed|prepared|saved|ready|resumed|saving model)\b"
    r"|startup complete|\bserving (?:on|at) \S|\bstarted (?:\w{1,40} ){1,3}at \S{3,80}:\d|\d ± \d[\d.]{0,12} \||\b(?:server|services?|api)(?: \w{1,20}){0,2} (?:started|(?:is|are) (?:running|up))\b|\bstarted serv\w{2,4}|\bexit(?:ed)?(?: with)? (?:code|status)[ :=]{1,3}0\b|running on https?://|listening on\b"
    r"|\b(?:errors?|failed|failures?)[ :=]{1,3}0\b|\b0 (?:errors|failed|failures)\b",
    _IGNORE_CASE,
)
_NOT_YET = LazyRegex(
    r"\b(?:not|never|no|cannot|unable|before|until|once|when|if|wait(?:ing)?|will|deprecated|partially|unsuccessful)\b|n't\b|%[|]"
    r"|\bREADY +STATUS\b|\b(?:succeeded|completed|finished|ready|done|saved)[=:] ?0\b",
    _IGNORE_CASE,
)
_COMPLAINT = LazyRegex(
    r"(?:error(?:ed|s)?|exception|(?<![\w/.-])(?:fatal|fail(?:ed|s|ure|ures|ing)?|abort(?:ed|ing)?|killed|crash(?:ed|es)?|segfault"
    r"|segmentation|core dumped|panick?(?:ed)?|cannot|can't|could not|couldn't|unable|traceback|denied|refused|time[d]?[ -]?out|no such"
    r"|not found|unsupported|incompatible|mismatch|corrupt(?:ed)?|diverged|terminat(?:ed|ing)|unexpected(?:ly)?|undefined symbol"
    r"|out of memory|oom|cancelled|interrupted|stuck|hangs?|unreachable|lost|died|dead|exceeded|illegal|invalid|violation|evicted|oomkilled|crashloopbackoff|imagepullbackoff|errimagepull|back-off"
    r"|failedscheduling|unschedulable|insufficient|hung|non-zero|assert))(?![\w/])"
    r"|\b(?:exit|return)(?:ed)?(?: with)?(?: (?:code|status)){1,2}[ :=]{0,3}-?(?!0\b)\d|connection closed|^\^C|ASSERT: |\u5931\u8d25|\u9519\u8bef|\u5f02\u5e38|\u6740\u6b7b|\u4e2d\u65ad",
    _IGNORE_CASE,
)
_STATED = LazyRegex(
    r"\b(?:error|fatal|fail(?:ed|ure|s)?|exception|abort(?:ed|ing)?|killed|cannot|can't|could not|couldn't|unable|denied|refused|timed out|no such|panic|terminated|evicted|preempted|exceeded|out of memory|unreachable|does not exist|no usable|too old|not ready|retrying|not registered)\b|Error\b",
    _IGNORE_CASE,
)
_HARMLESS = LazyRegex(
    r"\b(?:0|no|without(?: any)?) (?:errors?|failures?)\b|\b(?:errors?|failed|failures?|exceptions?)[ :=]{1,3}0\b|Warning\b|error[_-]?bars?"
    r"|\bfailed to (?:import|load) .{0,80}(?:optional|ignor)|ignor(?:ed|ing)|fall(?:s|ing)? ?back|retry(?:ing)?|retries remaining"
    r"|\s[:=] {0,4}(?:0|no|none|n/a|not active|inactive|false|disabled) {0,4}$|\"[A-Z]{3,7} [^\"]{1,300} HTTP/[\d.]{1,3}\" 4\d\d\b",
    _IGNORE_CASE,
)
_STARTING = LazyRegex(
    r"NCCL INFO (?:Bootstrap|Channel|Trees|comm .{0,120}Init|Connected|NET/|Using network|ncclCommInit|Setting affinity|cudaDriverVersion)"
    r"|NCCL version |[Ii]nitializing (?:distributed|process group)|Waiting for|waiting for|rendezvous|distributed processes registered|MEMBER: \d"
)
_SHUTDOWN = LazyRegex(
    r"shut|exit|stop|(?<!_)terminat|kill|clean|abort|clos|finished server|destroy|cancel|teardown|wandb|dead|died|signal",
    _IGNORE_CASE,
)
_TROUBLE_HANDLED = LazyRegex(
    r"retry|retri(?:ed|es)|again|going on|fall(?:s|ing)? ?back|skipp|ignor|continu|without it|attempt|restart",
    _IGNORE_CASE,
)

_REPLACED = LazyRegex(
    r"\b(?:set(?:ting)?|us(?:e|es|ed|ing)|switch(?:ed|ing)?|default(?:s|ed|ing)?|cast(?:ing)?|chang(?:ed|ing)|revert(?:ed|ing)?)\b.{1,60}\b(?:instead|forcefully|automatically)\b"
    r"|fall(?:s|ing|en)? ?back|fallback (?:to|is)|will be (?:used|disabled|ignored)|\bdisabl(?:ed|ing) (?:it|the|custom)",
    _IGNORE_CASE,
)

_SKIPPED = LazyRegex(
    r"(?:^|[.,;:(\]] ?|\bso )(?:skipp(?:ing|ed)|ignor(?:ing|ed)|(?:continuing|proceeding|going on) (?:without|anyway)|will (?:skip|ignore|continue without))\b"
    r"|\b[a-z]{2,40}error\(['\"]",
    _IGNORE_CASE,
)


def is_progress_line(line: LogLine) -> bool:
    """A bar, a step, a loss or a throughput with its number, and no complaint."""
    text = line.text[:MAX_TEXT]
    if line.place or line.level in ("E", "W", "C", "F") or not _DIGIT.search(text):
        return False
    if not _BAR.search(text) and not _LOSS.search(text) and (not _STEP.search(text) or _SETTING.search(text)):
        return False
    return not _AT_ZERO.search(text) and not _NAN.search(text) and not _has_complaint(text)


def is_nan_line(line: LogLine) -> bool:
    """A line that shows or tells of what is not a number: after it a run may go on, and learn nothing."""
    return bool(_NAN.search(line.text[:MAX_TEXT]))


def is_answer_line(line: LogLine) -> bool:
    """A request that a server answered well."""
    return not line.place and line.level not in ("E", "W", "C", "F") and bool(_ANSWERED.search(line.text[:MAX_TEXT]))


def is_success_line(line: LogLine) -> bool:
    """A line that says that something ended well, or serves now."""
    text = line.text[:MAX_TEXT]
    if line.place or line.level in ("E", "W", "C", "F"):
        return False
    found = _ENDED_WELL.search(text)
    return bool(found) and not _NOT_YET.search(text) and not _has_complaint(text) and not is_shutdown_line(line)


def is_complaint_line(line: LogLine) -> bool:
    """A line that says that something is wrong, by its level or its words. Warnings are none."""
    text = line.text[:MAX_TEXT]
    if line.level in ("E", "C", "F"):
        return True
    if line.level == "W" or line.place == "derived" or "NCCL INFO" in text or (line.level, line.place) == ("I", "nccl"):
        return False
    return _has_complaint(text)


def states_error(line: LogLine) -> bool:
    """Whether a line calls itself an error or a warning, or says that something could not be done: more than a word like *incompatible*."""
    return line.level in ("E", "C", "F", "W") or bool(line.place) or bool(_STATED.search(line.text[:MAX_TEXT]))


def is_starting_line(line: LogLine) -> bool:
    """A line of ranks that get to know each other: what was done before it proves nothing."""
    return bool(_STARTING.search(line.text[:MAX_TEXT]))


def is_shutdown_line(line: LogLine) -> bool:
    """A line of a process that exits: servers and launchers log this calmly, after what ended them."""
    return bool(_SHUTDOWN.search(line.text[:300]))


def says_handled(text: str) -> bool:
    """Whether a line says that the program goes on in spite of what happened."""
    return bool(_TROUBLE_HANDLED.search(text))


def says_replaced(text: str) -> bool:
    """Whether a line says that something else is used in place of what does not work: ``bf16 is not supported. Set float16 forcefully``."""
    return bool(_REPLACED.search(text[:MAX_TEXT]))


def says_skipped(text: str) -> bool:
    """Whether a line says that a part is left out, and the program goes on: ``Skipping import of x: ...``, ``no x: ImportError('...')``."""
    return bool(_SKIPPED.search(text[:MAX_TEXT])) or says_replaced(text)


def _has_complaint(text: str) -> bool:
    return bool(_COMPLAINT.search(text)) and not _HARMLESS.search(text)
