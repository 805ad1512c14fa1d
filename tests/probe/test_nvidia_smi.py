"""nvidia-smi as the second witness: its generations, its excuses, and output that is cut or hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.probe import gpu, gpu_fields, nvidia_smi
from gpuready.system import AccessError, RunResult
from tests.probe.fakes import Fake, by_key
from tests.probe.samples import MIB, MIG_DEVICES, OLD_V100, RENAMED, machine, smi_gpu, smi_xml, uuid

SMI = "/usr/bin/nvidia-smi"


def asked(ran, files=None, **given):
    host = Fake(files=files or machine(1), path={"nvidia-smi": SMI}, runs={f"{SMI} -q -x": ran}, **given)
    return by_key(gpu.probe_gpus(host))


def ran(out="", rc=0, err="", end=""):
    return RunResult((SMI, "-q", "-x"), rc, out, err, end=end)


def test_an_h200_without_nvml():
    facts = asked(smi_xml(smi_gpu()))
    assert facts["gpu.count"].source == "nvidia-smi -q -x"
    assert facts["gpu.name"].value == ("NVIDIA H200",)
    assert facts["gpu.uuid"].value == (uuid(0),)
    assert facts["gpu.pci"].value == ("0000:04:00.0",)
    assert facts["gpu.memory"].value == (143771 * MIB,)
    assert facts["gpu.free"].value == (143156 * MIB,)
    assert facts["gpu.mode"].value == ("default",)
    assert facts["gpu.persistence"].value == ("on",)
    assert (facts["gpu.ecc"].value, facts["gpu.mig"].value) == (("on",), ("off",))
    assert facts["gpu.ecc_errors"].value == (0,)
    assert facts["gpu.pcie"].value == facts["gpu.pcie_max"].value == ("5 x16",)
    assert facts["gpu.power_limit"].value == (700,)
    assert facts["gpu.throttle"].value == ("none",)
    assert facts["gpu.processes"].value == ()
    assert facts["gpu.capability"].value == ("9.0",)
    assert facts["gpu.capability"].source == "catalogue: NVIDIA H200"
    assert facts["gpu.nvlink"].gap
    assert facts["driver.cuda"].value == "13.0"
    assert facts["driver.error"].value is None and not facts["driver.error"].gap


def test_a_v100_under_driver_470():
    facts = asked(OLD_V100, files=machine(1, "470.161.03", "x86_64 Kernel Module"))
    assert facts["gpu.mode"].value == ("exclusive-process",)
    assert facts["gpu.pcie"].value == ("1 x8",)
    assert facts["gpu.power_limit"].value == (250,)
    assert facts["gpu.ecc_errors"].value == (2,)
    assert facts["gpu.throttle"].value == ("hw_slowdown",)
    assert facts["gpu.mig"].value == ("none",)
    assert facts["gpu.capability"].value == ("7.0",)
    assert facts["gpu.remap_pending"].value == ()
    assert facts["driver.kind"].value == "proprietary"
    assert facts["gpu.processes"].value[0] | {"user": "", "command": ""} == {
        "gpu": 0,
        "pid": 4242,
        "used": 1024 * MIB,
        "user": "",
        "command": "",
    }


@pytest.mark.parametrize(
    "versions",
    [
        RENAMED,
        "\t<kmd_version>{driver}</kmd_version>\n\t<cuda_umd_version>{cuda}</cuda_umd_version>\n",
        RENAMED.partition("\t<kmd")[0],
    ],
)
def test_driver_610_renames_its_versions(versions):
    files = {k: v for k, v in machine(1).items() if "version" not in k}
    facts = asked(smi_xml(smi_gpu(), driver="610.43.02", cuda="13.3", versions=versions), files=files)
    assert facts["driver.version"].value == "610.43.02"
    assert facts["driver.cuda"].value == "13.3"


def test_four_gpus_in_the_order_of_the_bus():
    facts = asked(smi_xml(*(smi_gpu(i) for i in range(4))), files=machine(4))
    assert facts["gpu.uuid"].value == tuple(uuid(i) for i in range(4))


def test_mig_devices():
    facts = asked(smi_xml(smi_gpu(current_mig="Enabled", mig_devices=MIG_DEVICES, used="N/A", free="N/A")))
    first, second = facts["gpu.mig_devices"].value
    assert (first["gpu"], first["instance"], first["uuid"], first["memory_total"]) == (0, 1, None, 40448 * MIB)
    assert second["uuid"] == "MIG-aaaaaaaa-1111-2222-3333-bbbbbbbbbbbb"
    assert facts["gpu.mig"].value == ("on",)
    assert facts["gpu.free"].gap == "N/A"
    assert facts["gpu.memory"].value == (143771 * MIB,)


@pytest.mark.parametrize(
    "words",
    [
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "Not Supported",
        "ERR!",
        "[Unknown Error]",
        "Unknown Error",
        "",
        "GPU is lost",
        "Requested functionality has been deprecated",
        "[Insufficient Permissions]",
    ],
)
def test_words_that_are_no_values(words):
    """D11: a field that nvidia-smi will not tell is unknown, and never 0."""
    facts = asked(smi_xml(smi_gpu(current_power_limit=words, compute_mode=words, total=words, current_link_gen=words)))
    for key in ("gpu.power_limit", "gpu.mode", "gpu.memory", "gpu.pcie"):
        assert facts[key].gap and facts[key].value is None, key
    assert facts["gpu.uuid"].value == (uuid(0),)


@pytest.mark.parametrize("words", ["twelve MiB", "0x10 MiB", "-1 MiB", "١٢ MiB", "1e9 MiB"])
def test_numbers_that_are_none(words):
    assert "not a number" in asked(smi_xml(smi_gpu(total=words)))["gpu.memory"].gap


def test_unknown_cards_are_asked_once_more():
    query = f"{SMI} --query-gpu=index,compute_cap --format=csv,noheader"
    xml = smi_xml(*(smi_gpu(i, product_name="NVIDIA Mystery 9000") for i in range(2)))
    host = Fake(machine(2), path={"nvidia-smi": SMI}, runs={f"{SMI} -q -x": xml, query: "0, 12.1\n1, 12.1\n"})
    fact = by_key(gpu.probe_gpus(host))["gpu.capability"]
    assert fact.value == ("12.1", "12.1")
    assert fact.source == "nvidia-smi --query-gpu=compute_cap"
    assert host.ran().count(query) == 1


def test_unknown_cards_that_stay_unknown():
    facts = asked(smi_xml(smi_gpu(product_name="NVIDIA Mystery 9000")))
    assert facts["gpu.capability"].gap and facts["gpu.capability"].value is None


def test_names_with_commas_quotes_and_entities():
    """D12: nothing is split at a comma."""
    name = "NVIDIA &quot;RTX&quot; 6000, Ada &amp; Co"
    assert asked(smi_xml(smi_gpu(product_name=name)))["gpu.name"].value == ('NVIDIA "RTX" 6000, Ada & Co',)


# -- excuses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (
            ran("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.133\n", 18),
            18,
            "mismatch",
        ),
        (
            ran("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure…", 9),
            9,
            "communicate",
        ),
        (ran("Failed to initialize NVML: Unknown Error\n", 255), 999, "Unknown Error"),
        (ran("Failed to initialize NVML: Insufficient Permissions\n", 4), 4, "Permissions"),
        (ran("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", 12), 12, "libnvidia-ml"),
    ],
)
def test_complaints_become_the_codes_of_nvml(result, error, words):
    facts = asked(result)
    assert facts["driver.error"].value == error
    assert words in facts["driver.says"].value
    assert facts["gpu.count"].gap


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (ran(end="deadline", rc=None), "deadline"),
        (ran(end="unkillable: pid 77 in percpu_rwsem_wait", rc=None), "unkillable"),
        (ran(end="signal SEGV", rc=-11), "signal SEGV"),
        (ran(""), "ended with 0 and wrote nothing"),
        (ran("\x1b]52;c;ZXZpbA==\x07", 0), ""),
        (ran(smi_xml(attached=3)[:120]), ""),
    ],
)
def test_silence_is_unknown_and_never_no_gpu(result, words):
    """D01, D02, D05, D06: whatever nvidia-smi does, a card on the bus is not talked away."""
    facts = asked(result, nvml=AccessError("it crashed: signal SEGV"))
    assert facts["gpu.count"].gap and facts["gpu.count"].value is None
    assert words in facts["gpu.count"].gap and "it crashed" in facts["gpu.count"].gap


def test_no_devices_were_found_is_an_answer():
    facts = asked(ran("No devices were found\n", 6))
    assert facts["gpu.count"].value == 0 and not facts["gpu.count"].gap
    assert facts["gpu.pci_count"].value == 1


def test_output_that_stops_in_the_middle_keeps_what_came():
    """D03: two of three GPUs were told; the third is unknown, and is not gone."""
    whole = smi_xml(*(smi_gpu(i) for i in range(3)))
    cut = whole[: whole.index(uuid(2))]
    facts = asked(ran(cut, None, end="deadline"), files=machine(3))
    assert facts["gpu.count"].value == 3
    assert facts["gpu.uuid"].value[:2] == (uuid(0), uuid(1))
    assert facts["gpu.uuid"].gap.startswith("GPU 2: ")


def test_attached_gpus_that_are_not_listed_are_unknown():
    facts = asked(ran(smi_xml(smi_gpu(0), attached=2), 0), files=machine(2))
    assert facts["gpu.count"].value == 2
    assert "GPU 1: nvidia-smi stopped before it" in facts["gpu.name"].gap


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU0000:14:00.0: GPU is lost.  Reboot the system",
        "Unable to determine the device handle for GPU1: 0000:14:00.0: GPU is lost.  Reboot the system",
        "Unable to determine the device handle for gpu 00000000:14:00.0: GPU is lost.",
    ],
)
def test_a_lost_gpu_is_named_by_its_address(line):
    facts = asked(ran(smi_xml(smi_gpu(0), smi_gpu(2), attached=3) + line, 15), files=machine(3))
    assert facts["gpu.count"].value == 3
    assert facts["gpu.lost"].value == (1,)
    assert "0000:14:00.0" in facts["gpu.lost"].source
    assert facts["gpu.uuid"].value == (uuid(0), None, uuid(2))


def test_a_lost_gpu_inside_the_document():
    xml = smi_xml(smi_gpu(0), smi_gpu(1, product_name="GPU is lost", uuid="GPU is lost"))
    assert asked(xml, files=machine(2))["gpu.lost"].value == (1,)


def test_wsl_finds_it_where_windows_puts_it():
    path = "/usr/lib/wsl/lib/nvidia-smi"
    files = {"/dev/dxg": "", "/sys/bus/pci/devices/x/vendor": "0x1af4", path: ""}
    xml = smi_xml(smi_gpu(product_name="NVIDIA GeForce RTX 4090"), driver="610.47", cuda="13.3")
    facts = by_key(gpu.probe_gpus(Fake(files, runs={f"{path} -q -x": xml})))
    assert facts["gpu.count"].value == 1
    assert facts["driver.version"].value == "610.47"
    assert facts["driver.wsl"].value is True
    assert facts["gpu.pci_count"].value == 0


# -- the reader ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "<", "<>", "< >", "</>", "</a>", "<a>", "<a></b></a>", "<a" * 99, "<a>" * 5000, "x>y<z"]
)
def test_crooked_documents_do_no_harm(text):
    assert nvidia_smi.parse_smi_run(ran(text))["says"]


@given(st.text(alphabet='<>/ab "id=&;?!\n', max_size=200))
def test_no_text_breaks_the_reader(text):
    assert "gpus" in (found := nvidia_smi.parse_smi_run(ran(text))) or "says" in found


@given(st.integers(min_value=0, max_value=len(smi_xml(smi_gpu()))))
def test_a_cut_anywhere_gives_no_wrong_value(at):
    """Whatever came through is right; what did not is a gap."""
    whole, cut = (
        nvidia_smi.parse_smi_run(ran(smi_xml(smi_gpu()))),
        nvidia_smi.parse_smi_run(ran(smi_xml(smi_gpu())[:at], None, end="deadline")),
    )
    for record in cut.get("gpus", ()):
        for name, value in record.items():
            if name not in ("index", "gap") and not (isinstance(value, dict) and "gap" in value):
                assert value in (whole["gpus"][0][name], "", (), whole["gpus"][0]["pci"]), name


def test_fifty_megabytes_are_read_in_no_time():
    """D08: the door caps the output; what is left is still read in one pass."""
    assert nvidia_smi.parse_smi_run(ran("<gpu>" * 200_000))["says"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:5E:00.0", "0000:5e:00.0"),
        ("0000:5e:00.0", "0000:5e:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("5e:00.0", "5e:00.0"),
        ("", ""),
    ],
)
def test_one_spelling_of_an_address(text, address):
    assert gpu_fields.normalize_pci_address(text) == address
