"""Many proofs: beside each other where that is safe, in order, and the GPU proved again after one that broke."""

from __future__ import annotations

import os
import time

import pytest

from gpuready.prove.placement import ProofTask
from gpuready.prove.session import ProofSession, default_job_count
from tests.prove.scripts import GOOD, PYTHON, row
from tests.prove.test_ground import facts

NAP = "def run_proof(p):\n    import time\n    time.sleep(0.6)\n    p.record_number('begun', __import__('time').time())\n    p.record_number('x', 1, 'equal', 1)\n"


def session(known, **options):
    return ProofSession(known, PYTHON, os.environ, **options)


def test_all_run_and_come_back_in_order_and_each_is_told_once(tmp_path):
    result = []
    rows = [row(tmp_path, GOOD, name) for name in ("one", "two", "three")]
    found = session(facts(), jobs=2, tell=lambda proof, done, count: result.append((proof.name, done, count))).run(rows)
    assert [p.name for p in found] == ["one", "two", "three"] and all(p.verdict == "passed" for p in found)
    assert sorted(done for _, done, _ in result) == [1, 2, 3] and {count for *_, count in result} == {3}


def test_a_broken_one_does_not_stop_the_others(tmp_path):
    crash = "def run_proof(p):\n    import ctypes\n    ctypes.string_at(0)\n"
    rows = [row(tmp_path, crash, "bad"), row(tmp_path, GOOD, "good")]
    assert [p.verdict for p in session(facts()).run(rows)] == ["crashed", "passed"]


def test_one_that_must_be_alone_is(tmp_path):
    rows = [row(tmp_path, NAP, f"nap{n}") for n in range(2)] + [row(tmp_path, NAP, "lone", alone=True)]
    found = {p.name: p for p in session(facts(), jobs=4).run(rows)}
    lone = found["lone"].numbers["begun"]["value"]
    assert all(lone - p.numbers["begun"]["value"] >= 0.55 for p in found.values() if p.name != "lone")


def test_gpu_memory_is_not_promised_twice(tmp_path):
    rows = [row(tmp_path, NAP, f"nap{n}", device="cuda", memory=30 << 30) for n in range(2)]
    first, second = session(facts(gpu__free=(40 << 30,)), jobs=4).run(rows)
    assert abs(second.numbers["begun"]["value"] - first.numbers["begun"]["value"]) >= 0.55


def test_what_may_start_beside_what_runs(tmp_path):
    def fits(known, mine, others, jobs=4):
        one = session(known, jobs=jobs)
        one.running = [(task, None) for task in others]
        return one._may_start_now(mine)

    gpu = ProofTask(row(tmp_path, GOOD, "gpu"), "cuda:0", 1, 30 << 30)
    cpu = ProofTask(row(tmp_path, GOOD, "cpu"), "cpu", 2)
    wide, narrow = facts(gpu__free=(80 << 30,)), facts(gpu__free=(40 << 30,))
    assert fits(wide, gpu, [gpu]) and not fits(narrow, gpu, [gpu]) and fits(narrow, cpu, [gpu])
    assert fits(narrow, gpu, []), "what cannot be beside others can still be tried alone"
    assert not fits(wide, cpu, [cpu, gpu], jobs=4) and fits(wide, cpu, [gpu], jobs=4)
    shut = facts(gpu__free=(80 << 30,), gpu__mode=("exclusive-process",))
    assert not fits(shut, gpu, [gpu]) and fits(shut, cpu, [gpu])
    lone = gpu.replace(row=gpu.row.replace(alone=True))
    assert not fits(wide, lone, [cpu]) and not fits(wide, cpu, [lone]) and fits(wide, lone, [])


def test_after_a_hang_on_a_gpu_the_gpu_is_proved_again(tmp_path):
    """Here there is no torch in the Python that is asked: what counts is that it was asked, once, and by name."""
    rows = [
        row(
            tmp_path,
            "def run_proof(p):\n    import time\n    time.sleep(300)\n",
            "endless",
            device="cuda",
            deadline=1.0,
        )
    ]
    found = session(facts()).run(rows)
    assert [p.name for p in found] == ["endless", "cuda, after endless"]
    assert found[0].verdict == "hung" and found[1].capability == ("cuda",)


def test_an_error_of_cuda_too_has_the_gpu_proved_again_and_another_error_has_not(tmp_path):
    cuda = "def run_proof(p):\n    raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"
    other = "def run_proof(p):\n    raise RuntimeError('no such file')\n"
    rows = [row(tmp_path, cuda, "stray", device="cuda"), row(tmp_path, other, "other", device="cuda")]
    found = session(facts()).run(rows)
    assert sorted(p.name for p in found) == ["cuda, after stray", "other", "stray"]


def test_an_interruption_leaves_nothing(tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    one = session(facts(), jobs=2, tell=stop)
    body = "def run_proof(p):\n    import time\n    time.sleep(300)\n"
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        one.run([row(tmp_path, GOOD, "quick"), row(tmp_path, body, "slow")])
    assert all(process.has_ended for _, running in one.running for process in running.processes)
    assert time.monotonic() - begun < 300 / 2


def test_jobs_follow_the_processors():
    assert [default_job_count(n) for n in (1, 2, 4, 16, 96)] == [1, 1, 2, 8, 8]
