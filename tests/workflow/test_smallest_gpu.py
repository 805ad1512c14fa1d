"""A job that does not fit names the smallest GPU that it fits."""

from __future__ import annotations

import gpuready
from gpuready.workflow.fit import NO_GPU_HOLDS_IT, fit_job


def test_the_smallest_gpu_is_the_first_of_all_that_fit():
    result = fit_job(["llama-3.2-1b"], {}, on="rtx3060")
    every = fit_job(["llama-3.2-1b"], {}, every=True)
    first = next(place for place in every.gpus if place.verdict == "fits")
    assert result.verdict == "does not fit" and result.smallest_gpu is not None
    assert result.smallest_gpu.memory == first.memory
    shown = str(gpuready.fit("llama-3.2-1b", on="rtx3060"))
    assert f"smallest GPU that it fits as it is: {result.smallest_gpu.name} (" in shown


def test_where_no_gpu_is_large_enough_it_says_so():
    result = fit_job(["llama-3.1-70b"], {}, on="rtx4090")
    shared = f"{NO_GPU_HOLDS_IT}; --world N --zero 3 shares it between N GPUs"
    assert result.smallest_gpu is None and shared in result.notes
    assert NO_GPU_HOLDS_IT not in " ".join(fit_job(["llama-3.2-1b"], {}, on="rtx3060").notes)


def test_a_job_that_is_shared_already_is_advised_more_gpus():
    notes = " ".join(fit_job(["llama-3.2-1b"], {"world": 2, "zero": 3, "micro_batch": 4096}, on="h100").notes)
    assert f"{NO_GPU_HOLDS_IT}; a larger --world than 2 shares it between more GPUs" in notes
    assert "--zero 3" not in notes


def test_none_is_named_where_it_fits():
    assert fit_job(["llama-3.2-1b"], {}, on="h200").smallest_gpu is None
