"""Several runs in one file: where each begins, and which one is answered: the last that tells anything."""

from __future__ import annotations

from collections.abc import Sequence

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine
from gpuready.logs.run_activity import is_complaint_line, is_progress_line, is_success_line

_PROMPT = LazyRegex(
    r"\s{0,4}(?:\([\w./ -]{1,60}\) ?){0,3}"
    r"(?:[\w.-]{1,40}@[\w.-]{1,64}[: ][^$#%>\n]{0,120}[$#%>] ?|\[[\w.@: ~/-]{1,120}\] ?[$#] ?|[$#%❯➜] {1,2}|PS [A-Z]:[^>\n]{0,120}> ?|[A-Z]:\\[^>\n]{0,120}>"
    r"|\+{1,3} |bash-[\d.]{1,6}[$#] |[~/][\w./-]{0,80} ?[$#] )(?=\S)(.{2,2000})"
)
_LAUNCHES = LazyRegex(
    r"(?:(?:sudo|time|nohup|exec|env|!) |[A-Z_][A-Z0-9_]{1,60}=\S{0,200} ){0,20}(?:\S{0,120}/)?"
    r"(?:python[\d.w]{0,6}(?:\.exe)?|torchrun|accelerate|deepspeed|colossalai|srun|sbatch|mpirun|mpiexec|ray|vllm|axolotl|llamafactory-cli|swift|uv|pip3?|conda"
    r"|mamba|make|cmake|ninja|docker|podman|kubectl|jupyter|gpuready|poetry|pixi|bash|sh|nvcc|lightning|composer|sglang|trl|[\w.-]{1,60}\.(?:sh|py)"
    r"|\./\S{1,120})(?: |$)"
)
_LOOKS = LazyRegex(
    r".{0,120}?(?:--version|-V$|-c ['\"]import|collect_env|pip3? (?:list|show|freeze|config)|nvidia-smi|conda (?:list|info)| --help)"
)
_BANNER = LazyRegex(
    r"\W{0,40}(?:={3,80}|-{3,80}|\*{3,80}|#{3,80}|~{3,80}|>{3,80})\s{0,4}.{0,80}?\b(?:run|job|attempt|trial|launch|start(?:ed|ing)?|restart(?:ed|ing)?|retry)\b.{0,120}"
    r"|.{0,120}(?:[Rr]estarting worker group|[Ww]orker group .{0,60}restart|Job \d{1,12} requeued|requeued job|Scheduled restart job|Back-off restarting)"
    r"|.{0,80}\b(?:attempt|restart|retry)(?: (?:no\.?|number|#))? ?[#:]? ?[1-9]\d{0,3} ?(?:of|/) ?\d{1,4}\b.{0,60}(?:start|launch|run).{0,60}",
    2,
)
_INSTALLS = LazyRegex(
    r"\S{0,120}(?:(?:pip3?|conda|mamba|apt(?:-get)?) (?:install|uninstall|remove|create)|uv (?:pip|sync|add)|python\S{0,6} -m pip)"
)
_MARK = LazyRegex(r"[$#%>+❯➜]")
_NAMED = LazyRegex(r"start|attempt|requeue|\brun\b|\bjob\b|\btrial\b|launch|retry", 2)
MAX_PROMPT = 600
"""Characters of a line in which a prompt or a banner may begin."""


def find_command(line: LogLine) -> str:
    """The command that was typed at a prompt, or shown by ``set -x``, if it starts a program."""
    text = line.text[:MAX_PROMPT]
    if not _MARK.search(text):
        return ""
    prompt = _PROMPT.match(text)
    words = next((group for group in prompt.groups() if group), "").strip() if prompt else ""
    return words if words and _LAUNCHES.match(words) and not _LOOKS.match(words) else ""


def is_run_banner(line: LogLine) -> bool:
    """A line that says that a run, a job or an attempt begins."""
    text = line.text[:MAX_PROMPT]
    return bool(_NAMED.search(text)) and bool(_BANNER.match(text)) and not is_complaint_line(line)


class _Run:
    """One run: where it begins, its command, and what it tells."""

    def __init__(self, start: int, command: str):
        self.start, self.command = start, command
        self.lines = 0
        self.is_active = self.complains = False

    def take_line(self, line: LogLine) -> None:
        self.lines += bool(line.text.strip())
        self.complains = self.complains or is_complaint_line(line) or (line.place == "nccl" and line.level == "W")
        self.is_active = self.is_active or self.complains or is_progress_line(line) or is_success_line(line)

    @property
    def is_answered(self) -> bool:
        """Whether the diagnosis is about this run. An installation that worked is none; of a program, any output is enough."""
        if _INSTALLS.match(self.command):
            return self.complains
        return self.is_active or self.lines > 0


def find_runs(lines: Sequence[LogLine]) -> list[_Run]:
    """Every run in the order of the log.

    Banners, and commands shown by ``set -x``, without activity between them are one run: each rank may show its own.
    """
    starts = {i: command for i, line in enumerate(lines) if (command := find_command(line)) or is_run_banner(line)}
    runs = [_Run(0, "")]
    for i, line in enumerate(lines if starts else ()):
        command = starts.get(i, "")
        if i not in starts:
            runs[-1].take_line(line)
        elif runs[-1].is_active or (command and runs[-1].lines and not line.text.lstrip().startswith("+")):
            runs.append(_Run(i, command or runs[-1].command))
        else:
            runs[-1].command = command or runs[-1].command
    return runs


def keep_last_run(lines: Sequence[LogLine]) -> tuple[list[LogLine], str]:
    """The lines of the last run that tells anything, with all that follows, and its command."""
    runs = find_runs(lines)
    last = next((run for run in reversed(runs) if run.is_answered), runs[0])
    return list(lines[last.start :]), last.command
