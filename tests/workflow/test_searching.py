"""Search: what people type, and what they must find."""

from __future__ import annotations

import pytest

from gpuready.workflow.refusal import Refused
from gpuready.workflow.searching import Entry, Index, search, words


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("Bus error in docker, shared memory", "SYS001"),
        ("DRV001", "DRV001"),
        ("the NVIDIA driver on your system is too old", "DRV001"),
        ("cudaErrorInsufficientDriver", "DRV001"),
        ("no kernel image is available for execution on the device", "GPU0"),
        ("flash-attn undefined symbol", "PKG012"),
        ("NCCL_P2P_DISABLE", "=="),
        ("driver.version", "driver.version"),
        ("too many open files", "too-many-open-files"),
    ],
)
def test_the_answer_is_among_the_first_three(query, found):
    names = [row["name"] for row in search(query, most=3)]
    assert any(found in name for name in names), names


def test_kinds_and_how_many():
    rows = search("memory", ["fact"], 5)
    assert len(rows) == 5 and {row["kind"] for row in rows} == {"fact"}
    scores = [row["score"] for row in search("nccl timeout", most=50)]
    assert scores == sorted(scores, reverse=True)
    assert search("zzzzqqqq") == []


def test_a_hit_says_where_the_rest_is():
    (row,) = search("vllm flash-attn capability", ["contract"], 1)
    assert row["more"].startswith("gpuready contract show vllm==") and len(row["excerpt"]) < 240


@pytest.mark.parametrize("bad", [{"query": "  "}, {"query": "a" * 600}, {"query": "x", "most": 0}])
def test_what_cannot_be_searched_is_refused(bad):
    with pytest.raises(Refused):
        search(**bad)


def test_words_are_compared_as_people_mean_them():
    assert words("Drivers") == words("driver") and "p2p" in words("NCCL_P2P_DISABLE")
    assert "12.8" in words("CUDA 12.8") and words("class") == ["class"]


def test_a_rare_word_weighs_more_than_a_common_one():
    rows = [Entry("fact", f"f{n}", "gpu memory", "", "") for n in range(9)]
    index = Index([*rows, Entry("fact", "rare", "gpu zebra", "", "")])
    scores = index.scores(["gpu", "zebra"])
    assert max(scores, key=lambda n: scores[n]) == 9
