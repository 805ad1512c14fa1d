"""A loss that is NaN to the end, and a loss scale that cannot fall any more, are failures even where the run goes on."""

from __future__ import annotations

import pytest

from gpuready.workflow.diagnose import diagnose_logs


def cause_of(*lines: str) -> str:
    found = diagnose_logs([["\n".join((*lines, "")).encode()]], look=False)
    return found.cause or found.verdict


STEPS = [f"step {n} loss: {2.0 - n / 10:.2f} lr 1e-4" for n in range(6)]


@pytest.mark.parametrize(
    "line", ["step {} loss: nan lr 1e-4", "{{'loss': nan, 'step': {}}}", "Epoch {} Loss nan (1.2)", "[{}] kl_loss=inf, step 3", "it {} | loss | nan"]
)  # fmt: skip
def test_a_loss_that_is_not_finite_to_the_end(line):
    assert cause_of(*STEPS, *(line.format(n) for n in range(6, 10))) == "loss-diverged"


def test_it_is_the_cause_although_a_later_line_of_the_program_raises():
    raised = [
        "Traceback (most recent call last):",
        '  File "train.py", line 9, in <module>',
        "    write(x)",
        "ValueError: must be finite",
    ]
    assert cause_of(*STEPS, *(f"step {n} loss: nan" for n in range(4)), *raised) == "loss-diverged"


def test_one_bad_step_is_none():
    assert cause_of(*STEPS, "step 6 loss: nan lr 1e-4", *STEPS) == "healthy"
    assert cause_of(*STEPS) == "healthy"


def test_a_loss_scale_at_its_minimum():
    falls = [
        f"[INFO] Grad overflow, reducing dynamic loss scale from {2**n} to {2 ** (n - 1)}" for n in range(16, 1, -1)
    ]
    assert cause_of(*falls, *STEPS) == "healthy", "the scale is searched at the beginning of every run"
    stuck = ["[INFO] Grad overflow, reducing dynamic loss scale from 1 to 1", *STEPS] * 4
    assert cause_of(*falls, *stuck) == "fp16-overflow"
