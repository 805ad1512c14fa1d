"""C01-C05: what CUDA makes of CUDA_VISIBLE_DEVICES, and what is said of it before anything is imported; C22: MPS."""

from __future__ import annotations

import pytest

START = 1.5
"""What the command itself may take on a busy machine, in seconds."""

FIRST = "GPU-00000000-1111-2222-3333-444444444440"


def shown(nvml, value):
    nvml.variables |= {"FAKE_GPUS": "2", "FAKE_HALF": "1", "FAKE_PROCESSES": "0"}
    nvml.gpus(2)
    found = nvml.check(env={"CUDA_VISIBLE_DEVICES": value})
    assert found.seconds < START
    return found


@pytest.mark.parametrize("value", ["", "-1"])
def test_c01_the_variable_hides_all(nvml, value):
    found = shown(nvml, value)
    assert found.code == 1 and found.codes == ["GPU002"]
    says = f"the variable CUDA_VISIBLE_DEVICES hides all GPUs (value '{value}')"
    assert found.finding("GPU002")["says"] == says


@pytest.mark.parametrize("value", ["0,99", "0,abc"])
def test_c02_the_variable_is_truncated_in_silence(nvml, value):
    found = shown(nvml, value)
    assert found.code == 1 and found.codes == ["GPU003"] and found.value("gpu.visible") == [0]
    assert f"are dropped: '{value[2:]}'" in found.finding("GPU003")["says"]


def test_c03_a_gpu_is_named_twice(nvml):
    assert "'0' names a GPU twice" in shown(nvml, "0,0").finding("GPU002")["says"]


@pytest.mark.parametrize("value", ["abc", "GPU-deadbeef", "MIG-x"])
def test_c04_the_variable_names_nothing_here(nvml, value):
    found = shown(nvml, value)
    assert f"'{value}' is " in found.finding("GPU002")["says"]
    assert FIRST in found.words("GPU002")


@pytest.mark.parametrize("value", [FIRST, "GPU-00000000", " 0"])
def test_c05_spellings_that_cuda_takes(nvml, value):
    found = shown(nvml, value)
    assert found.code == 0 and found.value("gpu.visible") == [0]


def test_c05_a_beginning_of_two_uuids(nvml):
    assert "begins the UUID of several GPUs" in shown(nvml, "GPU-0000000").finding("GPU002")["says"]


# -- the server of MPS ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "MPS client failed to connect to the MPS control daemon or the MPS server",
        "the remote MPS server is not ready to accept new MPS client requests",
    ],
    ids=["805", "807"],
)
def test_c22_the_daemon_of_mps_is_gone_and_its_pipe_is_not(machine, words):
    log = machine.folder / "train.log"
    log.write_text(f"step 1 loss 2.31\n[rank0]: RuntimeError: CUDA error: {words}\n")
    ran = machine.run("diagnose", str(log))
    assert ran.code == 1 and "mps-daemon-gone[GPU006]" in ran.out and "nvidia-cuda-mps-control -d" in ran.out
