"""What the files of a release on the index add to its contract."""

from __future__ import annotations

import pytest

from gpuready.apply.index_release import IndexRelease
from gpuready.model import Contract
from gpuready.workflow.index_contract import _with_own_files


@pytest.mark.parametrize(
    ("line", "want"),
    [("nvidia-cutlass-dsl[cu13]==4.8.0", ">=13,<14"), ("cupy-cuda12x>=13", ">=12,<13"), ("x-cu13; extra == 'a'", "")],
)
def test_the_cuda_in_the_names_of_what_is_required(line, want):
    contract = _with_own_files(Contract("x", "1"), IndexRelease("x", "1", ("torch==2.14", line)))
    assert [need.want for need in contract.requirements_for("torch.cuda")] == ([want] if want else [])


def test_a_release_with_wheels_for_some_pythons_alone():
    contract = _with_own_files(
        Contract("x", "1"), IndexRelease("x", "1", pythons=("3.11", "3.12"), uploaded="2025-01-02")
    )
    assert contract.requirements_for("python.version")[0].want == "<3.13" and contract.released == "2025-01-02"
