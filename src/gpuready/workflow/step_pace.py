"""Is a run as fast as it should be? The step times that its log shows, beside what fit predicts for its file."""

import re
import statistics
from collections.abc import Iterable, Sequence
from itertools import islice

from gpuready import system
from gpuready.jobs.config_reader import JobSettings
from gpuready.model.diagnosis import Diagnosis
from gpuready.model.fit import GpuCandidate, format_time_span
from gpuready.workflow import fit, job_spec
from gpuready.workflow.fit_time import RunClock
from gpuready.workflow.refusal import Refused, call_or_refuse, host_for_named_files

SCRIPT_SUFFIXES = (".py", ".sh")  # a script may name its job too, but a file beside it says more
MAX_LOG_BYTES = 64 << 20
SKIPPED_STEPS = 3  # the first ones compile, allocate and fill caches
FEWEST_STEPS = 12  # of which a pattern is read
SLOW = 1.3  # a step that takes this many times the upper end of its prediction's range is slow
PROGRESS = re.compile(rb"(\d{1,9})/\d{1,9} \[[^\]<]{1,40}<[^\],]{1,40}, *([0-9.]{1,12}) ?(s/it|it/s)")
STATED = (
    (re.compile(rb"['\"]?train_steps_per_second['\"]?\s*[:=]\s*['\"]?([0-9.]{1,12})"), 0.0),
    (re.compile(rb"elapsed time per iteration \(ms\): ?([0-9.]{1,12})"), 1e-3),  # Megatron-LM
    (re.compile(rb"iter time \(s\): ?([0-9.]{1,12})"), 1.0),  # DeepSpeed's pipeline engine
)
"""Times of a step that a line states: the pattern, and the seconds of its unit; 0: steps a second."""
RATE_WORDS = (b"s/it", b"it/s", b"train_steps_per_second", b"per iteration (ms)", b"iter time (s)")
BLOCK_LINES = 4096
"""Lines that are searched for words at once: a pattern for each line takes thirty times as long, and most logs have none of the words."""


def read_step_times(lines: Iterable[bytes]) -> list[float]:
    """Return the seconds of steps that a log shows."""
    times: list[float] = []
    rest = iter(lines)
    while block := list(islice(rest, BLOCK_LINES)):
        text = b"\n".join(block).lower()
        if any(word in text for word in RATE_WORDS):
            _read_rates(block, times)
    return times


def _read_rates(lines: Iterable[bytes], times: list[float]) -> None:
    for line in lines:
        for piece in line.split(b"\r"):
            for shown in PROGRESS.finditer(piece):
                _add_rate(times, shown[2], int(shown[1][:9]), shown[3] == b"it/s")
            for pattern, unit in STATED:
                if (stated := pattern.search(piece)) is not None:
                    _add_rate(times, stated[1], 1 << 30, not unit, unit)
                    break


def _add_rate(times: list[float], text: bytes, step: int, per_second: bool, unit: float = 1.0) -> None:
    try:
        value = float(text)
    except ValueError:
        return
    if value > 0 and step > SKIPPED_STEPS:
        times.append(1 / value if per_second else value * unit)


def add_pace(diagnosis: Diagnosis, logs: Sequence[str], config: str, machine: Sequence[GpuCandidate]) -> Diagnosis:
    """Add to a diagnosis whether the steps of its log take as long as they should."""
    times = read_step_times(line for path in logs for line in _read_lines(path))
    _, spec = call_or_refuse(job_spec.read_job, [config], {})
    said = _compare_pace(times, spec, machine)
    return diagnosis.replace(notes=(*diagnosis.notes, said)) if said else diagnosis


def judge_run_pace(log: str, words: Sequence[str], on: str | None = None) -> str:
    """Say whether the steps of a run that has ended took as long as they should, where a file of its command line names its job."""
    times = read_step_times(_read_lines(log))
    if not times:
        return ""  # most runs: nothing else is imported
    files = sorted(filter(job_spec.is_job_file, words), key=lambda word: word.endswith(SCRIPT_SUFFIXES))
    try:
        _, spec = job_spec.read_job(files[:1], {})
        return _compare_pace(times, spec, fit.find_gpus(on, False))
    except (ValueError, Refused, system.AccessError):
        return ""  # a file of another kind: the run's own answer stands without it


def _compare_pace(times: Sequence[float], spec: JobSettings, machine: Sequence[GpuCandidate]) -> str:
    if not times or not machine:
        return ""
    try:
        job, _ = job_spec.make_fit_job(spec, list(machine))
        time = RunClock().predict(job, machine[0])
    except ValueError:
        return ""
    if time is None or time.step_seconds is None:
        return ""
    pattern = describe_slow_pattern(times, time.range[1])
    return describe_pace(statistics.median(times), time.step_seconds, time.range, time.bound_by, pattern)


def describe_slow_pattern(times: Sequence[float], high: float) -> str:
    """Say what the step times themselves tell of slow steps: whether some are fast, or whether they became slow; "" where they do not."""
    if len(times) < FEWEST_STEPS:
        return ""
    third = len(times) // 3
    first, last = statistics.median(times[:third]), statistics.median(times[-third:])
    if first <= high and last > SLOW * first:
        return f"steps were as fast as they should be at first ({format_time_span(first)}) and then slowed down ({format_time_span(last)}): the GPU's temperature and clocks, or another process"
    fast = sorted(times)[len(times) // 10]
    if fast <= high:
        return f"some steps were as fast as they should be ({format_time_span(fast)}), others were not: the GPU waits for data, for the writing of checkpoints, or for another process"
    return ""


def describe_pace(measured: float, predicted: float, limits: tuple[float, float], bound: str, pattern: str) -> str:
    """Say in one sentence whether steps are as fast as they should be, and what their times tell where they are not."""
    shown = f"a step took {format_time_span(measured)}; by gpuready fit it should take {format_time_span(limits[0])} to {format_time_span(limits[1])}"
    if measured <= SLOW * limits[1]:
        return f"{shown}: as fast as it should be"
    likely = pattern or (
        "look at the loading of data, at other processes on the GPU, and at `gpuready bench`"
        if bound != "launches"
        else "the job is bound by the host: small batches, and other work on its cores, make it slower"
    )
    return f"{shown}: {measured / predicted:.1f} times as long as predicted. {likely[:1].upper()}{likely[1:]}"


def _read_lines(path: str) -> list[bytes]:
    """Return the lines of a log, as far as they are read; none where it cannot be read."""
    try:
        text = host_for_named_files().read_text(path, MAX_LOG_BYTES)
    except system.AccessError:
        return []
    return (text or "").encode("utf-8", "surrogateescape").split(b"\n")
