"""The host's pace in eager mode: what a layer takes and what stands beside the layers, and a Python that lacks transformers."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from gpuready import system
from gpuready.catalog import bands
from gpuready.prove import bench as measuring
from gpuready.prove.bench import BenchTask
from gpuready.prove.runner import SCRIPTS_FOLDER
from gpuready.workflow import bench
from tests import target_environment


@pytest.fixture
def eager(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS_FOLDER)
    import bench_eager

    return bench_eager


def test_every_measure_of_the_catalogue_has_its_pass(eager):
    assert list(eager.EAGER_MEASURES) == [kind.name for kind in bands.list_measures() if kind.group == "eager"]


def test_two_depths_tell_a_layer_from_the_rest(eager):
    """A host that needs 3 ms for a call and 0.5 ms for a layer, and is disturbed in every fifth turn."""
    one = eager.EagerBench.__new__(eager.EagerBench)
    one.models = {depth: depth for depth in (eager.SHALLOW, eager.DEEP)}
    turns, one.unread = [], {}

    def time_forward(depth):
        turns.append(depth)
        return (3e-3 + 0.5e-3 * depth) * (4 if len(turns) % 10 == 9 else 1)

    one.time_forward = time_forward
    assert eager.eager_measure(one, "eager-forward")[0](0.0) == (pytest.approx(0.5e-3), pytest.approx(0.5e-3))
    count = len(turns)
    assert eager.eager_measure(one, "eager-forward")[0](0.0) and len(turns) > count, "every pass is measured anew"
    count, rest = len(turns), eager.eager_measure(one, "eager-call")[0]
    assert rest(0.0) == (pytest.approx(3e-3), pytest.approx(3e-3)) and len(turns) == count, "of the same turns"
    assert rest(0.0) == (pytest.approx(3e-3), pytest.approx(3e-3)) and len(turns) > count, (
        "alone, it is measured itself"
    )


def test_without_transformers_it_is_unsupported_and_no_fault_of_the_gpu(eager, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(eager.NotSupportedHere, match="needs transformers"):
        eager.EagerBench(SimpleNamespace(), SimpleNamespace(type="cpu"))


def test_a_quick_run_leaves_it_out():
    quick, whole = ({kind.name for kind in bench.choose_measures(None, fast)} for fast in (True, False))
    assert "eager-forward" in whole and "eager-forward" not in quick and "kernel-launch" in quick


@pytest.mark.faults
def test_a_real_model_of_the_target_environment(tmp_path):
    """On a CPU, where the catalogue does not ask for it: every pass of the real model runs and has a time."""
    python = target_environment.TRANSFORMERS / "bin/python"
    if not python.exists():
        pytest.skip("NO TRANSFORMERS: `make faults` makes the environment")
    words = tuple(f"{kind.name}@cpu" for kind in bands.list_measures() if kind.group == "eager")
    options = {"repeat": 1, "pace": {"pass": 0.01}}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = measuring.run_benchmarks((BenchTask(words, options),), str(python), environment, system.LiveHost())
    assert {row["raw"] for row in found.rows} == {"measured"}, found.rows
