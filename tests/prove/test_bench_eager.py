"""The host's pace in eager mode: what a layer takes and what stands beside the layers, and a Python that lacks transformers."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from gpuready import system
from gpuready.catalog import bands
from gpuready.model import Fact, Facts
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


def make_bench(eager, time_step):
    one = eager.EagerBench.__new__(eager.EagerBench)
    one.models = {depth: depth for depth in (eager.SHALLOW, eager.DEEP)}
    one.unread, one.time_step = {}, time_step
    return one


def test_two_depths_tell_a_layer_from_the_rest(eager, monkeypatch):
    """A host that needs 3 ms for a call and 0.5 ms for a layer, twice that on every second pair of cores."""
    moves, turns = [], []
    monkeypatch.setattr(eager, "move_threads", lambda: moves.append(len(turns)))

    def time_step(depth):
        turns.append(depth)
        slow = 1 + len(moves) % 2
        return {"forward": slow * (3e-3 + 0.5e-3 * depth), "backward": slow * (1e-3 + 1e-3 * depth)}

    one = make_bench(eager, time_step)
    times, best = eager.eager_measure(one, "eager-forward")[0](0.0)
    assert times == pytest.approx([1e-3, 0.5e-3, 1e-3]) and best == pytest.approx(0.5e-3), "one for each placement"
    count = len(turns)
    assert eager.eager_measure(one, "eager-backward")[0](0.0)[0] == pytest.approx([2e-3, 1e-3, 2e-3])
    assert eager.eager_measure(one, "eager-call")[0](0.0)[0] == pytest.approx([6e-3, 3e-3, 6e-3])
    assert len(turns) == count, "of the same turns"
    eager.eager_measure(one, "eager-forward")[0](0.0)
    assert len(turns) > count and len(moves) == 2 * eager.FEWEST_PLACEMENTS, "every pass is measured anew"
    count = len(turns)
    one.unread.clear()
    assert eager.eager_measure(one, "eager-call")[0](0.0)[0] and len(turns) > count, "alone, it is measured itself"


def test_threads_move_to_cores_that_they_may_use_and_are_free_again(eager, monkeypatch):
    asked = []
    allowed = {2, 3, 7}
    monkeypatch.setattr(eager.os, "sched_getaffinity", lambda thread: set(allowed))
    monkeypatch.setattr(eager.os, "sched_setaffinity", lambda thread, cores: asked.append((thread, set(cores))))
    monkeypatch.setattr(eager, "_autograd_threads", lambda: [41])
    for _ in range(20):
        eager.move_threads()
    drawn = [cores for _, cores in asked[0::2]]
    assert {thread for thread, _ in asked} == {0, 41} and all(cores == allowed for _, cores in asked[1::2])
    assert all(len(cores) == 1 and cores <= allowed for cores in drawn) and len({*map(frozenset, drawn)}) > 1


def test_a_container_that_forbids_moving_is_measured_where_it_is(eager, monkeypatch):
    def forbid(thread, cores):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(eager.os, "sched_setaffinity", forbid)
    eager.move_threads()


CORES = tuple(6e-4 * (1.0 if n % 2 else 1.6) for n in range(20))  # half of the cores have a busy neighbour


def measured_row(passes):
    raw = {"name": "eager-forward", "device": "cuda:0", "raw": "measured", "why": "", "at": "", "passes": passes}
    raw |= {"best": min(passes), "spans": ()}
    facts = Facts([Fact("gpu.name", ("NVIDIA H200",), "test", "run")])
    return bench.make_measure(bench.add_expectations(raw, facts, {0: "cuda:0"}, {}), facts)


def test_cores_that_differ_are_a_range_and_no_noise():
    one = measured_row(CORES)
    assert one.verdict == "measured" and one.value == pytest.approx(7.8e-4) and one.passes == CORES
    (note,) = bench._note_unequal_cores((one,))
    assert "0.6 to 0.96 ms for a layer" in note
    assert not bench._note_unequal_cores((measured_row((6e-4, 6.1e-4) * 10),))
    assert not bench._note_unequal_cores((measured_row((6e-4, 9e-4)),)), "two passes are no range"


def test_an_outlier_does_not_move_what_is_typical():
    assert measured_row((*CORES[:-1], 1.0)).value < 1.1 * measured_row(CORES).value


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
