"""All looks together: on this machine, on stated ones, and on one that was recorded."""

from __future__ import annotations

import os
import sys
import time

import pytest

from gpuready import probe
from gpuready.catalog import facts as declared
from gpuready.model import Facts
from gpuready.system import LiveHost, RecordingHost, ReplayHost, run_probes
from tests.probe.fakes import Fake
from tests.probe.samples import answer, machine, record

KINDS = {
    "version": str, "text": str, "int": int, "float": float, "bytes": int, "seconds": float, "bool": bool,
    "versions": tuple, "texts": tuple, "ints": tuple, "bytes_list": tuple, "table": (dict, tuple),
}  # fmt: skip
BARE = not any(os.path.exists(p) for p in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/sys/module/nvidia"))


def looked(access, python=None):
    return probe.assemble_host_facts(access, run_probes(access, probe.list_probes(access, python)))


@pytest.fixture(scope="module")
def here():
    return probe.probe(LiveHost(), sys.executable)


def test_no_key_is_given_by_two_looks():
    keys = [key for _, _, keys, _ in probe.list_probes(Fake()) for key in keys]
    assert len(keys) == len(set(keys))


def test_every_look_gives_its_keys_and_no_others():
    access = Fake()
    for name, look, keys, deadline in probe.list_probes(access):
        facts = run_probes(access, [(name, look, (), deadline)])
        settings = {f.key for f in facts if not f.key.startswith(("package.", "env."))} | {"env.names"}
        assert settings - {"env.names"} == set(keys) - {"env.names"}, name
        assert deadline > 0


def test_every_key_is_declared():
    for _, _, keys, _ in probe.list_probes(Fake()):
        assert not [key for key in keys if declared.find_declaration(key) is None]


def test_every_value_is_of_its_declared_kind(here):
    stated = looked(Fake(machine(2), nvml=answer(record(0), record(1)), env={"CUDA_VISIBLE_DEVICES": "1,9"}))
    for fact in [*here, *stated]:
        if fact.value is not None and not fact.gap:
            kind = declared.find_declaration(fact.key)["type"]
            assert isinstance(fact.value, KINDS[kind]), (fact.key, kind, fact.value)
            assert kind == "bool" or not isinstance(fact.value, bool), fact.key


def test_every_fact_has_its_source(here):
    assert not [fact.key for fact in here if not fact.source]


def test_nothing_is_listed_as_a_list(here):
    """Facts are frozen; what came through a pipe is frozen again."""

    def lists(value):
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
        return isinstance(value, list) or any(lists(v) for v in inside)

    assert not [fact.key for fact in here if lists(fact.value)]


@pytest.mark.skipif(not BARE, reason="this machine has a GPU")
def test_this_machine_has_no_gpu_and_says_so_without_a_gap(here):
    assert here.value("gpu.count") == 0
    assert here.value("gpu.visible") == here.value("gpu.name") == ()
    assert here.value("driver.version") is None
    assert here.value("platform.name") == "cpu"


def test_this_machine_is_known(here):
    for key in (
        "os.system",
        "os.kernel",
        "os.arch",
        "host.cpus",
        "memory.total",
        "disk.free",
        "python.version",
        "python.packages",
        "limit.nofile",
        "env.names",
        "package.pytest",
    ):
        assert here.value(key), key
    assert here.host


def test_the_same_on_a_recording():
    """Law 5: a machine in a file gives the facts that the machine gave."""
    recorder = RecordingHost(LiveHost())
    live = looked(recorder, sys.executable)
    again = looked(ReplayHost(recorder.recording), sys.executable)
    moving = ("memory.available", "disk.free", "system.shm_free", "python.disk_free")
    assert [f for f in live if f.key not in moving] == [f for f in again if f.key not in moving]


def test_a_recording_that_is_empty_is_dark_and_does_not_crash():
    facts = looked(ReplayHost(RecordingHost(LiveHost()).recording))
    assert isinstance(facts, Facts)
    assert facts.fact("gpu.count").gap


def test_a_look_that_crashes_is_a_gap_of_its_own():
    class Cursed(Fake):
        def _uname(self):
            raise ZeroDivisionError("boom")

    own = {"executable": "/opt/own/bin/python", "prefix": "/opt/own", "version": "3.12.1", "role": "library"}
    facts = looked(Cursed(interpreter=own))
    assert "ZeroDivisionError" in facts.fact("os.system").gap
    assert facts.value("python.version") == "3.12.1"


def test_a_python_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no such file"):
        probe.probe(Fake(), "/nowhere/python")


def _timed(access):
    begun = time.perf_counter()
    looked(access)
    return time.perf_counter() - begun


def test_probes_import_nothing_heavy():
    import subprocess

    code = (
        "import sys, json, re, argparse\nbefore = set(sys.modules)\nfrom gpuready import probe\n"
        "from gpuready.probe import job\nprint(*sorted(set(sys.modules) - before))\n"
    )
    ran = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
                         capture_output=True, text=True, check=True)  # fmt: skip
    heavy = {"dataclasses", "subprocess", "pathlib", "packaging", "threading", "logging", "yaml", "xml", "tomllib"}
    assert not heavy & set(ran.stdout.split())


def test_without_gpu_and_environment_only_what_is_needed_is_loaded(tmp_path):
    import subprocess

    code = (
        "from gpuready import probe, system\nfor path in ('sys/bus/pci/devices', 'dev', 'proc'): os.makedirs(f'{root}/{path}')\n"
        "host = system.LiveHost(root, {'PATH': ''})\nsystem.LiveHost.runs_command = True\n"
        "facts = probe.assemble_host_facts(host, system.run_probes(host, [(n, f, k, 600.0) for n, f, k, _ in probe.list_probes(host)]))\n"
        "assert facts.fact('torch.version').gap and facts.fact('python.path').gap == facts.fact('torch.version').gap\n"
        "for _, run, _, _ in probe.list_probes(host): list(run(host))\n"
        "print(*sys.modules)\n"
    )
    words = f"import os, sys; sys.path[:0] = {sys.path!r}; root = {str(tmp_path)!r}\n{code}"
    ran = subprocess.run([sys.executable, "-S", "-c", words], capture_output=True, text=True, check=True, cwd=tmp_path)
    unused = {"nvidia_smi", "accelerators", "fabric", "cuda_libraries", "torch_extensions"}
    assert not {f"gpuready.probe.{name}" for name in unused} & set(ran.stdout.split())
    assert not {"xml", "hashlib", "tempfile", "gpuready.system.imports"} & set(ran.stdout.split())
