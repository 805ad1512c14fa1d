"""How the GPUs are set: compute modes and MIG."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from tests.rules.worlds import gpus, judged

MIG = "MIG-7c1b5a52-0000-5222-8333-44444444444"


# -- GPU006 -------------------------------------------------------------------------------------------


def row(gpu, command="python train.py"):
    return {"gpu": gpu, "pid": 4711, "used": 1 << 30, "user": "ada", "command": command}


def test_a_shut_display_card_beside_an_open_one_is_a_warning():
    machine = gpus(2, mode=("prohibited", "default"))
    found = judged("GPU006", machine)
    assert found.severity == "warning" and found.fix[0].does.endswith("CUDA_VISIBLE_DEVICES=GPU-1")
    assert judged("GPU006", machine | {"job.gpus": 2}).severity == "error"
    assert judged("GPU006", machine | {"job.gpus": 1}).severity == "warning"


@pytest.mark.parametrize("mode", ["exclusive-process", "exclusive-thread"])
def test_an_exclusive_gpu_that_somebody_holds(mode):
    found = judged("GPU006", gpus(2, mode=mode, processes=(row(1),)))
    assert found.severity == "warning" and "GPU 1" in found.says and "GPU 0" not in found.says
    assert {f.key for f in found.found} == {"gpu.mode", "gpu.processes"}


def test_an_exclusive_gpu_that_is_free_is_as_clusters_have_it():
    assert judged("GPU006", gpus(2, mode="exclusive-process", processes=())) is None


def test_the_mps_server_holds_the_gpu_for_all():
    machine = gpus(1, mode="exclusive-process", processes=(row(0, "nvidia-cuda-mps-server"),))
    assert judged("GPU006", machine) is None
    unseen = gpus(1, mode="exclusive-process", processes=(row(0, None),))
    assert isinstance(judged("GPU006", unseen), Finding)
    assert judged("GPU006", unseen | {"env.CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}) is None


def test_a_default_gpu_may_be_shared():
    assert judged("GPU006", gpus(1, mode="default", processes=(row(0),))) is None


def test_holders_that_cannot_be_seen_matter_only_in_exclusive_mode():
    assert judged("GPU006", gpus(1, mode="default"), gpu_processes="denied") is None
    assert isinstance(judged("GPU006", gpus(1, mode="exclusive-process"), gpu_processes="denied"), UnknownFactError)


# -- GPU007 -------------------------------------------------------------------------------------------


def instances(*parents):
    return tuple({"gpu": parent, "uuid": f"{MIG}{i}", "memory_total": 10 << 30} for i, parent in enumerate(parents))


def test_one_of_two_without_instance_is_a_warning_until_the_job_needs_both():
    machine = gpus(2, mig=("on", "off"), mig_devices=())
    assert judged("GPU007", machine).severity == "warning"
    assert judged("GPU007", machine | {"job.gpus": 2}).severity == "error"
    assert judged("GPU007", machine).fix[0].does.endswith("=GPU-1")


def test_the_fix_names_the_gpu():
    machine = gpus(3, mig=("off", "on", "on"), mig_devices=instances(1))
    found = judged("GPU007", machine)
    assert "GPU 2" in found.says and any("-i 2 " in step.does for step in found.fix)


@pytest.mark.parametrize("mode", ["off", "none"])
def test_mig_off_or_unheard_of(mode):
    assert judged("GPU007", gpus(2, mig=mode, mig_devices=())) is None


def test_several_instances_and_no_choice_is_a_line_that_names_one():
    machine = gpus(1, mig="on", mig_devices=instances(0, 0)) | {"visibility.cuda": None}
    found = judged("GPU007", machine)
    assert found.severity == "info" and f"{MIG}0" in found.says
    by_index = machine | {"visibility.cuda": {"value": "0", "shown": (0,)}}
    assert judged("GPU007", by_index).severity == "info"


def test_an_instance_that_is_named_or_the_only_one_needs_no_line():
    machine = gpus(1, mig="on", mig_devices=instances(0, 0))
    assert judged("GPU007", machine | {"visibility.cuda": {"value": f"{MIG}0", "shown": (0,)}}) is None
    alone = gpus(1, mig="on", mig_devices=instances(0))
    assert judged("GPU007", alone | {"visibility.cuda": None}) is None


def test_a_whole_gpu_beside_an_instance_is_a_choice():
    machine = gpus(2, mig=("on", "off"), mig_devices=instances(0)) | {"visibility.cuda": None}
    assert judged("GPU007", machine).severity == "info"


def test_information_is_never_undecided():
    assert judged("GPU007", gpus(1, mig="on", mig_devices=instances(0, 0)), visibility_cuda="denied") is None


def test_instances_without_uuid_still_count():
    nameless = ({"gpu": 0, "uuid": None}, {"gpu": 0, "uuid": None})
    found = judged("GPU007", gpus(1, mig="on", mig_devices=nameless) | {"visibility.cuda": None})
    assert found.severity == "info" and "such as" not in found.says
