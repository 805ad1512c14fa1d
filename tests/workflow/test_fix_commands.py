"""Every fix that is shown can be run: its program is there, it names the examined Python, and it changes only what is at fault."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpuready import rules
from gpuready.model import Fact, Facts, FixStep
from gpuready.rules import fix_steps
from gpuready.workflow import fix_commands
from gpuready.workflow.fix_commands import InstallTarget
from tests.rules.worlds import example, facts

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).parent / "uv")
VENV, WINDOWS = "/home/u/my env/bin/python", r"C:\Users\u\venv\Scripts\python.exe"
PLACES = {
    "venv with uv": InstallTarget(VENV, "venv", "demo", uv="uv", managed=False),
    "uv of gpuready alone": InstallTarget(VENV, "venv", "demo", uv="/opt/my tools/uv", managed=False),
    "venv, no uv": InstallTarget(VENV, "venv", "demo", uv="", managed=False),
    "conda, no uv": InstallTarget("/opt/conda/bin/python", "conda", "demo", uv="", managed=False),
    "system, PEP 668": InstallTarget("/usr/bin/python3", "system", "demo", uv="uv", managed=True),
    "Windows": InstallTarget(WINDOWS, "venv", "demo", uv="uv", managed=False),
    "a recording": InstallTarget("/srv/venv/bin/python", "venv", "demo", uv=None, managed=None),
    "a Dockerfile": InstallTarget("/opt/venv/bin/python", "venv", "demo", container="Dockerfile", managed=False),
}
OTHER_PROGRAMS = {"gpuready", "nvidia-smi", "rm", "wsl"}


def every_fix(python: str):
    """Every step of every rule, on its broken example with this Python."""
    for code in rules.list_rule_modules():
        rule = rules.load_rule(code)
        known = facts(rule.BROKEN).with_facts(Fact("python.path", python))
        found = rule.judge(known, example(rule))
        yield from ((code, step) for step in found.fix)


def test_every_rule_has_a_fix_and_thirty_install_something():
    steps = list(every_fix(VENV))
    assert {code for code, _ in steps} == set(rules.list_rule_modules())
    assert sum(step.run[:1] == ("uv",) for _, step in steps) >= 25


@pytest.mark.parametrize("place", PLACES)
def test_every_fix_can_be_run_where_it_is_shown(place):
    target = PLACES[place]
    for code, step in every_fix(target.python):
        shown = fix_commands.make_step_runnable(step, target)
        if not shown.run:
            assert (shown.does and not step.run) or target.container, code
            continue
        assert tuple(shlex.split(shlex.join(shown.run))) == shown.run, code
        program = shown.run[0]
        assert program in OTHER_PROGRAMS | {target.uv or "uv"}, code
        if "pip" in shown.run:
            assert target.python in shown.run and not target.managed, code
            assert "--upgrade" not in shown.run and target.uv != "", code
            assert "--reinstall" not in shown.run or "--no-deps" in shown.run, code


def test_a_container_file_gets_a_line_and_no_command():
    step = fix_commands.make_step_runnable(
        FixStep("install numpy below 2", ("uv", "pip", "install", "--python", "/usr/bin/python3", "numpy<2"), "ask"),
        PLACES["a Dockerfile"].replace(python="/usr/bin/python3", managed=True),
    )
    assert not step.run and step.does.endswith(
        "in Dockerfile, RUN /usr/bin/python3 -m pip install --break-system-packages uv && "
        "/usr/bin/python3 -m uv pip install --break-system-packages --python /usr/bin/python3 'numpy<2'"
    )


def test_an_upgrade_or_a_reinstall_is_of_what_is_named():
    wide = ("uv", "pip", "install", "--upgrade", "transformers", "peft>=0.17")
    narrow = ("--upgrade-package", "transformers", "--upgrade-package", "peft", "transformers", "peft>=0.17")
    assert fix_commands.keep_other_packages(wide) == (*wide[:3], *narrow)
    again = ("uv", "pip", "install", "--python", "P", "--reinstall", "deepspeed")
    assert fix_commands.keep_other_packages(again) == (*again[:5], "--reinstall-package", "deepspeed", "deepspeed")
    exact = ("uv", "pip", "install", "--reinstall", "--no-deps", "torch==2.8.0")
    assert fix_commands.keep_other_packages(exact) == exact


def test_where_the_distribution_manages_python_a_new_environment_is_the_next_step():
    from gpuready.model import Finding, Report
    from gpuready.render.check_report import list_next_commands

    contract, finding = example(rules.load_rule("PKG001")), Finding("PKG001", "error", "torch has no CUDA")
    for managed, command in (
        (True, ("gpuready", "install", "demo", "-e", ".venv")),
        (False, ("gpuready", "fix", "demo")),
    ):
        report = Report(contract, Facts([Fact("python.managed", managed)]), (finding,))
        assert list_next_commands(report)[0] == ("fix it", command)


def test_no_plan_is_offered_for_a_contract_of_ones_own():
    """``plan`` takes frameworks that are known, not a file."""
    from gpuready.model import Finding, Report
    from gpuready.render.check_report import list_next_commands

    contract, finding = example(rules.load_rule("PKG001")), Finding("PKG001", "error", "torch has no CUDA")
    report = Report(contract, Facts([Fact("gpu.count", 1)]), (finding,))
    own = {"plan": ("--contract", "mine.toml"), "check": ("--contract", "mine.toml", "-v")}
    labels = [[label for label, _ in list_next_commands(report, flags, is_elsewhere=True)] for flags in ({}, own)]
    assert labels == [["plan", "details"], ["details"]]


def test_a_torch_of_the_same_release_and_another_build_is_replaced():
    known = facts({"package.torch": "2.8.0+cpu", "driver.version": "580.95.05", "os.arch": "x86_64"})
    step = fix_steps.replace_torch_step(known, example(rules.load_rule("PKG001")))
    assert step is not None and step.run[-3:] == ("--reinstall-package", "torch", "torch==2.8.0")


# -- run for real: small wheels, one environment ------------------------------------------------------


def make_wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {need}\n" for need in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD")))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A venv with pip and three small packages, and newer releases of all of them in a folder of wheels."""
    home = tmp_path_factory.mktemp("fixes")
    for name, version, *needs in (
        ("base", "1.0"),
        ("base", "2.0"),
        ("top", "1.0", "base>=1"),
        ("top", "1.1", "base>=1"),
    ):
        make_wheel(home / "wheels", name, version, *needs)
    make_wheel(home / "wheels", "torch", "2.8.0+cpu")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", home / "venv"], check=True)
    (home / "uv.toml").write_text("no-index = true\n")  # uv has no variable for it
    return home


def run_fix(place: Path, run: tuple[str, ...]) -> None:
    variables = {
        "UV_CONFIG_FILE": str(place / "uv.toml"),
        "UV_NO_CACHE": "1",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    links = {"UV_FIND_LINKS": str(place / "wheels"), "PIP_FIND_LINKS": str(place / "wheels")}
    words = [UV if word == "uv" else word for word in run]
    done = subprocess.run(words, env=os.environ | variables | links, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def installed(place: Path) -> dict[str, str]:
    folder = next((place / "venv" / "lib").glob("python*/site-packages"))
    pairs = (path.name.removesuffix(".dist-info").split("-") for path in folder.glob("*.dist-info"))
    return {name: version for name, version in pairs}  # noqa: C416


def facts_of(place: Path) -> Facts:
    python = Fact("python.path", str(place / "venv" / "bin" / "python"))
    return Facts([python, *(Fact(f"package.{name}", version) for name, version in installed(place).items())])


def test_fixes_do_what_they_say_and_nothing_else(place):
    python = str(place / "venv" / "bin" / "python")
    target = InstallTarget(python, "venv", "demo", uv=UV, managed=False)
    run_fix(
        place, ("uv", "pip", "install", "--python", python, "--reinstall", "top==1.0", "base==1.0", "torch==2.8.0+cpu")
    )
    module = next((place / "venv" / "lib").glob("python*/site-packages")) / "top.py"
    module.unlink()

    def apply(step: FixStep) -> dict[str, str]:
        run_fix(place, fix_commands.make_step_runnable(step, target).run)
        return installed(place)

    assert apply(fix_steps.reinstall_step(facts_of(place), "reinstall top", "top"))["base"] == "1.0"
    assert module.exists() and installed(place)["top"] == "1.0"
    step = fix_steps.install_step(facts_of(place), "newest top", "--upgrade", "top")
    assert apply(step) == {"top": "1.1", "base": "1.0", "torch": "2.8.0+cpu"}
    assert "top" not in apply(fix_steps.uninstall_step(facts_of(place), "remove top", "top"))


def test_a_diagnosis_names_the_python_of_the_log_and_upgrades_only_what_it_names():
    from gpuready.workflow.diagnose import diagnose_logs

    log = b"""Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/numpy/core/_multiarray_umath.py", line 46, in __getattr__
    raise ImportError(msg)
ImportError: A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.0 as it may crash.
RuntimeError: Numpy is not available
"""
    runs = [step.run for step in diagnose_logs([[log]]).fix if "pip" in step.run]
    assert runs and all(run[:5] == ("uv", "pip", "install", "--python", "/opt/venv/bin/python") for run in runs)
    assert not any("--upgrade" in run or "--reinstall" in run for run in runs)
