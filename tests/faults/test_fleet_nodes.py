"""What nodes do for a fleet, really executed: proofs, measures and pairs, over a fake ssh that runs the real node program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuready.fleet.pair_rounds import PairRounds
from gpuready.model.fleet import ANSWERED, FleetNode, NodeAnswer
from gpuready.workflow import fleet_node
from tests import target_environment
from tests.faults import fleets
from tests.faults.fleets import kept
from tests.fleet.test_command import FakeService

pytestmark = pytest.mark.faults


@pytest.fixture
def service(tmp_path: Path) -> FakeService:
    return FakeService(tmp_path)


def asked(service: FakeService, *words: str) -> tuple[dict, float]:
    began = time.monotonic()
    found = service.json(*words, "--python", target_environment.python(), OMP_NUM_THREADS="1", LONE_SHELL="sh")
    return found, time.monotonic() - began


def test_prove_on_nodes_with_and_without_a_shared_disk(service, seen):
    found, seconds = asked(service, "prove", "matmul-bf16", "--hosts", "good1,lone1")
    assert found["states"] == {"answered": "good1,lone1"}, found["reasons"]
    assert found["did"] == "prove" and set(found["verdicts"]) <= {"ready", "not-ready"}, found["verdicts"]
    unknown = {code for code in found["codes"] if not code.startswith(("GPU", "PKG", "CAP"))}
    assert not unknown, "a machine without a GPU is what is wrong here, and nothing else"
    kept("ssh: prove matmul-bf16 on 2 nodes", seconds=round(seconds, 1), verdicts=found["verdicts"])
    seen("fleet prove", "2 nodes prove matmul-bf16", str(found["verdicts"]), seconds)


def test_bench_on_nodes_has_the_figures_of_each(service, seen):
    found, seconds = asked(service, "bench", "--only", "cpu-memory,shared-memory", "--hosts", "good[1-2],lone1")
    assert found["states"] == {"answered": "good[1-2],lone1"}, found["reasons"]
    assert set(found["figures"]) == {"cpu-memory", "shared-memory"}
    for table in found["figures"].values():
        assert set(table) == {"good1", "good2", "lone1"} and all(row[0] > 1e8 for row in table.values())
    assert not found["outliers"], "three are too few for anything to be usual"
    kept("ssh: bench of 2 measures on 3 nodes", seconds=round(seconds, 1))
    seen("fleet bench", "3 nodes measured", str(sorted(found["figures"])), seconds)


def test_g02_ten_thousand_records_cost_each_what_a_thousand_do(seen):
    """The time that is allowed is looked at by the benchmark, on a quiet machine; here the growth and the memory."""
    from benchmarks import fleet_scale

    argv = [sys.executable, fleet_scale.__file__, "--one"]
    env = {**os.environ, "PYTHONPATH": str(fleet_scale.SRC)}
    rows = [
        json.loads(subprocess.run([*argv, size], env=env, capture_output=True, text=True, check=True).stdout)
        for size in ("1000", "10000")
    ]
    assert all(row["peak_mib"] < 512 and row["bytes_a_node"] <= 512 for row in rows), rows
    assert rows[1]["cpu_seconds"] < 20 * rows[0]["cpu_seconds"] and rows[1]["asked_for_details"] < 10, rows
    seen("G02", "10,000 records, linear", f"{rows[1]['peak_mib']} MiB", rows[1]["seconds"])


def test_bisect_over_ssh_reduces_in_pairs_and_looks_at_the_numbers(service, seen):
    found, seconds = asked(service, "bisect", "--hosts", "127.0.0.1,localhost", "--timeout", "60")
    assert found["rounds"] and all(p["outcome"] == "passed" and p["rate"] > 0 for p in found["pairs"])
    assert not found["suspects"] and found["verdict"] in ("clear", "not-ready")
    seen("fleet bisect", "a pair reduces", f"{found['rounds']} rounds", seconds)


class Threads:
    """Both nodes in this process; their ranks are processes with a real torch."""

    name = "threads"

    def ask_nodes(self, nodes, request, deadline, on_answer):
        def work(name: str) -> None:
            on_answer(NodeAnswer(name, ANSWERED, fleet_node.answer_node_request(request, name)))

        threads = [threading.Thread(target=work, args=(node.name,)) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_g15_a_rank_for_each_gpu_and_the_one_that_fails_is_named(seen, monkeypatch):
    """Three ranks on each of two nodes, as for three GPUs, over gloo; then one of them has a GPU that is not there."""
    nodes = [FleetNode("n1", address="127.0.0.1"), FleetNode("n2", address="127.0.0.1")]
    python = target_environment.python()
    patience = 30.0 + 4 * fleets.measure_torch_start(python, 6)
    rounds = PairRounds(Threads(), nodes, f"t{os.getpid()}", ranks=3, python=python, seconds=patience)
    (well,) = rounds(1, [("n1", "n2")])
    assert well.outcome == "passed" and len(well.rates) == 3 and well.rate == min(well.rates) > 0, well
    device = fleet_node._rank_device
    monkeypatch.setattr(
        fleet_node, "_rank_device", lambda part, at: "cuda:1" if (part["rank"], at) == (1, 1) else device(part, at)
    )
    began = time.monotonic()
    (bad,) = rounds(2, [("n1", "n2")])
    assert (bad.outcome, bad.gpus) == ("failed", (1,)) and "n2: GPU 1: " in bad.why, bad
    seen("G15", "the second of three ranks is named", bad.why, time.monotonic() - began)
