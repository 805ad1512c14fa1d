"""Commands that only look start no program of the environment that they examine, however it was laid out for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpuready import system, workflow
from gpuready.commands import load_command
from gpuready.mcp import server, tools
from gpuready.probe.environment_choice import choose_environment
from gpuready.system.live_host import NOT_STARTED
from gpuready.web.query_parser import WEB_COMMANDS, query_parameters
from gpuready.workflow.allowed_paths import AllowedPaths
from gpuready.workflow.plan import plan_frameworks
from gpuready.workflow.refusal import Refused
from tests.probe.fakes import Fake

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
EXECUTING_FLAGS = {"run_python", "run_import", "image", "trace", "fix"}
READ_ONLY_TOOLS = ("check", "plan", "env")


class Trap:
    """An environment whose programs leave a mark when they are started."""

    def __init__(self, folder: Path):
        self.folder, self.mark = folder / "project" / ".venv", folder / "mark"
        self.bin = self.folder / "bin"
        (self.folder / "lib" / f"python{MINOR}" / "site-packages").mkdir(parents=True)
        self.bin.mkdir()
        (self.folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        self.lay(self.bin / "python")

    def lay(self, path: Path) -> Path:
        path.write_text(f"#!/bin/sh\necho Python {MINOR}.1\necho started >> {self.mark}\n")
        path.chmod(0o755)
        return path

    @property
    def started(self) -> bool:
        return self.mark.exists()


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


LOOKS = {
    "probe": lambda python: workflow.probe_machine(python),
    "probe -o": lambda python: workflow.record_machine(python),
    "check": lambda python: workflow.check_machine(["transformers"], python=python),
    "check --on": lambda python: workflow.check_machine(["transformers"], on="h100", python=python),
    "plan": lambda python: plan_frameworks(["transformers"], on="h100", python=python, resolve=False),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_script_in_place_of_python_is_not_started(trap: Trap, look: str):
    LOOKS[look](str(trap.folder))
    assert not trap.started


def test_its_version_is_read_from_names(trap: Trap):
    fact = workflow.probe_machine(str(trap.folder)).fact("python.version")
    assert (fact.value, fact.how) == (MINOR, "read") and f"python{MINOR}" in fact.source
    (trap.folder / "lib" / "python3.1").mkdir()
    with pytest.raises(Refused, match="does not say which Python it is: no file of"):
        workflow.probe_machine(str(trap.folder))
    assert not trap.started


def test_a_link_that_leads_out_is_not_started_either(trap: Trap, tmp_path: Path):
    (trap.bin / "python").unlink()
    (trap.bin / "python").symlink_to(trap.lay(tmp_path / "outside"))
    workflow.check_machine(["transformers"], python=str(trap.folder))
    assert not trap.started


@pytest.mark.parametrize("name", READ_ONLY_TOOLS)
def test_tools_of_an_agent_that_are_marked_read_only(trap: Trap, name: str, tmp_path: Path):
    tool = tools.build_tool_table()[name]
    framework = {"framework": "vllm"} if name == "env" else {"frameworks": ["vllm"]}
    tools.call_tool(tool, AllowedPaths([str(tmp_path)]), {**framework, "python": str(trap.folder)})
    assert not trap.started


def test_programs_of_an_active_environment_come_first_on_path(trap: Trap, monkeypatch: pytest.MonkeyPatch):
    for name in ("nvidia-smi", "nvcc", "gcc", "g++", "ninja", "cmake", "python3", "sysctl", "rocm-smi"):
        trap.lay(trap.bin / name)
    monkeypatch.setattr(system.LiveHost, "runs_command", True)
    monkeypatch.setenv("VIRTUAL_ENV", str(trap.folder))
    monkeypatch.setenv("PATH", f"{trap.bin}:{os.environ['PATH']}")
    facts = workflow.probe_machine()
    assert facts.value("python.prefix") == str(trap.folder)
    assert facts.fact("compiler.ninja").gap == NOT_STARTED == facts.fact("toolkit.version").gap
    assert not trap.started
    workflow.probe_machine(run_python=True)
    assert trap.started, "with --run-python they may"


@pytest.mark.parametrize("place", ["env/bin/tool", "env/lib/python3.11/site-packages/nvidia/bin/tool", "linked/tool"])
def test_a_read_only_host_refuses_programs_of_environments(tmp_path: Path, place: str):
    marks = ("env/conda-meta/history",)
    for name in (*marks, "env/bin/tool", place):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    if place.startswith("linked"):
        (tmp_path / place).symlink_to(tmp_path / "env/bin/tool")
    tool = tmp_path / place
    tool.write_text("#!/bin/sh\necho out\n")
    os.chmod(tool, 0o755)
    assert system.ReadOnlyHost().run([str(tool)]).end == NOT_STARTED
    assert system.LiveHost().run([str(tool)]).out == "out\n"
    assert system.ReadOnlyHost().run(["echo", "out"]).out == "out\n"


@pytest.mark.parametrize("place", ["relative", "below the current folder", "a link to it from elsewhere"])
def test_compilers_of_a_checkout_are_not_started(
    tmp_path: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch, place: str
):
    """CUDA_HOME, CC and CXX that name them, and entries of PATH that mean the current folder."""
    here, home = trap.folder.parent, tmp_path / "home"
    (here / "cuda/bin").mkdir(parents=True)
    home.mkdir()
    for name in ("nvcc", "gcc", "g++", "ninja", "cmake", "nvidia-smi", "ldconfig", "lspci"):
        trap.lay(here / "cuda/bin" / name)
        trap.lay(here / name)
    (home / "cuda").symlink_to(here / "cuda")
    monkeypatch.chdir(here)
    start = {"relative": "cuda", "below the current folder": f"{here}/cuda"}.get(place, f"{home}/cuda")
    values = {
        "CUDA_HOME": start,
        "CC": f"{start}/bin/gcc",
        "CXX": f"ccache ./{start}/bin/g++" if start == "cuda" else f"{start}/bin/g++",
    }
    for name, value in {**values, "HOME": str(home), "PATH": f":.:cuda/bin:{os.environ['PATH']}:"}.items():
        monkeypatch.setenv(name, value)
    facts = workflow.probe_machine()
    gaps = [facts.fact(key).gap for key in ("toolkit.version", "compiler.gcc", "compiler.gxx")]
    assert not trap.started and gaps == ["not started, since it lies below the current folder"] * 3
    monkeypatch.chdir(tmp_path / "home")
    if place != "relative":
        workflow.probe_machine()
        assert trap.started, "elsewhere they are what the user named"


def test_in_a_folder_that_is_gone_programs_of_the_system_are_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert system.ReadOnlyHost().run(["echo", "out"]).out == "out\n"


# -- launchers ----------------------------------------------------------------------------------------------


def test_a_launcher_on_path_is_a_gap(tmp_path: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch):
    shims = tmp_path / "shims"
    shims.mkdir()
    trap.lay(shims / "python3")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    monkeypatch.chdir(shims)
    monkeypatch.setattr(system.LiveHost, "runs_command", True)
    found = choose_environment(system.ReadOnlyHost())
    assert not found.prefix and "only starting it tells" in found.gap and "--run-python" in found.gap
    with pytest.raises(Refused, match="--run-python"):
        workflow.probe_machine(str(shims / "python3"))
    assert not trap.started


def test_a_wrapper_that_names_its_python_is_read(tmp_path: Path):
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\n# ours\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    assert choose_environment(system.ReadOnlyHost(), str(wrapper)).prefix == sys.prefix


# -- versions from files ------------------------------------------------------------------------------------

BARE = {"/opt/py/bin/python3.12": "\x7fELF"}


@pytest.mark.parametrize(
    ("files", "requested", "version", "source"),
    [
        ({}, {}, "3.12", "/opt/py/bin/python3.12"),
        (
            {"/opt/py/include/python3.12/patchlevel.h": '#define PY_VERSION   \t"3.12.4"\n'},
            {},
            "3.12.4",
            "/opt/py/include/python3.12/patchlevel.h",
        ),
        (
            {},
            {"elf": {("/opt/py/bin/python3.12", ".rodata"): ["3.12.", "3.12.7", "3.12.7 (main)"]}},
            "3.12.7",
            "the version string in /opt/py/bin/python3.12",
        ),
        (
            {},
            {
                "headers": {"/opt/py/bin/python3.12": {"needed": ["libpython3.12.so.1.0"]}},
                "elf": {("/opt/py/lib/libpython3.12.so.1.0", ".rodata"): ["3.12.5"]},
            },
            "3.12.5",
            "the version string in /opt/py/lib/libpython3.12.so.1.0",
        ),
    ],
)
def test_the_version_of_an_interpreter_by_its_files(files, requested, version, source):
    host = Fake(BARE | files, **requested)
    host.may_start_python = False
    found = choose_environment(host, "/opt/py/bin/python3.12")
    assert (found.version, found.version_source) == (version, source)
    assert not host.ran()


# -- who may ------------------------------------------------------------------------------------------------


def test_no_read_only_tool_and_no_page_offers_to_start_anything():
    listed = server.ToolServer(AllowedPaths(["."])).describe_tools()
    readers = [tool for tool in listed if tool.annotations.read_only_hint]
    assert {tool.name for tool in listed} - {tool.name for tool in readers} == {"prove"}, "prove starts it"
    for tool in readers:
        assert not EXECUTING_FLAGS & set(tool.input_schema["properties"]), tool.name
    for command in WEB_COMMANDS:
        assert not EXECUTING_FLAGS & {one.name for one in query_parameters(command).values()}, command
    known = {name for command in ("check", "fit", "plan") for name in load_command(command).parameters}
    assert known >= EXECUTING_FLAGS, "by the names that they have"
