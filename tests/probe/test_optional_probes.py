"""The further looks as a whole: their keys, their cost, what they load, and the door below them."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from gpuready import probe
from gpuready.catalog import facts as declared
from gpuready.model import Fact
from gpuready.probe import (
    accelerators,
    cuda_libraries,
    device_detection,
    fabric,
    fact_helpers,
    kernel_log,
    network,
    optional_probes,
    torch_extensions,
    workspace,
)
from gpuready.system import AccessError, LiveHost, RecordingHost, ReplayHost
from tests.probe.fakes import BARE, Fake, someone

EVERY = (*fact_helpers.NETWORK, *fact_helpers.GPUS, *fact_helpers.TARGET, *fact_helpers.WORKSPACE_AND_LOGS)


def every(host):
    listing = [Fact("python.packages", 0, "x"), Fact("torch.cuda", None, "x"), Fact("gpu.count", 0, "x")]
    gpus = optional_probes.extend_gpu_facts(host, listing, device_detection.detect_devices(host))
    target = optional_probes.extend_target_facts(host, someone(), listing)
    return [
        *gpus[3:],
        *optional_probes.machine_network_facts(host),
        *target[3:],
        *optional_probes.workspace_and_log_facts(host, someone()),
    ]


# -- keys


def test_every_key_is_declared_and_given_once():
    assert len(set(EVERY)) == len(EVERY)
    assert not [key for key in EVERY if declared.find_declaration(key) is None]
    requested = [key for _, _, requested, _ in probe.list_probes(Fake()) for key in requested]
    assert set(EVERY) <= set(requested) and len(set(requested)) == len(requested)


@pytest.mark.parametrize("host", [Fake(BARE), Fake({}), ReplayHost({})], ids=["bare", "empty", "dark"])
def test_every_machine_gives_every_key(host):
    found = every(host)
    assert sorted(fact.key for fact in found) == sorted(EVERY)
    assert not [fact.key for fact in found if not fact.source and not fact.gap]


def test_in_the_dark_everything_is_unknown_and_nothing_is_absent():
    ours = [f for f in every(ReplayHost({})) if f.key not in (*fact_helpers.TARGET, *fact_helpers.NUMA)]
    assert [fact.key for fact in ours if not fact.gap] == []


def test_modules_know_their_keys():
    modules = (network, fabric, accelerators, cuda_libraries, torch_extensions, workspace, kernel_log)
    assert {key for module in modules for key in module.KEYS} | set(fact_helpers.NUMA) == set(EVERY)


@pytest.mark.parametrize(
    ("look", "function", "keys"),
    [
        (network, "probe_network", network.KEYS),
        (workspace, "probe_workspace", workspace.WORKSPACE),
        (workspace, "probe_caches", workspace.CACHES),
    ],
)
def test_a_look_that_stumbles_loses_its_own_facts_alone(look, function, keys, monkeypatch):
    def stumble(*_):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(look, function, stumble)
    found = {fact.key: fact for fact in every(Fake(BARE))}
    assert {found[key].gap for key in keys} == {"the look failed: ZeroDivisionError: boom"}
    assert found["fabric.switches"].value == 0
    assert sorted(found) == sorted(EVERY)


# -- cost


# -- this machine, live and recorded


def test_this_machine():
    facts = {
        fact.key: fact
        for fact in [
            *optional_probes.machine_network_facts(LiveHost()),
            *optional_probes.workspace_and_log_facts(LiveHost(), probe.choose_environment(LiveHost())),
        ]
    }
    assert facts["clock.year"].value >= 2024
    assert facts["tmp.exists"].value is True
    if not facts["net.interfaces"].gap:
        for row in facts["net.interfaces"].value.values():
            assert row["kind"] in ("ethernet", "infiniband", "loopback", "bridge", "virtual")


def test_the_same_on_a_recording():
    def look(host):
        return [*optional_probes.machine_network_facts(host), *optional_probes.workspace_and_log_facts(host, someone())]

    recorder = RecordingHost(LiveHost())
    live = look(recorder)
    assert look(ReplayHost(recorder.recording)) == live


# -- the door's new questions


def test_the_clock_of_the_machine():
    assert abs(LiveHost().get_wall_time() - time.time()) < 60
    recorder = RecordingHost(LiveHost())
    result = recorder.get_wall_time()
    assert ReplayHost(recorder.recording).get_wall_time() == result
    with pytest.raises(AccessError):
        ReplayHost({}).get_wall_time()


def test_lines_of_a_file(tmp_path):
    path = tmp_path / "kern.log"
    path.write_bytes(b"one NVRM\ntwo\nthree NVRM \xff\nfour")
    host = LiveHost()
    assert host.find_log_lines(str(path), ["NVRM"]) == ("one NVRM", "three NVRM \\xff")
    assert host.find_log_lines(str(path), ["one", "four"]) == ("one NVRM", "four")
    assert host.find_log_lines(str(path), [""]) == host.find_log_lines(str(path), []) == ()
    assert host.find_log_lines(str(tmp_path / "no"), ["x"]) is None
    assert host.find_log_lines(str(path / "no"), ["x"]) is None


def test_lines_come_from_the_end_and_are_bounded(tmp_path):
    path = tmp_path / "log"
    path.write_text("".join(f"NVRM {n}\n" for n in range(1000)) + "NVRM " + "x" * 20_000 + "\n")
    found = LiveHost().find_log_lines(str(path), ["NVRM"])
    assert len(found) == 256 and found[-2] == "NVRM 999" and len(found[-1]) == 8192


def test_only_the_end_of_a_huge_file_is_read(tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"NVRM first\n")
        file.truncate(20 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"\nNVRM last\n")
    assert LiveHost().find_log_lines(str(path), ["NVRM"]) == ("NVRM last",)


def test_no_other_device_is_read(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in ("/dev/zero", "/dev/null", str(fifo)):
        with pytest.raises(AccessError, match="not a regular file"):
            LiveHost().find_log_lines(path, ["x"])
    with pytest.raises(AccessError, match="directory"):
        LiveHost().find_log_lines(str(tmp_path), ["x"])
    with pytest.raises(AccessError, match="not a path"):
        LiveHost().find_log_lines("a\0b", ["x"])


def test_the_buffer_of_the_kernel():
    """Reading it neither waits nor takes anything away from others; it may be denied."""
    try:
        found = LiveHost().find_log_lines("/dev/kmsg", [";"])
    except AccessError as unreadable:
        assert str(unreadable)
        return
    assert found is None or all(line.partition(",")[0].isdecimal() for line in found)
    assert LiveHost().find_log_lines("/dev/kmsg", ["no record has these words"]) in (None, ())


def test_lines_are_recorded_without_their_secrets(tmp_path):
    path = tmp_path / "log"
    path.write_text("kernel: HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123 x\n")
    recorder = RecordingHost(LiveHost())
    found = recorder.find_log_lines(str(path), ["kernel"])
    assert "hf_abc" not in found[0] and ReplayHost(recorder.recording).find_log_lines(str(path), ["kernel"]) == found


@pytest.mark.parametrize(("flag", "early"), [("--disable-new-dtags", True), ("--enable-new-dtags", False)])
def test_an_rpath_is_told_from_a_runpath(flag, early, tmp_path):
    from shutil import which

    compiler = which("cc") or which("gcc")
    if compiler is None:
        pytest.skip("no compiler here")
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    out = tmp_path / "liba.so"
    flags = ["-shared", "-fPIC", f"-Wl,{flag}", "-Wl,-rpath,$ORIGIN/x"]
    subprocess.run([compiler, *flags, "-o", out, tmp_path / "a.c"], check=True, capture_output=True)
    found = LiveHost().read_elf_headers(str(out))
    assert (found["runpath"], found["rpath"]) == ("$ORIGIN/x", early)
