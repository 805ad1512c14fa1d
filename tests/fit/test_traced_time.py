"""The time of a traced job: its kernels by a real torch, and rows that are refused."""

from __future__ import annotations

import pytest

from gpuready.catalog.gpus import find_gpu
from gpuready.fit import H200, FitJob
from gpuready.fit.search import traced_prediction
from gpuready.fit.search.traced_prediction import read_traced_kernels
from gpuready.fit.time.device_speed import speed_from_row
from gpuready.fit.time.prediction import predict_time, split_phases
from tests.fit.kites import KITE

SPEED = speed_from_row(find_gpu("h200"))
TOKENS, HIDDEN, VOCABULARY = 64, KITE["hidden_size"], KITE["vocab_size"]


@pytest.fixture(scope="module")
def kite(kites):
    job = FitJob(KITE, seq=TOKENS).validate_fields()
    return job, traced_prediction.tape_from_trace(job, H200, traced_prediction.validate_trace(kites["kite"]))


def test_the_products_of_a_traced_step_have_their_sizes(kite):
    phases = split_phases(kite[1])
    products = [kernel for kernel in phases["fwd0"] if kernel[0] == "matmul"]
    assert ("matmul", TOKENS, 3 * HIDDEN, HIDDEN, 2, 1, 16) in products
    assert ("matmul", TOKENS, VOCABULARY, HIDDEN, 2, 1, 16) in products
    back = [kernel for kernel in phases["bwd0"] if kernel[0] == "matmul"]
    assert len(back) == 2 * len(products), "of the inputs and of the weights"
    assert [kernel[0] for kernel in phases["fwd0"]].count("attention") == 1
    assert [kernel[0] for kernel in phases["bwd0"]].count("attention backward") == 1
    assert [kernel[:2] for kernel in phases["opt1"]] == [("optimizer", "adamw")]


def test_a_traced_step_has_a_time_of_its_parts(kite):
    job, tape = kite
    found = predict_time(job, H200, SPEED, tape)
    assert set(found.parts) >= {"forward", "backward", "optimizer"} and min(found.parts.values()) > 0
    assert found.bound_by == "launches" and found.step_seconds == pytest.approx(sum(found.parts.values()))


def test_no_memory_that_is_only_allocated_or_viewed_counts_as_a_kernel(kite):
    forward = split_phases(kite[1])["fwd0"]
    assert len(forward) == 14, forward  # two of them draw and compare the number of layerdrop
    assert ("spread", 257 * TOKENS, 4 * TOKENS * HIDDEN) in forward, "the rows of the embedding, read and written"


@pytest.mark.parametrize(
    "row",
    [["move"], ["move", -1], ["move", 1.5], ["move", True], ["move", 1 << 60], ["fly", 1], "move", ["matmul", 1, 2], ["attention", 3, *[1] * 8], [["move"], 1]],
)  # fmt: skip
def test_a_row_that_is_no_kernel_is_refused(row):
    with pytest.raises(ValueError, match="the trace has"):
        read_traced_kernels([["move", 8], row])
    assert read_traced_kernels([["move", 8], ["phase", "fwd0"]]) == [("move", 8), ("phase", "fwd0")]
