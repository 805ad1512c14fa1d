"""``gpuready fit --trace``: run a job on the meta device of the target's torch, and replay its allocations here."""

from __future__ import annotations

from gpuready import system
from gpuready.fit import Undecided, traced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.fit import Fit, Job
    from gpuready.fit.job import Card

SECONDS = 300.0
LIMIT = 1 << 28
QUIET = {
    "PYTHONPATH": None, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip


class Tracer:
    """``predict`` from traces; every job is traced once."""

    def __init__(self, python: str | None) -> None:
        self.python = python
        self._told: dict[str, Any] = {}

    def __call__(self, job: Job, card: Card, search: bool = True) -> Fit:
        import json

        job = job.checked()
        asked = json.dumps(traced.asked(job, card))
        if asked not in self._told:
            self._told[asked] = self._traced(asked)
        return traced.predict(job, card, self._told[asked], search)

    def _traced(self, asked: str) -> Any:
        """Run the trace script in the target environment; Undecided, with its last error line, where it fails."""
        import json

        from gpuready.probe.patient import patient

        door = system.Live()
        python = patient(door, self.python).path
        script = f"{__file__.rpartition('/')[0].rpartition('/')[0]}/fit/scripts/trace.py"
        ran = door.run([python, "-s", script, asked], SECONDS, LIMIT, QUIET)
        if ran.rc != 0:
            last = next(
                (line for line in reversed(ran.err.splitlines()) if line.strip()),
                ran.end or "it said nothing",
            )
            raise Undecided(f"{python} could not trace the model: {last.strip()[:300]}")
        try:
            return traced.checked(json.loads(ran.out.strip().rpartition("\n")[2]))
        except ValueError as bad:
            raise Undecided(f"{python} gave no trace that can be read: {bad}") from None
