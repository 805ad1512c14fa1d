"""Predict how much GPU memory a job needs: record a step on a tape, replay it through a model of the caching
allocator.
"""

from gpuready.fit.job.records import H200, FitJob, FitPrediction, FitUndecided, GpuCard
from gpuready.fit.search.prediction import predict_job as answer

__all__ = ["H200", "FitJob", "FitPrediction", "FitUndecided", "GpuCard", "predict_memory"]


def predict_memory(job: FitJob, card: GpuCard = H200, search: bool = True, most: int = 1 << 62) -> FitPrediction:
    """Predict the memory of a job on a card; FitUndecided if the engine has no model for it.

    Without ``search`` the minimum reserve is not searched: faster, and ``minimum`` is then ``peak_reserved``.
    The search stops once the minimum is known to exceed ``most``.
    """
    return answer(job, card, search, most)
