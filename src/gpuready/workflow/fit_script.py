"""``gpuready fit SCRIPT.py``: run a user's own script with every tensor of its GPU fake, and read its memory off."""

import json
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from gpuready import system
from gpuready.fit import H200, FitJob, FitUndecided
from gpuready.fit.job import gpu_candidates
from gpuready.fit.job.records import GpuCard, UnknownLayers
from gpuready.fit.search.script_prediction import (
    MOST_LINES,
    ScriptTape,
    describe_growth,
    predict_script,
    predict_script_time,
    tape_from_script,
    validate_recording,
)
from gpuready.launcher.launch_words import Launch, names_a_script, parse_launch
from gpuready.model.fit import CodeLine, FitResult, GpuCandidate, Proposal
from gpuready.probe.environment_choice import choose_interpreter
from gpuready.system.file_journal import restore_files
from gpuready.system.own_folders import TemporaryFolder, write_scratch_file
from gpuready.system.process.runner import unredacted_variables
from gpuready.system.process.termination import kill_marked_processes
from gpuready.workflow.fit import NO_GPU, SCRIPT_JUDGE, add_peaks, find_gpus, name_machine
from gpuready.workflow.fit_time import RunClock
from gpuready.workflow.refusal import Refused, call_or_refuse
from gpuready.workflow.trace_environment import provide_trace_python

__all__ = ["fit_script", "names_a_script"]
WATCH_SECONDS = 600.0
MAX_OUTPUT = 64 << 20
MAX_REPLY = 1 << 29
PROCESSORS = 132
OFFLINE = {
    "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1",
    "WANDB_MODE": "disabled", "WANDB_DISABLED": "true", "MLFLOW_TRACKING_URI": "", "COMET_MODE": "DISABLED", "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1", "SWANLAB_MODE": "disabled", "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false",
    "PYTORCH_JIT": "0", "TQDM_DISABLE": "1", "PYTHONUNBUFFERED": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
}  # fmt: skip
"""Hubs and trackers are offline, and no GPU is touched."""
HUB_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
NO_TORCH = "ModuleNotFoundError: No module named 'torch'"
ENDED_ITSELF = "the script ended itself before an optimizer step"
OWN_FLAGS = ("--on", "--python", "--world", "--gpus", "--json", "--read-only")
BATCH_WORDS = ("per_device_train_batch_size", "train_batch_size", "micro_batch_size", "batch_size")
TRIALS = "cudnn.benchmark: while cuDNN tries algorithms in the first steps, torch allocates all that is free at the most: this fails nowhere"
ADVICE = "a smaller batch, gradient checkpointing and an optimizer with less state are the changes that cost least"


def fit_script(
    words: Sequence[str],
    *,
    on: str | None = None,
    python: str | None = None,
    world: int | None = None,
    steps: int | None = None,
    download: bool = False,
    every: bool = False,
    search: bool = True,
    clock: RunClock | None = None,
    command: Sequence[str] = (),
    show_progress: Callable[..., None] = lambda *_: None,
    agree: Callable[[str], bool] = lambda _: False,
) -> FitResult:
    """Run a script or a launcher's command line as far as some optimizer steps, and predict its memory."""
    launch = call_or_refuse(parse_launch, words)
    machine = find_gpus(on, every)
    ranks = world or _count_ranks(launch, machine)
    watcher = ScriptWatcher(launch, python, ranks, steps, download, show_progress)
    answer = ScriptAnswer(watcher, machine, clock, name_machine(on))
    try:
        result = answer.complete(launch.words, every)
    except UnknownLayers as no_torch:
        if python:
            raise Refused(f"{no_torch}: name the environment of the script with --python") from None
        own, says = provide_trace_python(agree, show_progress)
        if not own:
            raise Refused(f"{no_torch}; {says}") from None
        again = fit_script(
            words, on=on, python=own, world=world, steps=steps, every=every, search=search, clock=clock, command=command
        )
        return again.replace(notes=(*again.notes, says))
    if search and result.verdict == "does not fit":
        result = result.replace(proposals=answer.try_batches(result, tuple(command)), notes=(*result.notes, ADVICE))
    return result


def _count_ranks(launch: Launch, machine: Sequence[GpuCandidate]) -> int:
    """Return the ranks that the command line states; one for each GPU where it says so, one without a launcher."""
    if launch.ranks is None:
        return 1
    return launch.ranks or max(1, sum(len(place.indexes) for place in machine))


class ScriptWatcher:
    """Runs command lines under the watch."""

    def __init__(
        self,
        launch: Launch,
        python: str | None,
        world: int,
        steps: int | None,
        download: bool,
        show_progress: Callable[..., None],
    ):
        self.launch, self.world, self.steps, self.show_progress = launch, world, steps, show_progress
        self.offline = {name: value for name, value in OFFLINE.items() if not download or name not in HUB_VARIABLES}
        self.host = system.LiveHost()
        self.python = call_or_refuse(choose_interpreter, self.host, python or launch.python or None)
        if launch.kind == "script" and self.host.stat_path(launch.words[0]) is None:
            raise Refused(f"{launch.words[0]} does not exist")

    def watch(self, words: Sequence[str], card: GpuCard) -> dict[str, Any]:
        """Return the recording of one run; FitUndecided, in one sentence, where there is none."""
        self.show_progress(f"running {words[0]} on tensors without memory", at_once=True)
        variables = unredacted_variables(self.host)
        with TemporaryFolder(variables) as folder:
            request = self._write_request(folder, words, card)
            script = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/fit/scripts/watch.py"
            changes = self.offline | {
                "PYTHONPATH": variables.get("PYTHONPATH"),
                "TMPDIR": folder,
                "GPUREADY_WATCH": folder,
            }
            before = self.list_folder()
            try:
                ran = self.host.run([self.python, script, request], WATCH_SECONDS, MAX_OUTPUT, changes)
            finally:
                kill_marked_processes(f"GPUREADY_WATCH={folder}")
                changed = restore_files(f"{folder}/journal")
            reply = system.file_contents.read_text_file(f"{folder}/reply.json", MAX_REPLY)
        if reply is None and _last_line(ran) == NO_TORCH:
            raise UnknownLayers(f"{self.python} has no torch, which {words[0]} is run with{_misplaced_flag(words)}")
        if reply is None:
            raise FitUndecided(_explain_silence(words[0], ran))
        try:
            recording = validate_recording(json.loads(reply))
        except ValueError as error:
            raise FitUndecided(f"{self.python} gave no recording that can be read: {error}") from None
        recording["notes"] += changed
        if left := [name for name, what in self.list_folder().items() if before.get(name) != what]:
            recording["notes"].append(f"written by a program that the script starts, and left: {', '.join(left[:4])}")
        if recording["error"] == ENDED_ITSELF and ran.err.strip():
            recording["error"] = f"{ENDED_ITSELF}: {_last_line(ran)}{_misplaced_flag(words)}"
        return recording

    def list_folder(self) -> dict[str, Any]:
        """Return the files of the working folder, with size and time."""
        found = {name: self.host.stat_path(name) for name in self.host.list_directory(".") or ()}
        return {name: what for name, what in found.items() if what and what["kind"] == "file"}

    def _write_request(self, folder: str, words: Sequence[str], card: GpuCard) -> str:
        major, _, minor = card.capability.partition(".")
        request = {
            "kind": self.launch.kind, "words": list(words), "launcher": self.launch.launcher, "launcher_words": list(self.launch.launcher_words),
            "card": {"name": card.name, "capability": [int(major), int(minor or 0)], "memory": card.memory, "processors": PROCESSORS},
            "count": self.world, "world": self.world, "steps": self.steps or 2, "exact": self.steps is not None, "seconds": 60.0,
            "reply": f"{folder}/reply.json", "journal": f"{folder}/journal", "backups": folder,
        }  # fmt: skip
        return write_scratch_file(f"{folder}/request.json", json.dumps(request).encode())


def _explain_silence(name: str, ran: Any) -> str:
    if ran.end == "endless output":
        return f"{name} wrote more than {MAX_OUTPUT >> 20} MiB without an end: it was ended"
    if ran.end == "deadline":
        return f"{name} did not come to an optimizer step in {WATCH_SECONDS:.0f} s: it was ended (a hang, a wait for another process, or much work on the host)"
    return f"{name} ended without an answer ({ran.end or f'exit code {ran.rc}'}): {_last_line(ran)}"


def _last_line(ran: Any) -> str:
    return next((line for line in reversed(ran.err.splitlines()) if line.strip()), "it said nothing").strip()[:300]


def _misplaced_flag(words: Sequence[str]) -> str:
    """Say that words after the script belong to it, where one of them is a flag of gpuready, and the order that is right."""
    moved = [
        at
        for at, word in enumerate(words)
        if word.partition("=")[0] in OWN_FLAGS or (at and words[at - 1] in OWN_FLAGS and word[:1] != "-")
    ]
    own, rest = ([word for at, word in enumerate(words) if (at in moved) is is_own] for is_own in (True, False))
    order = shlex.join(["gpuready", "fit", *own, *rest])
    return f" (words after the script belong to it; flags of gpuready come before it: {order})" if moved else ""


class ScriptAnswer:
    """The result of a watched script on the GPUs of a machine."""

    def __init__(self, watcher: ScriptWatcher, machine: Sequence[GpuCandidate], clock: RunClock | None, on: str):
        self.watcher, self.machine, self.clock, self.on = watcher, machine, clock, on
        tightest = min(machine, key=lambda place: place.available_memory[0], default=None)
        self.card = H200 if tightest is None else gpu_candidates.to_gpu_card(tightest)
        self.deciding = tightest or GpuCandidate(H200.name, H200.capability, (H200.memory, H200.memory))

    def complete(self, words: Sequence[str], every: bool) -> FitResult:
        job = {"task": "script", "world": self.watcher.world, "command": " ".join(words)}
        result = FitResult(os.path.basename(words[0]), "script", job, {}, judged_by=SCRIPT_JUDGE, machine=self.on)
        try:
            reply = self.watcher.watch(words, self.card)
            return self._judge(result, reply, every)
        except UnknownLayers:
            raise
        except FitUndecided as undecided:
            return result.replace(places=tuple(self.machine), why=str(undecided))

    def _judge(self, result: FitResult, reply: dict[str, Any], every: bool) -> FitResult:
        result = result.replace(
            traceback=reply["traceback"], versions=dict(reply["versions"]), notes=_notes(reply),
            job=dict(result.job) | {"steps": reply["steps"]},
        )  # fmt: skip
        if reply["error"]:
            after = f", after {count_steps(reply)}" if reply["steps"] else ""
            ours = reply["error"].startswith(("not watched: ", "the script "))
            fails = "the script fails: " if reply["traceback"] and not ours else ""
            return result.replace(places=tuple(self.machine), why=f"{fails}{reply['error']}{after}", notes=())
        if not any(type(event) is int for event in reply["events"]):
            return result.replace(places=tuple(self.machine), why="the script put nothing on a GPU")
        job = FitJob({}, world=self.watcher.world, alloc_conf=reply["alloc_conf"])
        tape = tape_from_script(reply, self.card)
        fit, by_line = predict_script(job, self.card, tape)
        grows = describe_growth(tape, fit.peak_reserved, job.alloc_conf, reply["steps"])
        result = result.replace(notes=(*result.notes, *grows))
        gaps = (
            tuple(reply["unmodelled"]),
            tuple(reply["lessened"]) + tuple(f"{place} {what}" for place, what in reply["larger"]),
        )
        places = tuple(gpu_candidates.judge_gpu(place, fit, *gaps) for place in self.machine)
        others = gpu_candidates.list_catalogue_gpus(every) if every or not places else ()
        listed = tuple(gpu_candidates.judge_gpu(place, fit, *gaps) for place in others)
        return add_peaks(result, fit).replace(
            places=places, gpus=listed, why="" if places or every else NO_GPU, unmodelled=gaps[0], lessened=gaps[1],
            lines=_name_lines(by_line, reply["places"]), time=self._time(tape, reply),
        )  # fmt: skip

    def _time(self, tape: ScriptTape, reply: dict[str, Any]) -> Any:
        if self.clock is None:
            return None
        speed = self.clock.find_speed(self.deciding)
        time = None if speed is None else predict_script_time(tape, speed, reply["loader_seconds"], reply["optimizers"])
        if time is None or speed is None:
            return None
        source = f"bench record {self.clock.bench}" if speed.measured else f"data sheet of {self.deciding.name}"
        return time.replace(source=source)

    def try_batches(self, result: FitResult, command: tuple[str, ...]) -> tuple[Proposal, ...]:
        """Run the script again with smaller batches, where its arguments state one."""
        words, at = list(self.watcher.launch.words), _find_batch(self.watcher.launch.words)
        if at is None:
            return ()
        name = words[at].partition("=")[0] if "=" in words[at] else words[at - 1]
        count = int(words[at].rpartition("=")[2])
        for smaller in dict.fromkeys((count // 2, count // 4, 1)):
            if not 0 < smaller < count:
                continue
            words[at] = f"{name}={smaller}" if "=" in words[at] else str(smaller)
            fit = self.complete(words, False)
            if fit.verdict == "fits" and fit.minimum is not None:
                run = (*command[: len(command) - len(words)], *words)
                return (
                    Proposal(
                        f"{name} {smaller}", "smaller batches: more steps for the same data", 1.0, {name: smaller}, (f"{name} {smaller}",), run,
                        fit.verdict, fit.peak_allocated or 0, fit.peak_reserved or 0, fit.peak_device or 0, fit.minimum,
                    ),
                )  # fmt: skip
        return ()


def _find_batch(words: Sequence[str]) -> int | None:
    """Return the position of the batch size among the script's arguments."""
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag[:2] == "--" and flag[2:].replace("-", "_") in BATCH_WORDS:
            place, number = (at, value) if equals else (at + 1, words[at + 1] if len(words) > at + 1 else "")
            return place if number.isdecimal() else None
    return None


def count_steps(reply: dict[str, Any]) -> str:
    return f"{reply['steps']} optimizer step{'s' * (reply['steps'] != 1)}"


def _notes(reply: dict[str, Any]) -> tuple[str, ...]:
    said = [f"what comes after {count_steps(reply)} (evaluation, saving) was not watched", *reply["notes"]]
    said += [f"{place}: {what}" for place, what in reply["assumed"][:4]]
    said += [TRIALS] * (reply["tried"] > 0)
    if reply.get("math"):
        said.append("no fused attention kernel takes these shapes: torch writes all scores out")
    if reply.get("spread"):
        said.append("what depends on scores (which expert gets which token) is spread evenly")
    return tuple(said)


def _name_lines(by_line: dict[int, int], places: Sequence[Any]) -> tuple[CodeLine, ...]:
    named = []
    for line, size in by_line.items():
        path, number, text = places[line] if line >= 0 else ("", 0, "")
        where = f"{os.path.basename(path)}:{number}" if path else "CUDA's libraries"
        named.append(CodeLine(where, text, size))
    return tuple(named[:MOST_LINES])
