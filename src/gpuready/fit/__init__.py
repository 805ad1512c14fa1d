"""How much GPU memory a job will need: the tape of a step, replayed through a model of the caching allocator."""

from __future__ import annotations

from gpuready.fit.job import H200, Card, Fit, Job, Undecided

__all__ = ["H200", "Card", "Fit", "Job", "Undecided", "predict"]


def predict(job: Job, card: Card = H200, search: bool = True, most: int = 1 << 62) -> Fit:
    """What this job will hold on this card; Undecided where the engine has no model for it.

    Without ``search`` the smallest reserve that survives is not looked for: faster, and ``minimum`` is then
    ``peak_reserved``. Where it is sure to be above ``most``, it is looked for no further.
    """
    from gpuready.fit.prediction import predict as answer

    return answer(job, card, search, most)
