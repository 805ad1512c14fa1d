"""Recordings as the nodes of a fleet: judged and compared here, as they are or with another driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.running import gpuready

from gpuready.workflow import fleet_node

H200 = Path(__file__).parent.parent / "machines" / "h200.json"


@pytest.fixture
def recorded(tmp_path):
    """Two machines that differ in their driver's version."""
    for name, driver in (("n1", "580.159.04"), ("n2", "580.95.05")):
        document = json.loads((H200).read_text())
        for fact in document["facts"]:
            values = {"host.name": name, "gpu.uuid": [f"GPU-{name}"], "driver.version": driver}
            fact["value"] = values.get(fact["key"], fact["value"]) if "value" in fact else None
        (tmp_path / f"{name}.json").write_text(json.dumps({**document, "host": name}))
    return tmp_path


def test_recordings_are_compared_and_judged_with_another_driver(recorded):
    told = gpuready("fleet", "check", "transformers", "n1.json", "n2.json", "--json", cwd=recorded)
    document = json.loads(told.out)
    assert {row["facet"] for row in document["drift"]} == {"driver"} and not told.err
    old = gpuready("fleet", "check", "transformers", "n1.json", "n2.json", "--as", "driver=550.54.15", cwd=recorded)
    assert old.code == 1 and "2 of 2 nodes have DRV001" in old.out and "n[1-2]" in old.out


def test_what_only_a_node_can_do_is_refused(recorded):
    for words in (["prove", "trl", "n1.json"], ["check", "n1.json", "--hosts", "a"], ["check", "missing.json"]):
        told = gpuready("fleet", *words, cwd=recorded)
        assert told.code == 2 and len(told.err.strip().splitlines()) == 1, told.err


def test_hardware_of_a_node_is_judged_without_any_python():
    request = {"do": "check", "token": "t", "framework": ["trl"], "options": {"hardware": True}}
    answer = json.loads(fleet_node.check_node(request, "n1"))
    assert not [code for code in answer.get("codes", ()) if code.startswith(("PKG", "BLD"))]
