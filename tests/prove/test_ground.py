"""Where a proof can run is known before anything is started: hidden, shut, held and full GPUs are named."""

from __future__ import annotations

import os

import pytest

from gpuready.catalog import gpus, proofs
from gpuready.catalog.proofs import ProofSpec
from gpuready.model import Fact, Facts
from gpuready.model.proof import ProofResult
from gpuready.prove import placement, runner
from gpuready.prove.placement import ProofTask
from gpuready.workflow import prove
from tests.rules.worlds import H100

ANY = ProofSpec("demo", "demo", "any", ("bf16",), memory=1 << 30)
GPU = ANY.replace(device="cuda")
HOLDER = {"gpu": 0, "pid": 4711, "used": 70 << 30, "user": "ada", "command": "python train.py"}


def facts(**changes: object) -> Facts:
    result = (
        H100
        | {"package.torch": "2.11.0", "gpu.mode": ("default",)}
        | {k.replace("__", "."): v for k, v in changes.items()}
    )
    return Facts([Fact(key, value) for key, value in result.items()], "host")


def one(row: ProofSpec, known: Facts) -> ProofTask | ProofResult:
    found = placement.place_proof(row, known, 4)
    assert found is not None
    return found


def test_on_a_machine_with_a_gpu_it_runs_there():
    assert one(ANY, facts()) == ProofTask(ANY, "cuda:0", 1, (1 << 30) + placement.CONTEXT_BYTES)
    cpu = ANY.replace(device="cpu")
    assert one(cpu, facts()) == ProofTask(cpu, "cpu")


def test_without_a_gpu_it_is_absent_and_nothing_is_started():
    absent = one(ANY, facts(gpu__count=0, gpu__visible=()))
    assert (
        (absent.verdict, absent.capability) == ("absent", ("bf16",))
        and "no GPU" in absent.why
        and absent.lacks == "gpu"
    )
    assert one(GPU, facts(gpu__count=0, gpu__visible=())).verdict == "absent"


def test_a_job_for_the_cpu_is_proved_on_the_cpu():
    known = facts(job__wants=("cpu",))
    assert one(ANY, known) == ProofTask(ANY, "cpu") and placement.place_proof(GPU, known, 4) is None


@pytest.mark.parametrize("value", ["", "-1", "99", "GPU-deadbeef", "0,0"])
def test_c01_to_c04_a_gpu_that_is_hidden_is_named_with_the_value(value):
    table = {"value": value, "shown": (), "ignored": (value,), "why": f"{value!r} is no GPU of this machine"}
    found = one(GPU, facts(gpu__visible=(), visibility__cuda=table))
    assert found.verdict == "absent"
    assert f"CUDA_VISIBLE_DEVICES hides all GPUs (value {value!r})" in found.why and "is no GPU" in found.why


def test_c06_a_gpu_in_exclusive_mode_that_somebody_holds():
    found = one(GPU, facts(gpu__mode=("exclusive-process",), gpu__processes=(HOLDER,)))
    assert found.verdict == "absent"
    assert "EXCLUSIVE_PROCESS" in found.why and "process 4711 of ada (python train.py)" in found.why
    free = facts(gpu__mode=("exclusive-process",))
    assert isinstance(one(GPU, free), ProofTask) and placement.is_gpu_exclusive(free)


def test_c07_a_gpu_in_prohibited_mode():
    found = one(GPU, facts(gpu__mode=("prohibited",)))
    assert found.verdict == "absent" and "nvidia-smi -i 0 -c DEFAULT" in found.why


def test_c08_memory_that_somebody_holds_is_told_before_the_start():
    found = one(GPU, facts(gpu__free=(1 << 29,), gpu__processes=(HOLDER,)))
    assert found.verdict == "skipped"
    assert "needs 1792 MiB of GPU 0, and 512 MiB are free" in found.why
    assert "process 4711 of ada (python train.py), 71680 MiB" in found.why
    unseen = one(GPU, facts(gpu__free=(1 << 29,)))
    assert "not visible here" in unseen.why


def test_a_gate_keeps_out_what_the_gpu_does_not_have():
    row = GPU.replace(gate="fp8_scaled_mm")
    found = one(row, facts(gpu__capability=("8.0",)))
    assert found.verdict == "unsupported" and "8.0" in found.why
    assert isinstance(one(row, facts()), ProofTask)


def test_too_few_gpus_are_skipped_and_ranks_follow_the_gpus():
    pair = GPU.replace(gpus=2)
    assert one(pair, facts()).verdict == "skipped"
    eight = {key: value * 8 for key, value in H100.items() if key.startswith("gpu.") and isinstance(value, tuple)}
    known = facts(**{k.replace(".", "__"): v for k, v in eight.items()}, gpu__count=8, gpu__mode=("default",) * 8)
    known = known.with_facts(Fact("gpu.visible", tuple(range(8))))
    assert isinstance(one(pair, known), ProofTask)
    assert one(GPU.replace(ranks=0), known).ranks == 8 and one(GPU.replace(ranks=0), facts()).ranks == 1
    assert placement.place_proof(ANY.replace(device="cpu", ranks=0), facts(), 16).ranks == 4


def test_what_is_not_installed_is_absent_and_what_nobody_could_see_is_tried():
    assert "torch is not installed" in one(GPU, facts(package__torch=None)).why
    listing = Fact("python.packages", 3)
    assert one(GPU.replace(package="xformers"), facts().with_facts(listing)).why == "xformers is not installed"
    dark = facts().with_facts(
        Fact("gpu.visible", None, gap="the driver is silent"), Fact("gpu.count", None, gap="dark")
    )
    assert isinstance(one(GPU, dark), ProofTask)


def test_every_row_of_the_catalogue_can_be_placed():
    for row in proofs.list_proofs():
        assert row.device in ("cuda", "cpu", "any") and row.source and row.deadline > 0, row.name
        assert placement.place_proof(row, facts().with_facts(Fact("python.packages", 3)), 2)
        assert os.path.exists(os.path.join(runner.SCRIPTS_FOLDER, f"{row.script}.py")), row.name
        assert not row.gate or gpus.find_feature(row.gate), row.name
        assert row.capability or row.framework, row.name
        assert set(row.executed.split()) <= {"cpu", "h200"}, row.name
    names = [row.name for row in proofs.list_proofs()]
    assert len(names) == len(set(names))


def test_c11_a_holder_that_is_stopped_is_said_to_be():
    held = {"gpu": 0, "pid": 7, "used": 90 << 30, "user": "ann", "command": "python train.py", "state": "stopped"}
    known = facts(gpu__free=(1 << 20,), gpu__processes=(held,))
    found = one(proofs.find_proof("cuda"), known)
    assert "process 7 of ann (python train.py), 92160 MiB, stopped" in found.why


def test_c09_memory_of_a_process_that_was_just_killed_is_waited_for(monkeypatch):
    monkeypatch.setattr(prove, "MEMORY_POLL_SECONDS", 0.0)
    rows, looks = [proofs.find_proof("cuda")], []

    def look():
        looks.append(1)
        return [Fact("gpu.free", (80 << 30,) if len(looks) > 2 else (1 << 20,))]

    full = facts(gpu__free=(1 << 20,), gpu__processes=())
    assert prove.wait_for_free_memory(full, rows, look).value_if_known("gpu.free") == (80 << 30,) and len(looks) == 3
    monkeypatch.setattr(prove, "MEMORY_WAIT_SECONDS", 0.0)
    assert prove.wait_for_free_memory(full, rows, look).value_if_known("gpu.free") == (1 << 20,), (
        "and then it is reported as it is"
    )
    held = full.with_facts(Fact("gpu.processes", ({"gpu": 0, "pid": 7},)))
    monkeypatch.setattr(prove, "MEMORY_WAIT_SECONDS", 50.0)
    assert prove.wait_for_free_memory(held, rows, look) is held, "one who is there may stay for days"
