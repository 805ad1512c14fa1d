"""What an install is told by the environment."""

from __future__ import annotations

import pytest

from gpuready.apply import uv
from gpuready.apply.install_steps import note_purpose
from gpuready.model import Fact, Facts
from gpuready.model.plan import LockedPackage, Plan
from gpuready.probe.packages import probe_packages
from gpuready.probe.target_environment import describe_environment
from gpuready.system import LiveHost
from gpuready.workflow import install
from gpuready.workflow.install import InstallOrder, suggest_elsewhere
from gpuready.workflow.machine_facts import add_environment_purpose
from gpuready.workflow.refusal import Refused


class _Reported:
    def __init__(self, value: str):
        self.value = value

    def get_env_var(self, name: str) -> str:
        return self.value


def _order(value: str) -> InstallOrder:
    order = InstallOrder.__new__(InstallOrder)
    order.host = _Reported(value)
    return order


@pytest.mark.parametrize("value", ["nan", "inf", "-5", "0", "soon", "1e99"])
def test_a_deadline_that_is_none_is_refused(value):
    with pytest.raises(Refused, match="GPUREADY_INSTALL_DEADLINE"):
        _order(value)._install_deadline()


def test_a_deadline_is_kept():
    assert _order("90")._install_deadline() == 90.0 and _order("")._install_deadline() > 3600


def _planned(torch: str, cuda: str = "", wants: str | None = None, on: str | None = None) -> InstallOrder:
    order = InstallOrder.__new__(InstallOrder)
    order.plan, order.wants, order.on, order.what_if = Plan("demo", "1", "plan", torch=torch, cuda=cuda), wants, on, {}
    order.framework = "demo"
    return order


@pytest.mark.parametrize(("offline", "named"), [("", None), ("1", None), ("", "3.12")])
def test_a_python_that_is_not_here_is_fetched_by_uv_unless_it_was_named(monkeypatch, offline, named):
    order = _planned("2.13.0+cpu")
    order.plan, order.python, order.notes = order.plan.replace(python="3.12"), named, []
    order.host, order.uv_settings, order.acts = _Reported(offline), uv.UvSettings(), True
    monkeypatch.setattr(install, "find_python", lambda *_: "")
    if offline or named:
        with pytest.raises(Refused, match=r"3\.12 is not to be found here: install it \(uv python install 3\.12\)"):
            order._find_interpreter("uv")
    else:
        assert order._find_interpreter("uv") == "3.12"
        assert order.notes == ["Python 3.12 is not on this machine: uv fetches it"]


def test_a_cpu_environment_that_nobody_asked_for_is_announced():
    (note,) = _planned("2.13.0+cpu")._describe_cpu_plan()
    assert "makes a CPU environment" in note and "--on h100x8" in note
    for order in (
        _planned("2.13.0+cpu", wants="cpu"),
        _planned("2.13.0+cpu", on="h100"),
        _planned("2.13.0+cu126", "12.6"),
        _planned("2.13.0+rocm6.4"),
        _planned(""),
    ):
        assert order._describe_cpu_plan() == []


@pytest.mark.parametrize(
    ("framework", "wants", "on_cpu"),
    [
        ("axolotl", None, "gpuready install axolotl --wants cpu"),
        ("colossalai", "lora", "gpuready install colossalai --wants lora,cpu"),
        ("axolotl", "cpu", ""),
        ("vllm", None, ""),
        ("demo", None, ""),
    ],
)
def test_without_a_gpu_the_refusal_names_the_ways_on(framework, wants, on_cpu):
    """axolotl and colossalai train on a CPU where that is asked for; vllm starts on a GPU alone."""
    bare, full = (Facts((Fact("gpu.count", count, "test"),)) for count in (0, 8))
    chosen = Plan(framework, "", "impossible")
    said = suggest_elsewhere(framework, chosen, bare, None, wants)
    assert f"gpuready install {framework} --on h100x8" in said
    assert said.endswith(on_cpu) and ("--wants" in said) == bool(on_cpu)
    assert suggest_elsewhere(framework, chosen, full, None, wants) == f"gpuready plan {framework} tells more"
    assert suggest_elsewhere(framework, chosen, bare, "h100", wants) == f"gpuready plan {framework} tells more"


def test_a_check_of_a_cpu_environment_agrees_with_its_install(tmp_path):
    """What the installer writes into pyvenv.cfg is a fact of the environment, here and in a recording; a GPU in the machine ends it."""
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    assert describe_environment(LiveHost(), str(tmp_path), f"{tmp_path}/bin/python", "test").made_for == ""
    note_purpose(str(tmp_path), Plan("demo", "1", "plan", torch="2.13.0+cpu"), "")
    target = describe_environment(LiveHost(), str(tmp_path), f"{tmp_path}/bin/python", "test")
    probed = {fact.key: fact for fact in probe_packages(LiveHost(), target)}
    facts = Facts((probed["python.made_for"], Fact("gpu.count", 0, "test")))
    assert add_environment_purpose(facts).value("job.wants") == ("cpu",)
    assert add_environment_purpose(facts).fact("job.wants").source == f"{tmp_path}/pyvenv.cfg"
    asked = facts.with_facts(Fact("job.wants", ("fp8",), "test"))
    assert add_environment_purpose(asked).value("job.wants") == ("fp8", "cpu")
    with_gpu = facts.with_facts(Fact("gpu.count", 1, "test"))
    assert add_environment_purpose(with_gpu).value_if_known("job.wants") is None
    assert add_environment_purpose(Facts((Fact("gpu.count", 0, "test"),))).value_if_known("job.wants") is None


@pytest.mark.parametrize(
    ("framework", "lock", "gpus", "start"),
    [
        ("", ("torch", "axolotl"), 1, "axolotl"),
        ("transformers", ("transformers",), 8, "torchrun --nproc-per-node 8"),
        ("", ("numpy",), 0, ""),
    ],
)
def test_a_lock_ends_in_the_frameworks_own_command_and_never_in_its_own(framework, lock, gpus, start):
    from gpuready.model import Contract, Report
    from gpuready.model.plan import InstallResult, LockedPackage

    order = InstallOrder.__new__(InstallOrder)
    rows = tuple(LockedPackage(name, "1.0") for name in lock)
    order.framework, order.plan = framework, Plan("", "", "plan", lock=rows, start=("rm", "-rf", "/"))
    facts = Facts([Fact("gpu.count", gpus, "test", "stated")])
    done = InstallResult("installed", "env", report=Report(Contract("x", "1"), facts))
    found = " ".join(order._add_start_of_lock(done).plan.start)
    assert found.startswith(start) and bool(found) == bool(start) and "rm" not in found.split()


@pytest.mark.parametrize(("acts", "agreed"), [(True, False), (False, False), (True, True)])
def test_a_build_that_nobody_agreed_to_is_refused_before_anything_is_made(acts, agreed):
    order = _planned("2.13.0+cpu")
    order.plan = order.plan.replace(
        python="3.13", lock=(LockedPackage("kite", "1.0", built=True), LockedPackage("reel", "2"))
    )
    order.allow_build = agreed
    if acts and not agreed:
        with pytest.raises(Refused, match=r"no wheel for Python 3\.13 .*: kite 1\.0; .*--allow-build"):
            order._describe_builds(acts)
    else:
        (note,) = order._describe_builds(acts)
        assert "kite 1.0" in note and "reel" not in note
    order.plan = order.plan.replace(lock=(LockedPackage("reel", "2"),))
    assert order._describe_builds(True) == []
