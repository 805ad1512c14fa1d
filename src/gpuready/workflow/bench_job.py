"""``gpuready bench --job FILE``: a few real steps of a job on this GPU, beside what fit predicts."""

import json
from collections.abc import Callable
from typing import Any

from gpuready import system
from gpuready.fit import FitJob, predict_memory
from gpuready.fit.job import gpu_candidates
from gpuready.model.bench import JobBench
from gpuready.probe.environment_choice import choose_interpreter
from gpuready.workflow import job_spec
from gpuready.workflow.fit import find_gpus
from gpuready.workflow.fit_time import RunClock
from gpuready.workflow.fit_trace import TRACE_ENVIRONMENT
from gpuready.workflow.refusal import Refused, call_or_refuse

STEP_SECONDS = 600.0
MAX_REPORT_BYTES = 1 << 16
WARM_STEPS, TIMED_STEPS = 3, 8
STEP_FIELDS = (
    "method", "micro_batch", "seq", "precision", "optimizer", "checkpointing", "attention", "accumulation", "lora_r", "lora_targets", "clip",
)  # fmt: skip
"""Fields of a job that the real steps follow."""
UNPLAYED = {
    "quant": "",
    "dpo": False,
    "zero": 0,
    "fsdp": False,
    "offload": "",
    "loss": "plain",
    "task": "train",
    "world": 1,
}
"""Fields whose other values the real steps cannot run, with the value that they can."""


def bench_job(
    path: str,
    *,
    python: str | None = None,
    bench: str | None = None,
    show_progress: Callable[..., None] = lambda *_: None,
) -> JobBench:
    """Run steps of the job of a file on this machine's first GPU, and compare them with the prediction."""
    label, spec = call_or_refuse(job_spec.read_job, [path], {})
    machine = find_gpus(None, False)
    if not machine:
        raise Refused(
            "--job runs steps on a GPU, and there is no NVIDIA GPU here; `gpuready fit FILE --on NAME` predicts them"
        )
    job, _ = job_spec.make_fit_job(spec, [machine[0].replace(indexes=(0,))])
    check_playable(job)
    place = machine[0]
    show_progress("predicting")
    clock = RunClock(bench)
    predicted = clock.predict(job, place)
    memory = call_or_refuse(predict_memory, job, gpu_candidates.to_gpu_card(place), False)
    show_progress(f"running {WARM_STEPS + TIMED_STEPS} steps")
    report = run_real_steps(job, python, "cuda")
    return JobBench(
        label, place.name, job_spec.job_without_model(job), predicted, report["seconds"], memory.peak_allocated,
        report["peak_allocated"], report["torch"],
    )  # fmt: skip


def check_playable(job: FitJob) -> None:
    """Refuse a job that real steps of one process cannot play."""
    for name, wanted in UNPLAYED.items():
        value = getattr(job, name)
        if value != wanted:
            raise Refused(f"--job runs one GPU with plain weights; {name} = {value} is not run (fit predicts it)")


def run_real_steps(
    job: FitJob, python: str | None, device: str, steps: int = TIMED_STEPS, warm: int = WARM_STEPS
) -> Any:
    """Run the script in the target environment; its last error line where it fails."""
    host = system.LiveHost()
    interpreter = call_or_refuse(choose_interpreter, host, python)
    script = f"{__file__.rpartition('/')[0].rpartition('/')[0]}/fit/scripts/real_steps.py"
    fields = {name: getattr(job, name) for name in STEP_FIELDS}
    request = {"config": dict(job.model), "job": fields, "device": device, "steps": steps, "warm": warm}
    variables = {name: value for name, value in TRACE_ENVIRONMENT.items() if name != "CUDA_VISIBLE_DEVICES"}
    result = host.run([interpreter, "-s", script, json.dumps(request)], STEP_SECONDS, MAX_REPORT_BYTES, variables)
    if result.rc != 0:
        lines = [line for line in result.err.splitlines() if line.strip()]
        last = lines[-1].strip()[:300] if lines else result.end or "it said nothing"
        raise Refused(f"{interpreter} could not run the steps: {last}")
    return call_or_refuse(read_report, result.out)


def read_report(text: str) -> dict[str, Any]:
    """Return the validated report of the script; ValueError where it is none."""
    try:
        report = json.loads(text.strip().rpartition("\n")[2])
        seconds = {str(name)[:40]: float(value) for name, value in report["seconds"].items()}
        peak, torch = int(report["peak_allocated"]), str(report["torch"])[:40]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("the environment printed something else than the times of the steps") from None
    if not seconds.get("step", 0.0) > 0 or peak < 0:
        raise ValueError("the environment printed times of steps that cannot be")
    return {"seconds": seconds, "peak_allocated": peak, "torch": torch}
