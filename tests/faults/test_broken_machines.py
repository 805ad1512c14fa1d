"""D01-D24: drivers, NVML, nvidia-smi and toolkits that are broken, as the user of the command sees it.

Every test runs the real command on a machine out of files (see bench.py), which also looks that no process, file,
traceback or control character is left. cases.toml says which case is tested where.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.faults.bench import ELF, patience, strays
from tests.probe.samples import smi_gpu, smi_xml, uuid

HANG = "exec sleep 98765"
SHORT, SHORT_S = 0.5, 1.5
"""The pace at which a program may hang for 1.5 s: those beside it answer within that on a slow machine."""

MODULE = ("/sys/module/nvidia", "/proc/driver", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
"""Everything that the loaded module of a driver shows."""


def unknown(found, *words):
    """The GPU is unknown for a reason that is told, nobody says that there is none, and the rest is there."""
    assert found.code == 3 and "GPU001" not in found.codes
    assert found.facts["gpu.count"]["value"] is None
    for word in words:
        assert word in found.gap("gpu.count")
    assert found.value("gpu.pci_count") == 1 and found.value("driver.version") == "580.95.05"
    assert found.value("package.torch") == "2.13.0+cu126" and found.value("compiler.gcc") == "12.3.0"


def test_the_machine_is_well_until_it_is_broken(machine):
    found = machine.check()
    assert (found.code, found.undecided) == (0, []) and found.value("gpu.name") == ["NVIDIA H200"]
    assert not [f for f in found.found["findings"] if f["severity"] == "error"]


# -- nvidia-smi -------------------------------------------------------------------------------------------


def test_d01_nvidia_smi_hangs(machine):
    machine.program("nvidia-smi", HANG)
    machine.pace = SHORT
    found = machine.check()
    unknown(found, "nvidia-smi: deadline", "PCI 0000:04:00.0")
    assert SHORT_S * 0.9 <= found.seconds < SHORT_S + 0.5 + patience()


def test_d02_a_process_that_cannot_be_killed_is_left_and_named(machine):
    """Here the kill does nothing; a process that no kill reaches is in test_root.py."""
    machine.program("nvidia-smi", "exec sleep 300")
    machine.pace = 0.1
    deaf = "from gpuready.system.process import termination\ntermination.kill_group = lambda group: None\n"
    process = machine.start("check", "transformers", "--json", before=deaf, marker="bench-d02")
    out, err = process.communicate(timeout=60)  # long before the program ends
    (left,) = strays("bench-d02")
    os.kill(left, signal.SIGKILL)
    facts = {fact["key"]: fact for fact in json.loads(out)["facts"]}
    assert process.returncode == 3 and err == b""
    assert f"nvidia-smi: unkillable: pid {left} in state S" in facts["gpu.count"]["gap"]


def test_d03_it_hangs_after_half_of_its_output(machine):
    machine.gpus(3)
    whole = smi_xml(*(smi_gpu(i) for i in range(3)))
    machine.says("nvidia-smi", whole[: whole.index(uuid(2))], then=HANG)
    machine.pace = SHORT
    found = machine.check()
    assert found.value("gpu.count") == 3
    assert found.facts["gpu.uuid"]["value"] == [uuid(0), uuid(1), None]
    assert found.gap("gpu.uuid") == "GPU 2: nvidia-smi stopped before it was told (deadline)"
    assert found.code == 3 and found.seconds < SHORT_S + 0.5 + patience()


@pytest.mark.parametrize("leader", ["", "sleep 98764"])
def test_d04_a_grandchild_holds_the_pipe(machine, leader):
    machine.says("nvidia-smi", smi_xml(smi_gpu(0)), then=f"sleep 98765 &\n{leader}")
    machine.pace = SHORT if leader else 1.0
    found = machine.check()  # the bench finds a sleep that is left
    assert found.value("gpu.count") == 1
    assert found.seconds < (SHORT_S if leader else 0) + 0.5 + patience()


def test_d05_it_crashes(machine):
    machine.program("nvidia-smi", "kill -SEGV $$")
    unknown(machine.check(), "nvidia-smi: signal SEGV")


def test_d06_it_succeeds_without_a_word(machine):
    machine.program("nvidia-smi", ":")
    unknown(machine.check(), "nvidia-smi ended with 0 and wrote nothing")


def test_d07_bytes_that_are_not_text(machine):
    machine.says("nvidia-smi", smi_xml(smi_gpu(0)).encode().replace(b"NVIDIA H200", b"NVIDIA \xff\xfe H200"))
    assert machine.check().value("gpu.name") == ["NVIDIA \\xff\\xfe H200"]
    assert "\\xff\\xfe H200" in machine.screen()


@pytest.mark.parametrize("endless", ["yes", "yes >&2", "head -c 50000000 /dev/zero"])
def test_d08_output_that_never_ends(machine, endless):
    machine.program("nvidia-smi", endless)
    found = machine.check()
    unknown(found, "nvidia-smi: endless output")
    assert found.seconds < 3 + patience() and len(found.out) < 500_000


def test_d08_output_that_is_cut_is_said_to_be(machine):
    machine.says("nvidia-smi", smi_xml(smi_gpu(0), attached=2).encode() + b"x" * 2_000_000)
    found = machine.check()
    assert found.facts["gpu.name"]["value"] == ["NVIDIA H200", None]
    assert found.gap("gpu.name") == "GPU 1: nvidia-smi stopped before it (its output was cut)"


def test_d09_what_a_terminal_would_act_on(machine):
    """The bench looks at every character of every output: none of them moves a cursor."""
    name = "H200 \x1b[31m \x07 \x1b]52;c;ZXZpbA==\x07 \r gone"
    machine.says("nvidia-smi", smi_xml(smi_gpu(0, product_name=name)))
    (read,) = machine.check().value("gpu.name")  # no XML document may have these characters
    assert read == "H200 ?[31m ? ?]52;c;ZXZpbA==? \n gone"
    for shown in (machine.screen(), machine.screen("-v"), machine.run("probe").out):
        assert "]52;c;ZXZpbA==" in shown


def test_d10_another_language(machine):
    result = machine.folder / "english.xml"
    result.write_text(smi_xml(smi_gpu(0)))
    machine.program("nvidia-smi", f'[ "$LC_ALL$LANGUAGE" = C ] && exec cat {result}\necho Aufruf nicht verstanden')
    machine.program("gcc", '[ "$LC_ALL$LANGUAGE" = C ] && echo 12.3.0 || echo Fehler')
    found = machine.check(env={"LC_ALL": "de_DE.UTF-8", "LANG": "ja_JP.UTF-8", "LANGUAGE": "de"})
    assert found.code == 0 and found.value("gpu.count") == 1 and found.value("compiler.gcc") == "12.3.0"


@pytest.mark.parametrize("words", ["[N/A]", "[Not Supported]", "ERR!", "[Unknown Error]", "1,5"])
def test_d11_words_where_a_number_should_be(machine, words):
    machine.says("nvidia-smi", smi_xml(smi_gpu(0, total=words, current_power_limit=words)))
    found = machine.check()
    assert found.gap("gpu.memory") and found.facts["gpu.memory"]["value"] is None
    assert found.gap("gpu.power_limit") and found.value("gpu.uuid") == [uuid(0)]


def test_d12_commas_and_quotes_in_a_name(machine):
    machine.says("nvidia-smi", smi_xml(smi_gpu(0, product_name="NVIDIA &quot;H200&quot;, 141GB &amp; more")))
    found = machine.check()
    assert found.value("gpu.count") == 1
    assert found.value("gpu.name") == ['NVIDIA "H200", 141GB & more']


# -- NVML and the driver ----------------------------------------------------------------------------------


@pytest.mark.parametrize("worker", ["NVML", "nvidia-smi"])
def test_d13_the_halves_of_the_driver_differ(worker, machine, request):
    machine.libcuda("590.44.01")
    if worker == "NVML":
        request.getfixturevalue("nvml").variables["FAKE_INIT"] = "18"
    else:
        said = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 590.44\n"
        machine.says("nvidia-smi", said, then="exit 18")
    found = machine.check()
    assert found.code == 1 and found.codes == ["DRV002"]
    assert "580.95.05" in found.words("DRV002") and "590.44.01" in found.words("DRV002")
    assert "reboot" in found.finding("DRV002")["fix"][0]["does"]
    assert "reload the nvidia modules" in found.finding("DRV002")["fix"][1]["does"]


def test_d14_the_driver_is_not_loaded(nvml):
    nvml.variables["FAKE_INIT"] = "9"
    nvml.gone(*MODULE)
    found = nvml.check()
    assert found.code == 1 and found.codes == ["DRV004"]
    assert found.finding("DRV004")["says"] == "the driver does not answer: no kernel module is loaded"
    assert found.value("driver.version") is None and found.value("driver.says") == "Driver Not Loaded"
    assert "/sys/module/nvidia/version" in found.facts["driver.version"]["source"]


def test_d15_nvml_and_libcuda_are_missing(machine):
    machine.gone("/usr/bin/nvidia-smi", "/usr/lib")
    found = machine.check()
    assert found.code == 1 and found.codes == ["DRV004"]
    assert "its libraries are not installed" in found.finding("DRV004")["says"]
    assert "install the libraries" in found.finding("DRV004")["fix"][0]["does"]
    assert "libnvidia-ml.so.1 not found" in found.gap("gpu.count")


def test_d15_a_library_that_is_none(machine):
    machine.variables["GPUREADY_NVML"] = str(machine.file("/usr/lib/libnvidia-ml.so.1", "not a library"))
    machine.gone("/usr/bin/nvidia-smi")
    unknown(machine.check(), "cannot be loaded")


def test_d16_half_of_the_calls_are_not_supported(nvml):
    nvml.variables |= {"FAKE_HALF": "1", "FAKE_GPUS": "1", "FAKE_PROCESSES": "0"}
    found = nvml.check()
    assert (found.code, found.undecided) == (0, [])
    assert found.gap("gpu.power_limit") == found.gap("gpu.pcie") == "Not Supported"
    assert found.value("gpu.memory") == [141 << 30] and found.value("gpu.ecc") == ["none"]


def test_d17_one_gpu_of_eight_is_lost(nvml):
    nvml.variables |= {"FAKE_GPUS": "8", "FAKE_LOST": "3"}
    nvml.gpus(8)
    found = nvml.check()
    assert found.code == 1 and found.value("gpu.count") == 8
    assert found.finding("GPU013")["says"] == "fallen off the bus: GPU 3 (0000:1e:00.0)"
    names = found.facts["gpu.name"]["value"]
    assert names[3] is None and len([name for name in names if name]) == 7
    assert "CUDA_VISIBLE_DEVICES=3" not in found.out  # nobody is sent to the one that is lost


def test_d18_nvml_hangs_and_nvidia_smi_answers(nvml):
    nvml.variables["FAKE_HANG"] = "init"
    nvml.nvml_pace = 0.025
    found = nvml.check()
    assert found.value("gpu.count") == 1 and found.facts["gpu.count"]["source"] == "nvidia-smi -q -x"
    assert found.code == 3 and found.undecided == ["DRV004"]
    assert found.gap("driver.error") == "NVML: no answer within 0.5 s"
    assert found.seconds < 0.5 + 0.5 + patience()


def test_d18_nvml_hangs_at_one_gpu(nvml):
    nvml.variables |= {"FAKE_HANG": "gpu1", "FAKE_PROCESSES": "0"}
    nvml.gpus(2)
    nvml.nvml_pace = 0.1
    found = nvml.check()
    assert found.facts["gpu.memory"]["value"] == [141 << 30, None]
    assert found.gap("gpu.memory") == "GPU 1: no answer within 2 s"
    assert found.facts["gpu.lost"]["value"] == [] and "GPU 1" in found.gap("gpu.lost")


def test_d18_nvml_crashes(nvml):
    nvml.variables["FAKE_CRASH"] = "init"
    nvml.program("nvidia-smi", "kill -SEGV $$")
    unknown(nvml.check(), "NVML: crashed: signal SEGV", "nvidia-smi: signal SEGV")


def test_d19_the_bus_has_more_than_the_driver_lists(nvml):
    nvml.variables["FAKE_GPUS"] = "2"
    nvml.gpus(4)
    found = nvml.check()
    assert found.finding("GPU014")["says"] == "the PCI bus has 4 NVIDIA GPUs and the driver lists 2"


def test_d20_a_container_whose_devices_were_taken_away(nvml):
    nvml.variables["FAKE_INIT"] = "999"
    nvml.file("/.dockerenv")
    nvml.file("/dev/nvidiactl", mode=0)
    found = nvml.check()
    assert found.code == 1 and found.codes == ["DRV004"]
    assert found.finding("DRV004")["fix"][0]["does"] == "restart the container; it has lost its devices"
    assert "systemd" in machine_words(nvml, "DRV004")


def machine_words(machine, code):
    """The long story of a code on one line."""
    return " ".join(machine.run("explain", code).out.split())


def test_d21_devices_that_may_not_be_opened(nvml):
    nvml.variables["FAKE_INIT"] = "4"
    for name in ("nvidia0", "nvidiactl"):
        nvml.file(f"/dev/{name}", mode=0o600)
    found = nvml.check()
    assert found.code == 1 and found.finding("DRV004")["says"] == "the driver does not answer: no permission"
    assert '"path": "/dev/nvidia0", "mode": "0600"' in found.words("DRV004")


def test_d21_devices_that_are_not_there(nvml):
    nvml.variables["FAKE_INIT"] = "9"
    nvml.gone("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
    found = nvml.check()
    assert found.code == 1 and found.codes == ["DRV004"]
    assert {f["key"]: f["value"] for f in found.finding("DRV004")["found"]}["gpu.nodes"] == []


# -- toolkits and libraries -------------------------------------------------------------------------------


def toolkit(machine, version):
    machine.file(f"/usr/local/cuda-{version}/version.json", json.dumps({"cuda": {"version": f"{version}.1"}}))
    machine.program("nvcc", "exit 1", folder=f"/usr/local/cuda-{version}/bin")


def headers(machine):
    machine.file("/usr/include/python3.12/Python.h")


def test_d22_a_driver_and_no_toolkit(machine):
    headers(machine)
    assert machine.check().code == 0
    found = machine.check("--wants", "build")
    assert found.code == 1 and found.codes == ["BLD006"]


def test_d22_a_toolkit_and_no_driver(machine):
    headers(machine)
    toolkit(machine, "12.6")
    machine.link("/usr/local/cuda", "cuda-12.6")
    machine.gone(*MODULE, "/usr/bin/nvidia-smi", "/usr/lib")
    found = machine.check("--wants", "build")
    assert found.code == 1 and found.codes == ["DRV004"]
    assert found.value("toolkit.version") == "12.6.1"


def test_d23_three_toolkits_a_stale_variable_and_a_dead_link(machine):
    headers(machine)
    for version in ("11.8", "12.4", "12.6"):
        toolkit(machine, version)
    machine.link("/usr/local/cuda", "cuda-12.6")
    machine.link("/usr/bin/nvcc", "/nowhere/nvcc")
    found = machine.check("--wants", "build", env={"CUDA_HOME": "/usr/local/cuda-12.1"})
    assert found.codes == ["BLD007"] and "/usr/local/cuda-12.1" in found.finding("BLD007")["says"]
    assert [row["version"] for row in found.value("toolkit.others")] == ["12.6.1", "11.8.1", "12.4.1"]
    assert found.value("toolkit.chosen_by") == "CUDA_HOME"
    without = machine.check("--wants", "build")
    assert without.code == 0 and without.value("toolkit.chosen_by") == "/usr/local/cuda"


def test_d23_an_nvcc_that_hangs(machine):
    machine.program("nvcc", HANG)
    machine.pace = SHORT
    found = machine.check()
    assert found.gap("toolkit.version") == "deadline" and found.value("toolkit.nvcc") == "/usr/bin/nvcc"
    assert found.value("compiler.gcc") == "12.3.0" and found.seconds < SHORT_S + 0.5 + patience()


def test_d24_a_libcuda_of_another_version_inside_the_container(machine):
    machine.file("/.dockerenv")
    machine.libcuda("535.54.03", "/opt/image/lib")
    found = machine.check(env={"LD_LIBRARY_PATH": "/opt/image/lib"})
    assert found.code == 1 and found.codes == ["DRV002"]
    assert found.value("libcuda.path") == "/opt/image/lib/libcuda.so.1"
    assert "/opt/image/lib/libcuda.so.535.54.03" in found.words("DRV002")
    assert "image" in found.finding("DRV002")["fix"][0]["does"]


def test_d24_a_library_for_another_processor_is_passed_over(machine):
    machine.file("/opt/other/lib/libcuda.so.1", ELF[:18] + b"\x03\x00" + ELF[20:])
    assert machine.check(env={"LD_LIBRARY_PATH": "/opt/other/lib"}).value("libcuda.path") == "/usr/lib/libcuda.so.1"
