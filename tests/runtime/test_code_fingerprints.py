"""What a rank tells of its code."""

from __future__ import annotations

import sys

import pytest

from gpuready.runtime.code_fingerprints import code_fingerprints


def digest_of(monkeypatch, line: str) -> str:
    monkeypatch.setattr(sys, "argv", line.split())
    return code_fingerprints()["arguments"]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("train --local_rank 0 --seed 1", "train --local_rank 1 --seed 1", True),
        ("train --local-rank=0", "train --local-rank=1", True),
        ("train trainer.node_rank=0 seed=1", "train trainer.node_rank=1 seed=1", True),
        ("train --lora_rank 8", "train --lora_rank 64", False),
        ("train /data/ranking.json --seed 2", "train /data/ranking.json --seed 3", False),
        ("train rank 2", "train rank 3", False),
    ],
)
def test_only_the_ranks_own_number_may_differ(monkeypatch, one, other, is_same):
    assert (digest_of(monkeypatch, one) == digest_of(monkeypatch, other)) == is_same
