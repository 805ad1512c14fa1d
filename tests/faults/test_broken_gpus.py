"""C01-C12 and C22: GPUs that a variable hides, that others hold, or that a library or a server keeps from the job."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.probe.samples import smi_gpu, smi_xml

FIRST = "GPU-00000000-1111-2222-3333-444444444440"


def shown(nvml, value):
    nvml.variables |= {"FAKE_GPUS": "2", "FAKE_HALF": "1", "FAKE_PROCESSES": "0"}
    nvml.gpus(2)
    return nvml.check(env={"CUDA_VISIBLE_DEVICES": value})


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
    assert ran.code == 1 and ran.out.startswith("cause (95 % sure): the CUDA MPS daemon does not answer")
    assert "nvidia-cuda-mps-control -d" in ran.out


# -- GPUs that others hold ----------------------------------------------------------------------------------

KEPT = "<process_info><pid>{}</pid><type>C</type><process_name>python old.py</process_name><used_memory>{} MiB</used_memory></process_info>"
FULL = {"used": "140000 MiB", "free": "3156 MiB"}


def asked(machine, *argv, **gpu):
    machine.says("nvidia-smi", smi_xml(smi_gpu(0, **gpu)))
    return machine.check(*argv)


def test_c06_a_gpu_in_exclusive_mode_is_held(machine):
    found = asked(machine, compute_mode="Exclusive_Process", processes=KEPT.format(4711, 900))
    says = found.finding("GPU006")["says"]
    assert "another process uses" in says and "exclusive compute mode" in says
    assert "4711" in found.words("GPU006") and "-c DEFAULT" in found.words("GPU006")


def test_c07_a_gpu_in_prohibited_mode_is_told_by_a_check(machine):
    found = asked(machine, compute_mode="Prohibited")
    assert found.code == 1 and "compute mode prohibited" in found.finding("GPU006")["says"]


def test_c08_memory_that_another_process_holds(machine):
    machine.file("/proc/4711/cmdline", "python\0old.py\0")
    found = asked(machine, "--model", "7b", "--wants", "bf16", processes=KEPT.format(4711, 140000), **FULL)
    words = found.words("MEM002")
    assert "4711" in words and "python old.py" in words


def test_c10_memory_that_nobody_visible_holds(machine):
    found = asked(machine, "--model", "7b", "--wants", "bf16", **FULL)
    assert "not visible" in found.words("MEM002") or "cannot be seen" in found.words("MEM002")


def test_c11_the_holder_is_a_process_that_was_stopped(machine):
    holder = subprocess.Popen(["sleep", "1000"])
    try:
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        for name in ("stat", "status", "cmdline"):
            machine.file(f"/proc/{holder.pid}/{name}", Path(f"/proc/{holder.pid}/{name}").read_bytes())
        found = asked(machine, "--model", "7b", "--wants", "bf16", processes=KEPT.format(holder.pid, 140000), **FULL)
    finally:
        holder.kill()
        holder.wait()
    row = found.value("gpu.processes")[0]
    assert row["pid"] == holder.pid and row["state"] == "stopped" and str(holder.pid) in found.words("MEM002")


def test_c12_the_stub_of_libcuda_comes_first(machine):
    machine.gone("/usr/lib")
    machine.libcuda("12.6", "/usr/local/cuda/lib64/stubs")
    found = machine.check(env={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"})
    assert found.code == 1 and "/usr/local/cuda/lib64/stubs" in found.words("DRV005")
