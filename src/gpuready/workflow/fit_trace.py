"""``gpuready fit --trace``: run a job on the meta device of the target's torch, and replay its allocations here."""

import json
from typing import Any

from gpuready import system
from gpuready.fit import FitJob, FitPrediction, FitUndecided
from gpuready.fit.job.records import GpuCard, UnknownLayers
from gpuready.fit.search import traced_prediction
from gpuready.fit.tape.autograd import Tape
from gpuready.probe.environment_choice import choose_interpreter
from gpuready.workflow.refusal import call_or_refuse

TRACE_SECONDS = 300.0
MAX_TRACE_BYTES = 1 << 28
TRACE_ENVIRONMENT = {
    "PYTHONPATH": None, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip


class Tracer:
    """``predict`` from traces; every job is traced once. Weights in ``folder`` must be those of the traced class."""

    def __init__(self, python: str | None, folder: str = "") -> None:
        self.python, self.folder = python, folder
        self._traces: dict[str, Any] = {}

    def __call__(self, job: FitJob, card: GpuCard, search: bool = True) -> FitPrediction:
        job = job.validate_fields()
        return traced_prediction.predict_traced(job, card, self._find_trace(job, card), search)

    def make_tape(self, job: FitJob, card: GpuCard) -> Tape | None:
        """Return the tape of a job, for its time; None where its trace has no kernels."""
        job = job.validate_fields()
        trace = self._find_trace(job, card)
        return traced_prediction.tape_from_trace(job, card, trace) if trace.get("kernels") else None

    def _find_trace(self, job: FitJob, card: GpuCard) -> Any:
        request = json.dumps(traced_prediction.build_trace_request(job, card) | {"folder": self.folder})
        if request not in self._traces:
            self._traces[request] = self._run_trace(request)
        return self._traces[request]

    def _choose_python(self, host: system.LiveHost) -> str:
        if self.python is not None:
            return call_or_refuse(choose_interpreter, host, self.python)
        try:
            return choose_interpreter(host)
        except ValueError as error:
            raise UnknownLayers(str(error)) from None

    def _run_trace(self, request: str) -> Any:
        """Run the trace script in the target environment; Undecided, with its last error line, where it fails."""
        host = system.LiveHost()
        python = self._choose_python(host)
        script = f"{__file__.rpartition('/')[0].rpartition('/')[0]}/fit/scripts/trace.py"
        result = host.run([python, "-s", script, request], TRACE_SECONDS, MAX_TRACE_BYTES, TRACE_ENVIRONMENT)
        if result.rc != 0:
            last = next(
                (line for line in reversed(result.err.splitlines()) if line.strip()), result.end or "it said nothing"
            )
            kind = UnknownLayers if self.python is None and last.startswith("ModuleNotFoundError") else FitUndecided
            raise kind(f"{python} could not trace the model: {last.strip()[:300]}")
        try:
            return traced_prediction.validate_trace(json.loads(result.out.strip().rpartition("\n")[2]))
        except ValueError as error:
            raise FitUndecided(f"{python} gave no trace that can be read: {error}") from None
