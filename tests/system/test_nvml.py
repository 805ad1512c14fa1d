"""NVML, against a fake library that is as well or as ill as a driver can be."""

from __future__ import annotations

import time

import pytest

from gpuready.system import AccessError, LiveHost, RecordingHost, ReplayHost, live_host
from gpuready.system.nvml import combine_parts
from gpuready.system.nvml_gpu import _parse_process_rows
from tests.deadlines import AFTER_S, GENEROUS_S, HANG_S

GAP = {"gap": "Not Supported"}


@pytest.fixture
def ask(fake_nvml, monkeypatch):
    """Ask the fake, with FAKE_* variables set."""

    def call(deadline=GENEROUS_S, **said):
        for name, value in said.items():
            monkeypatch.setenv(f"FAKE_{name.upper()}", str(value))
        monkeypatch.setenv("GPUREADY_NVML", str(fake_nvml))
        return LiveHost().query_nvml(deadline)

    return call


def test_two_healthy_gpus(ask, fake_nvml):
    found = ask()
    assert (found["driver"], found["cuda"], found["library"]) == ("580.159.04", "13.0", str(fake_nvml))
    first, second = found["gpus"]
    assert first == {
        "index": 0,
        "pci": "00000000:1b:00.0",
        "name": 'NVIDIA "H200", 141GB',
        "uuid": "GPU-00000000-1111-2222-3333-444444444440",
        "memory_total": 141 << 30,
        "memory_free": 140 << 30,
        "memory_used": 1 << 30,
        "capability": "9.0",
        "mode": "exclusive_process",
        "persistence": True,
        "mig": False,
        "mig_devices": [],
        "ecc": True,
        "ecc_errors": 7,
        "remap_pending": True,
        "remap_failure": False,
        "recovery": 0,
        "pcie_gen": 5,
        "pcie_width": 8,
        "pcie_gen_max": 5,
        "pcie_width_max": 16,
        "power_limit": 650.5,
        "power_limit_default": 700.0,
        "power_draw": 75.25,
        "temperature": 41,
        "throttle": ["gpu_idle", "sw_power_cap", "hw_thermal"],
        "clock_sm": 345,
        "clock_sm_max": 1980,
        "nvlink": 11,
        "nvlink_errors": 4,
        "numa": {"gap": "Function Not Found"},
        "minor": 0,
        "brand": "nvidia",
        "processes": [{"pid": 1000, "used": 1 << 30}, {"pid": 1001, "used": None}],
    }
    assert (second["index"], second["pci"], second["minor"]) == (1, "00000000:1c:00.0", 1)


def test_half_of_the_calls_are_not_supported(ask):
    for gpu in ask(half=1)["gpus"]:
        refused = {name for name, value in gpu.items() if value == GAP}
        assert refused == {
            *("persistence", "mig", "mig_devices", "ecc", "ecc_errors", "remap_failure", "recovery", "nvlink_errors"),
            *("pcie_gen", "pcie_width", "power_limit", "power_limit_default", "power_draw", "throttle", "nvlink"),
        }
        assert gpu["name"] == 'NVIDIA "H200", 141GB'
        assert gpu["memory_total"] == 141 << 30


def test_a_recovery_that_is_due_and_pages_that_wait_before_ampere(ask):
    first = ask(recovery=2, retired=1)["gpus"][0]
    assert first["recovery"] == 2
    assert (first["remap_pending"], first["remap_failure"]) == (True, GAP)


def test_one_gpu_is_lost_and_the_others_are_well(ask):
    gpus = ask(gpus=8, lost=3)["gpus"]
    assert gpus[3] == {"index": 3, "pci": "00000000:1e:00.0", "gap": "GPU is lost (NVML 15)"}
    assert [g["index"] for g in gpus if "gap" not in g] == [0, 1, 2, 4, 5, 6, 7]


def test_a_gpu_whose_handle_is_refused(ask):
    assert ask(gone=1)["gpus"][1] == {"index": 1, "gap": "GPU is lost (NVML 15)"}
    assert ask(gone=-1, shut=0)["gpus"][0] == {"index": 0, "gap": "Insufficient Permissions (NVML 4)"}


@pytest.mark.parametrize(
    ("code", "says"), [(18, "Driver/library version mismatch"), (9, "Driver Not Loaded"), (999, "Unknown Error")]
)
def test_a_driver_that_will_not_start(ask, code, says):
    assert ask(init=code) == {"error": code, "says": says}


def test_no_gpus_is_an_answer(ask):
    assert ask(gpus=0)["gpus"] == []


def test_mig_instances_are_listed_with_their_own_names(ask):
    gpu = ask(gpus=1, mig=3)["gpus"][0]
    assert gpu["mig"] is True
    assert [(m["name"], m["memory_total"]) for m in gpu["mig_devices"]] == [("NVIDIA H200 MIG 1g.18gb", 18 << 30)] * 3
    assert len({m["uuid"] for m in gpu["mig_devices"]}) == 3


@pytest.mark.parametrize("size", [16, 24, 32])
def test_the_rows_of_processes_differ_between_drivers(ask, size):
    found = ask(gpus=1, rows=size, processes=3)["gpus"][0]["processes"]
    assert found == [{"pid": 1000, "used": 1 << 30}, {"pid": 1001, "used": None}, {"pid": 1002, "used": 3 << 30}]


def test_more_processes_than_there_was_room_for(ask):
    found = ask(gpus=1, processes=700)["gpus"][0]["processes"]
    assert [p["pid"] for p in found] == list(range(1000, 1700))


def test_rows_of_nothing():
    assert _parse_process_rows(b"\xa5" * 64, 0) == []


# -- trouble


def test_a_hang_ends_at_the_deadline(ask):
    begun = time.monotonic()
    with pytest.raises(AccessError, match=r"^no answer within 0.5 s$"):
        ask(deadline=0.5, hang="init")
    assert time.monotonic() - begun < HANG_S / 2


def test_a_gpu_that_hangs_does_not_hide_the_others(ask):
    begun = time.monotonic()
    gpus = ask(deadline=AFTER_S, hang="gpu2", gpus=4)["gpus"]
    assert time.monotonic() - begun < HANG_S / 2
    assert [g.get("name") for g in gpus[:2]] == ['NVIDIA "H200", 141GB'] * 2
    assert gpus[2:] == [{"index": i, "gap": "no answer within 2 s"} for i in (2, 3)]


def test_a_crash_stays_in_the_child(ask):
    with pytest.raises(AccessError, match=r"^crashed: signal SEGV$"):
        ask(crash="init")


def test_a_crash_at_one_gpu(ask):
    gpus = ask(crash="gpu1", gpus=2)["gpus"]
    assert gpus[0]["capability"] == "9.0"
    assert gpus[1] == {"index": 1, "gap": "crashed: signal SEGV"}


def test_what_the_library_prints_is_not_heard(ask, capfd):
    ask()
    assert capfd.readouterr() == ("", "")


def test_no_library(tmp_path):
    assert LiveHost(root=str(tmp_path), environ={}).query_nvml() == {
        "error": None,
        "says": "libnvidia-ml.so.1 not found",
    }


def test_a_library_that_is_none(tmp_path, monkeypatch):
    (tmp_path / "lib").write_text("not a library")
    monkeypatch.setenv("GPUREADY_NVML", str(tmp_path / "lib"))
    found = LiveHost().query_nvml()
    assert found["error"] is None
    assert "cannot be loaded" in found["says"]


def test_a_library_without_the_functions(monkeypatch):
    libc = LiveHost().find_library("libc.so.6")
    if libc is None:
        pytest.skip("no glibc here")
    monkeypatch.setenv("GPUREADY_NVML", libc)
    assert LiveHost().query_nvml() == {"error": 13, "says": "Function Not Found"}


def test_the_library_is_found_as_the_loader_finds_it(fake_nvml, monkeypatch):
    monkeypatch.delenv("GPUREADY_NVML", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml.parent))
    assert LiveHost().query_nvml()["library"] == str(fake_nvml)


def test_with_threads_an_interpreter_of_its_own_looks(ask, a_thread):
    alone = [g["name"] for g in ask()["gpus"]]
    assert alone == ['NVIDIA "H200", 141GB'] * 2
    with pytest.raises(AccessError, match=r"^crashed: signal SEGV$"):
        ask(crash="init")


def test_with_threads_a_hang_ends_too(ask, a_thread):
    gpus = ask(deadline=5.0, hang="gpu1")["gpus"]
    assert gpus[0]["capability"] == "9.0"
    assert gpus[1] == {"index": 1, "gap": "no answer within 5 s"}


def test_where_no_process_can_be_started(ask, monkeypatch):
    import os

    def refuse():
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(live_host, "is_single_threaded", lambda: True)  # a thread of an earlier test may still end
    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(AccessError, match=r"^cannot start a process: resource temporarily unavailable$"):
        ask()


def test_an_answer_is_put_together():
    assert combine_parts([], "x") is None
    assert combine_parts([{"error": 9, "says": "no"}], "") == {"error": 9, "says": "no"}
    assert combine_parts([{"driver": "1", "count": 0}], "") == {"driver": "1", "gpus": []}


def test_it_can_be_recorded(ask, fake_nvml, monkeypatch):
    monkeypatch.setenv("GPUREADY_NVML", str(fake_nvml))
    recorder = RecordingHost(LiveHost())
    found = recorder.query_nvml()
    assert found == ask()
    assert ReplayHost(recorder.recording).query_nvml() == found
    assert ReplayHost(recorder.recording).query_nvml(3.0) == found
