"""The commands of fixes as a person can run them: with a program that is there, into the Python that was examined.

Inside, a fix is ``uv pip install --python PATH ...``. Where PATH has no uv, the one that came with gpuready is named by its path; where
the distribution manages that Python (PEP 668), it becomes gpuready's own command; for a container file it becomes a line of that file.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuready import contracts
from gpuready.catalog.packages import list_positional_words, split_requirement
from gpuready.model import Facts, FixStep, Record, Report
from gpuready.system.host_access import AccessError, HostAccess
from gpuready.system.own_programs import find_own_uv
from gpuready.system.process.isolation import call_within

ANSWER_SECONDS = 1.0
"""How long the folders of PATH may take to say whether uv is there."""


class InstallTarget(Record):
    """The Python that a fix installs into, and what can install there; None where that is not known."""

    python: str = ""
    kind: str = ""
    framework: str = ""
    container: str = ""  # the container file that was read in its place
    uv: str | None = None  # a word that starts uv; empty where there is none
    managed: bool | None = None


def make_fixes_runnable(report: Report, uv: str | None) -> Report:
    """Return a report whose fixes can be run; ``uv``: what starts uv on this machine, if that is what was examined."""
    if not any(step.run for finding in report.findings for step in finding.fix):
        return report
    target = describe_install_target(report.facts, report.contract.framework, uv)
    findings = tuple(
        finding.replace(fix=tuple(make_step_runnable(step, target) for step in finding.fix))
        for finding in report.findings
    )
    return report.replace(findings=findings)


def look_for_uv(host: HostAccess) -> str | None:
    """Return ``uv`` where it is on PATH, else the path of the one that came with gpuready, empty without one; None where PATH does not answer."""
    try:
        return "uv" if call_within(lambda: host.find_program("uv") or "", ANSWER_SECONDS, "PATH") else find_own_uv()
    except AccessError:
        return None


def describe_install_target(facts: Facts, framework: str, uv: str | None) -> InstallTarget:
    framework = framework if framework in contracts.list_frameworks() else ""  # of a user's own contract
    return InstallTarget(
        str(facts.value_if_known("python.path") or ""),
        str(facts.value_if_known("python.kind") or ""),
        framework,
        str(facts.host).partition(" on ")[0] if "container.image" in facts else "",
        uv,
        facts.value_if_known("python.managed"),
    )


def make_step_runnable(step: FixStep, target: InstallTarget) -> FixStep:
    """Return a step with a command that can be run for this target; a step without a command as it is."""
    run = step.run
    if run[:2] == ("pip", "install"):
        run = ("uv", "pip", "install", *(("--python", target.python) if target.python else ()), *run[2:])
    if run[:2] == ("uv", "pip") and target.python and "--python" not in run:
        run = (*run[:3], "--python", target.python, *run[3:])
    if run[:2] == ("uv", "pip"):
        return _make_install_runnable(step.replace(run=keep_other_packages(run)), target)
    if run[:2] == ("uv", "venv") and target.uv == "" and target.framework:
        return step.replace(run=("gpuready", "install", target.framework, "-e", run[-1]))
    return step.replace(run=(target.uv, *run[1:])) if target.uv and run[:1] == ("uv",) else step


def _make_install_runnable(step: FixStep, target: InstallTarget) -> FixStep:
    if target.container:
        line = _format_container_line(step.run, target.python or "python", target.managed is True)
        return step.replace(does=f"{step.does}: in {target.container}, RUN {line}", run=(), safety="manual")
    if target.managed:
        does = f"make an environment of its own: the distribution manages {target.python} (PEP 668)"
        return step.replace(does=does, run=_new_environment_command(target), note="")
    if target.uv != "":
        return step.replace(run=(target.uv or "uv", *step.run[1:]))
    if not target.framework:
        return step
    repaired = ("gpuready", "fix", target.framework, "--python", target.python)
    return step.replace(run=repaired if target.kind == "venv" else _new_environment_command(target))


def _format_container_line(run: Sequence[str], python: str, is_managed: bool) -> str:
    """An image has pip, and uv is a package of it."""
    import shlex

    anyway = ("--break-system-packages",) if is_managed else ()
    uv = shlex.join((python, "-m", "pip", "install", *anyway, "uv"))
    return f"{uv} && {shlex.join((python, '-m', *run[:3], *anyway, *run[3:]))}"


def _new_environment_command(target: InstallTarget) -> tuple[str, ...]:
    if target.framework:
        return ("gpuready", "install", target.framework, "-e", ".venv")
    return (target.python, "-m", "venv", ".venv")


def keep_other_packages(run: Sequence[str]) -> tuple[str, ...]:
    """Narrow ``--upgrade`` and ``--reinstall``, which uv applies to every dependency, to the packages that are named."""
    words = list(run)
    for wide, narrow in (("--upgrade", "--upgrade-package"), ("--reinstall", "--reinstall-package")):
        if wide in words and not (wide == "--reinstall" and "--no-deps" in words):
            names = [split_requirement(word)[0] for word in list_positional_words(words[3:])]
            at = words.index(wide)
            words[at : at + 1] = [part for name in names for part in (narrow, name)]
    return tuple(words)
