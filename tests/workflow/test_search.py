"""Search: what people type, and what they must find."""

from __future__ import annotations

import pytest

from gpuready.workflow.refusal import Refused
from gpuready.workflow.search import SearchEntry, SearchIndex, search_entries, tokenize_text


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
    names = [row["name"] for row in search_entries(query, most=3)]
    assert any(found in name for name in names), names


def test_kinds_and_how_many():
    rows = search_entries("memory", ["fact"], 5)
    assert len(rows) == 5 and {row["kind"] for row in rows} == {"fact"}
    scores = [row["score"] for row in search_entries("nccl timeout", most=50)]
    assert scores == sorted(scores, reverse=True)
    assert search_entries("zzzzqqqq") == []


def test_a_hit_says_where_the_rest_is():
    (row,) = search_entries("vllm flash-attn capability", ["contract"], 1)
    assert row["more"].startswith("gpuready contract show vllm==") and len(row["excerpt"]) < 240


@pytest.mark.parametrize("bad", [{"query": "  "}, {"query": "a" * 600}, {"query": "x", "most": 0}])
def test_what_cannot_be_searched_is_refused(bad):
    with pytest.raises(Refused):
        search_entries(**bad)


def test_words_are_compared_as_people_mean_them():
    assert tokenize_text("Drivers") == tokenize_text("driver") and "p2p" in tokenize_text("NCCL_P2P_DISABLE")
    assert "12.8" in tokenize_text("CUDA 12.8") and tokenize_text("class") == ["class"]


def test_a_rare_word_weighs_more_than_a_common_one():
    rows = [SearchEntry("fact", f"f{n}", "gpu memory", "", "") for n in range(9)]
    index = SearchIndex([*rows, SearchEntry("fact", "rare", "gpu zebra", "", "")])
    scores = index.score_entries(["gpu", "zebra"])
    assert max(scores, key=lambda n: scores[n]) == 9
