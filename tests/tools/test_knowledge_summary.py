"""What changed between two knowledge files, in sentences."""

from __future__ import annotations

import knowledge_summary
import pytest

TORCH = [{"version": "2.15.0", "default": "cu132", "python": ["3.11", "3.12"], "source": "a"}]
CASES = [
    (TORCH, [*TORCH, {"version": "2.16.0"}], ["torch: 2.16.0 is new."]),
    ([*TORCH, {"version": "2.1.0"}, {"version": "2.2.0"}], TORCH, ["torch: 2.1.0, 2.2.0 are gone."]),
    (TORCH, [{**TORCH[0], "default": "cu140"}], ["torch 2.15.0, default was cu132, and is cu140."]),
    (TORCH, [{**TORCH[0], "python": ["3.12"]}], ["torch 2.15.0, python was 3.11, 3.12, and is 3.12."]),
    (TORCH, [{**TORCH[0], "rocm": "7.2"}], ["torch 2.15.0, rocm is new: 7.2."]),
    (TORCH, [{**TORCH[0], "source": "b"}], []),
    ([{"says": "x", "a": 1}, {"says": "x", "a": 2}], [{"says": "x", "a": 1}, {"says": "x", "a": 3}], ["torch x (2), a was 2, and is 3."]),
]  # fmt: skip


def test_releases_are_told_by_their_version_and_not_by_the_row_that_they_share():
    """A release that differs splits a row: what the others say has not changed."""
    shared = {"name": "vllm", "torch": "==2.9.1", "source": "a"}
    old = [{**shared, "versions": ["0.15.0", "0.15.1", "0.16.0"]}]
    split = [
        {**shared, "versions": ["0.15.0"]},
        {**shared, "versions": ["0.15.1"], "withdrawn": True},
        {**shared, "versions": ["0.16.0", "0.17.0"]},
    ]
    found = list(knowledge_summary.list_changes({"release": old}, {"release": split}, ""))
    assert found == ["vllm 0.17.0 is new.", "vllm 0.15.1: withdrawn is new: true."]


@pytest.mark.parametrize(("old", "new", "sentences"), CASES)
def test_rows(old, new, sentences):
    assert list(knowledge_summary.list_changes({"torch": old}, {"torch": new}, "")) == sentences


def test_the_whole_text():
    def file(day, **parts):
        return {"date": day, "parts": {name.replace("__", "/"): {"data": data} for name, data in parts.items()}}

    old = file("2026-11-15", catalog__torch={"torch": TORCH}, catalog__patterns={"rows": [["GPU001", "a b"]]})
    new = file(
        "2026-12-01",
        catalog__torch={"torch": TORCH},
        catalog__patterns={"rows": [["GPU001", "a c"]]},
        contracts__trl_2_0={},
    )
    text = knowledge_summary.summarize_changes(old, new)
    assert text.startswith("Knowledge of 2026-12-01 (before: 2026-11-15).")
    assert "The contract trl_2_0 is new." in text
    assert "GPU001: 1 log patterns are new, 1 are gone." in text
    assert "Nothing changed but the day." in knowledge_summary.summarize_changes(old, {**old, "date": "2026-12-01"})
