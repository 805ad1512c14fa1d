"""What users type after --on, held against the machines that they mean (machine_names.toml)."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from gpuready.probe import stated_machine
from tests.every import every

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = tomllib.loads(Path(__file__).with_name("machine_names.toml").read_text())["name"]


@every("row", [row for row in NAMES if "gpus" in row], ids=lambda row: row["typed"])
def test_a_name_that_is_meant(row):
    facts = stated_machine.stated_machine_facts(row["typed"], {})
    found = Counter(facts.value_if_known("gpu.name") or facts.value("accelerator.name"))
    wanted = row["gpus"]
    assert sorted(found.values()) == sorted(wanted.values())
    assert all(name in wanted or name in row.get("any", ()) for name in found)
    if "memory_gib" in row:
        assert set(facts.value("gpu.memory")) == {row["memory_gib"] * 2**30}


@pytest.mark.parametrize("row", [row for row in NAMES if "refused" in row], ids=lambda row: row["typed"])
def test_a_name_that_is_refused(row):
    with pytest.raises(ValueError, match=r"^--on ") as refused:
        stated_machine.stated_machine_facts(row["typed"], {})
    assert row["refused"].casefold() in str(refused.value).casefold() and "\n" not in str(refused.value)


def test_a_row_with_one_source_says_so():
    assert (
        "not confirmed by a second source" in stated_machine.stated_machine_facts("b300", {}).fact("gpu.memory").source
    )
    assert "confirmed" not in stated_machine.stated_machine_facts("h100", {}).fact("gpu.memory").source
