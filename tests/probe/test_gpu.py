"""The GPUs, as NVML describes them."""

from __future__ import annotations

import pytest

from gpuready.probe import gpu
from gpuready.system import AccessError
from tests.probe.fakes import BARE, Fake, by_key
from tests.probe.samples import GIB, answer, bus, information, machine, record, uuid

NOT = {"gap": "Not Supported"}


def look(**requested):
    return by_key(gpu.probe_gpus(Fake(**requested)))


def with_gpus(*gpus, files=None, **requested):
    return look(files=files or machine(len(gpus)), nvml=answer(*gpus), **requested)


def test_the_keys_are_those_that_it_gives():
    for requested in ({}, {"files": machine(1), "nvml": answer(record())}, {"files": machine(1)}):
        assert set(look(**requested)) == set(gpu.KEYS)
    assert len(set(gpu.KEYS)) == len(gpu.KEYS)


def test_an_h200():
    facts = with_gpus(record(0, "NVIDIA H200", memory_total=143771 << 20, processes=[]))
    assert facts["gpu.count"].value == 1
    assert facts["gpu.name"].value == ("NVIDIA H200",)
    assert facts["gpu.memory"].value == (143771 << 20,)
    assert facts["gpu.capability"].value == ("9.0",)
    assert facts["gpu.pci"].value == ("0000:04:00.0",)
    assert facts["gpu.pcie"].value == ("5 x16",)
    assert facts["gpu.throttle"].value == ("none",)
    assert facts["gpu.power_limit"].value == (700,)
    assert facts["gpu.visible"].value == (0,)
    assert facts["gpu.nodes"].value[0] == {"path": "/dev/nvidia-uvm", "mode": "0755", "uid": 0}
    assert facts["platform.name"].value == "cuda"
    assert not [f.key for f in facts.values() if f.gap and f.key.startswith(("gpu.", "driver.v"))]
    assert {f.source for k, f in facts.items() if k in ("gpu.name", "gpu.count")} == {"NVML"}


def test_eight_h100_in_order():
    facts = with_gpus(*(record(i) for i in range(8)))
    assert facts["gpu.count"].value == facts["gpu.pci_count"].value == 8
    assert facts["gpu.uuid"].value == tuple(uuid(i) for i in range(8))
    assert facts["gpu.nvlink"].value == (18,) * 8
    assert facts["gpu.visible"].value == tuple(range(8))
    assert facts["gpu.vendor"].value == ("nvidia",) * 8


def test_a100_with_mig():
    device = {"uuid": "MIG-aaaa1111-2222-3333-4444-555566667777", "name": "A100 MIG 3g.40gb", "memory_total": 40 * GIB}
    gpus = [
        record(i, "NVIDIA A100-SXM4-80GB", capability="8.0", mig=i < 2, mig_devices=[device] if i == 0 else [])
        for i in range(4)
    ]
    facts = with_gpus(*gpus)
    assert facts["gpu.mig"].value == ("on", "on", "off", "off")
    assert facts["gpu.mig_devices"].value == ({"gpu": 0, **device},)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        *((0, "none"), (4, "drain-and-reset"), (9, "9"), ("Reset", "gpu-reset"), ("Drain P2P", "drain-p2p")),
        *((NOT, "unsupported"), ({"gap": "GPU requires restart"}, "gpu-reset")),
    ],
)
def test_the_recovery_that_the_driver_asks_for(said, action):
    assert with_gpus(record(0, recovery=said))["gpu.recovery"].value == (action,)


@pytest.mark.parametrize("reason", ["GPU is lost", "Unknown Error", "Insufficient Permissions", "ERR!"])
def test_a_recovery_that_cannot_be_asked_for_is_not_said_to_be_none(reason):
    found = with_gpus(record(0, recovery={"gap": reason}))["gpu.recovery"]
    assert found.value == (None,) and reason in found.gap


def test_a_gpu_that_must_be_reset_before_it_answers():
    facts = with_gpus(record(0), {"index": 1, "gap": "GPU requires restart (NVML 16)"})
    assert (facts["gpu.recovery"].value, facts["gpu.recovery"].gap) == (("none", "gpu-reset"), "")


def test_a_desktop_card_has_no_ecc_no_mig_and_no_nvlink():
    card = record(0, "NVIDIA GeForce RTX 4090", capability="8.9", ecc=NOT, mig=NOT, ecc_errors=NOT, nvlink=NOT)
    card |= {"remap_pending": NOT, "remap_failure": NOT, "persistence": False, "power_limit": 449.9}
    facts = with_gpus(card)
    assert (facts["gpu.ecc"].value, facts["gpu.mig"].value) == (("none",), ("none",))
    assert facts["gpu.persistence"].value == ("off",)
    assert facts["gpu.remap_pending"].value == () and not facts["gpu.remap_pending"].gap
    assert facts["gpu.ecc_errors"].gap == "Not Supported"
    assert facts["gpu.nvlink"].gap == "Not Supported"


def test_a_vgpu_gives_gaps_field_by_field():
    """D16: half of the calls are refused, and the other half still counts."""
    card = record(0, "NVIDIA A16-8Q", pcie_gen=NOT, pcie_width=NOT, power_limit=NOT, throttle=NOT, processes=NOT)
    facts = with_gpus(card)
    assert facts["gpu.memory"].value == (80 * GIB,)
    for key in ("gpu.pcie", "gpu.power_limit", "gpu.throttle", "gpu.processes"):
        assert facts[key].gap and "Not Supported" in facts[key].gap
    assert not facts["gpu.pcie_max"].gap


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("default", "default"),
        ("exclusive_process", "exclusive-process"),
        ("Exclusive_Process", "exclusive-process"),
        (3, "exclusive-process"),
        (2, "prohibited"),
    ],
)
def test_compute_modes(raw, shown):
    assert with_gpus(record(mode=raw))["gpu.mode"].value == (shown,)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ([], "none"),
        (["gpu_idle"], "none"),
        (["gpu_idle", "sw_power_cap", "hw_thermal"], "sw_power_cap, hw_thermal"),
        (0x1, "none"),
        (0x48, "hw_slowdown, hw_thermal_slowdown"),
    ],
)
def test_throttling(raw, shown):
    assert with_gpus(record(throttle=raw))["gpu.throttle"].value == (shown,)


def test_rows_that_wait_for_a_reset():
    facts = with_gpus(record(0), record(1, remap_pending=True, remap_failure=True))
    assert facts["gpu.remap_pending"].value == (1,)
    assert facts["gpu.remap_failure"].value == (1,)


def test_one_gpu_of_eight_is_lost():
    """D17: seven good ones and one that is named by its place on the bus."""
    gpus = [record(i) for i in range(8)]
    gpus[3] = {"index": 3, "gap": "GPU is lost (NVML 15)"}
    facts = with_gpus(*gpus)
    assert facts["gpu.count"].value == 8
    assert facts["gpu.lost"].value == (3,)
    assert "GPU 3 (0000:34:00.0): GPU is lost" in facts["gpu.lost"].source
    assert facts["gpu.pci"].value[3] == "0000:34:00.0"
    name = facts["gpu.name"]
    assert name.value[3] is None and name.value[4] == "NVIDIA H100 80GB HBM3"
    assert name.gap == "GPU 3: GPU is lost (NVML 15)"
    assert facts["gpu.capability"].gap.startswith("GPU 3")


def test_a_gpu_that_did_not_answer_may_or_may_not_be_lost():
    facts = with_gpus(record(0), {"index": 1, "gap": "no answer within 20 s"})
    assert facts["gpu.lost"].value == ()
    assert facts["gpu.lost"].gap == "GPU 1: no answer within 20 s"


def test_two_lost_gpus_are_not_given_a_place_by_guess():
    gpus = [record(0), {"index": 1, "gap": "GPU is lost"}, {"index": 2, "gap": "GPU is lost"}]
    facts = with_gpus(*gpus)
    assert facts["gpu.lost"].value == (1, 2)
    assert facts["gpu.pci"].value == ("0000:04:00.0", None, None)


def test_mixed_gpus():
    """D50: each one for itself."""
    facts = with_gpus(record(0, "NVIDIA A100-SXM4-40GB", capability="8.0", memory_total=40 * GIB), record(1))
    assert facts["gpu.capability"].value == ("8.0", "9.0")
    assert facts["gpu.memory"].value == (40 * GIB, 80 * GIB)


def test_a_count_that_differs_from_the_bus_shows():
    """D19: both numbers are facts."""
    facts = with_gpus(*(record(i) for i in range(7)), files=machine(8))
    assert (facts["gpu.count"].value, facts["gpu.pci_count"].value) == (7, 8)


def test_a_driver_that_finds_none_of_the_cards():
    facts = look(files=machine(2), nvml=answer())
    assert facts["gpu.count"].value == 0 and not facts["gpu.count"].gap
    assert facts["gpu.pci_count"].value == 2


def test_processes_with_owner_and_command():
    files = machine(1) | {
        "/proc/77/cmdline": "python\0train.py\0--lr\0" + "1e-4\0",
        "/etc/passwd": "ada:x:1001:1001::/:",
    }
    held = [{"pid": 77, "used": 5 * GIB}, {"pid": 12, "used": None}]
    facts = with_gpus(record(processes=held), files=files, uids={"/proc/77": 1001})
    first, second = facts["gpu.processes"].value
    assert first == {"gpu": 0, "pid": 77, "used": 5 * GIB, "user": "ada", "command": "python train.py --lr 1e-4"}
    assert second == {"gpu": 0, "pid": 12, "used": None, "user": None, "command": None}


@pytest.mark.parametrize(("letter", "state"), [("T", "stopped"), ("Z", "dead, not yet reaped"), ("R", None)])
def test_c11_a_process_that_will_not_end_by_itself(letter, state):
    files = machine(1) | {"/proc/77/stat": f"77 (a) b) {letter} 1 77 77 0"}
    (row,) = with_gpus(record(processes=[{"pid": 77, "used": GIB}]), files=files)["gpu.processes"].value
    assert row.get("state") == state


def test_an_owner_without_a_name():
    """D61: a uid that no password file knows."""
    facts = with_gpus(record(processes=[{"pid": 5, "used": 1}]), files=machine(1) | {"/proc/5/cmdline": "x"},
                      uids={"/proc/5": 65534})  # fmt: skip
    assert facts["gpu.processes"].value[0]["user"] == "65534"


def test_nonsense_in_a_field_is_a_gap_and_not_a_crash():
    facts = with_gpus(record(memory_total="lots", mode=17, capability=[], name="", ecc="perhaps", power_limit=True))
    for key in ("gpu.memory", "gpu.mode", "gpu.name", "gpu.ecc", "gpu.power_limit"):
        assert "not understood" in facts[key].gap, key


# -- without NVML -------------------------------------------------------------------------------------


def test_no_gpu_is_a_fact_and_not_a_gap():
    facts = look()
    assert facts["gpu.count"].value == 0
    assert facts["gpu.name"].value == facts["gpu.visible"].value == ()
    assert facts["platform.name"].value == "cpu"
    assert not [f.key for f in facts.values() if f.gap]


def test_no_gpu_is_told_without_asking_any_driver():
    host = Fake(path={"nvidia-smi": "/usr/bin/nvidia-smi"})
    gpu.probe_gpus(host)
    assert not [a for a in host.asked if a[0] in ("nvml", "run")]


def test_a_card_without_driver_is_unknown():
    facts = look(files=bus(1))
    said = "libnvidia-ml.so.1 not found; nvidia-smi is not on the path; yet there is PCI 0000:04:00.0"
    assert facts["gpu.count"].gap == said
    assert facts["gpu.pci_count"].value == 1
    assert facts["driver.version"].value is None and not facts["driver.version"].gap
    assert facts["driver.error"].value == 12


def test_nvml_that_hangs():
    """D18: a gap with the reason, and the rest of the facts."""
    facts = look(files=machine(2), nvml=AccessError("no answer within 20 s"))
    assert "no answer within 20 s" in facts["gpu.count"].gap
    assert facts["driver.version"].value == "580.95.05"
    assert facts["driver.error"].gap


def test_a_mismatch_is_told_and_the_kernels_list_still_counts():
    """D13: NVML 18. The kernel module knows the cards by name."""
    files = machine(2, "580.95.05") | information(0, "NVIDIA H100 80GB HBM3") | information(1, "NVIDIA H100 80GB HBM3")
    host = Fake(
        files=files,
        nvml={"error": 18, "says": "Driver/library version mismatch"},
        path={"nvidia-smi": "/usr/bin/nvidia-smi"},
        libraries={"libcuda.so.1": "/lib/libcuda.so.1"},
        links={"/lib/libcuda.so.1": "libcuda.so.570.133.20"},
    )
    facts = by_key(gpu.probe_gpus(host))
    assert facts["driver.error"].value == 18
    assert (facts["driver.version"].value, facts["driver.library"].value) == ("580.95.05", "570.133.20")
    assert facts["gpu.count"].value == 2
    assert facts["gpu.uuid"].value == (uuid(0), uuid(1))
    assert facts["gpu.capability"].value == ("9.0", "9.0")
    assert facts["gpu.capability"].source.startswith("catalogue: ")
    assert facts["gpu.memory"].gap
    assert not host.ran(), "nvidia-smi loads the same library and cannot know more"


def test_what_the_module_lists_before_a_gpu_was_opened():
    files = machine(1) | information(0, "Unknown", "GPU-????????-????-????-????-????????????")
    facts = look(files=files, nvml={"error": 9, "says": "Driver Not Loaded"})
    assert facts["gpu.count"].value == 1
    assert facts["gpu.name"].gap == facts["gpu.uuid"].gap == "not listed"
    assert facts["gpu.capability"].gap


def test_other_vendors_are_listed_and_do_not_count():
    facts = look(files=bus(2, vendor="0x1002", kind="0x120000") | {"/dev/kfd": ""})
    assert facts["gpu.count"].value == 0
    assert [row["vendor"] for row in facts["gpu.other"].value] == ["amd", "amd"]
    assert facts["platform.name"].value == "rocm"


def test_the_audio_function_and_the_switches_of_a_machine_are_no_gpus():
    files = bus(1, kind="0x040300") | {"/sys/bus/pci/devices/0000:99:00.0/vendor": "0x10de"}
    files["/sys/bus/pci/devices/0000:99:00.0/class"] = "0x068000"
    assert look(files=files)["gpu.pci_count"].value == 0


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("kfd", "rocm"),
        ("davinci0", "npu"),
        ("hl0", "hpu"),
        ("mtgpu.0", "musa"),
        ("hlx", "cpu"),
        ("davinci_manager", "cpu"),
    ],
)
def test_platforms_by_their_device_nodes(name, platform):
    assert look(files={**BARE, f"/dev/{name}": ""})["platform.name"].value == platform


def test_a_mac():
    facts = look(files={"/dev/null": ""}, uname={"system": "Darwin", "release": "24.1.0", "machine": "arm64"})
    assert (facts["gpu.count"].value, facts["platform.name"].value) == (0, "mps")
    assert not facts["gpu.count"].gap
