"""The commands of fixes as a person can run them: with a program that is there, into the Python that was examined.

Inside, a fix is ``uv pip install --python PATH ...``. Where there is no uv it becomes pip of that Python; where there is no pip either,
or the distribution manages that Python (PEP 668), it becomes gpuready's own command; for a container file it becomes a line of that file.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuready import contracts
from gpuready.catalog.packages import UV_OPTIONS_WITH_VALUE, list_positional_words, split_requirement
from gpuready.model import Facts, FixStep, Record, Report
from gpuready.system.host_access import AccessError, HostAccess
from gpuready.system.process.isolation import call_within

ANSWER_SECONDS = 1.0
"""How long the folders of PATH may take to say whether uv is there."""

TORCH_INDEX = "https://download.pytorch.org/whl/"
TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")


class InstallTarget(Record):
    """The Python that a fix installs into, and what can install there; None where that is not known."""

    python: str = ""
    kind: str = ""
    framework: str = ""
    container: str = ""  # the container file that was read in its place
    uv: bool | None = None
    pip: bool | None = None
    managed: bool | None = None


def make_fixes_runnable(report: Report, uv: bool | None) -> Report:
    """Return a report whose fixes can be run; ``uv``: whether uv is on this machine, if that is what was examined."""
    if not any(step.run for finding in report.findings for step in finding.fix):
        return report
    target = describe_install_target(report.facts, report.contract.framework, uv)
    findings = tuple(
        finding.replace(fix=tuple(make_step_runnable(step, target) for step in finding.fix))
        for finding in report.findings
    )
    return report.replace(findings=findings)


def look_for_uv(host: HostAccess) -> bool | None:
    """Return whether uv is on PATH; None where a folder of PATH does not answer, which may keep a process for good."""
    try:
        return bool(call_within(lambda: host.find_program("uv") or "", ANSWER_SECONDS, "PATH"))
    except AccessError:
        return None


def describe_install_target(facts: Facts, framework: str, uv: bool | None) -> InstallTarget:
    pip = facts.fact("package.pip")
    framework = framework if framework in contracts.list_frameworks() else ""  # of a user's own contract
    return InstallTarget(
        str(facts.value_if_known("python.path") or ""),
        str(facts.value_if_known("python.kind") or ""),
        framework,
        str(facts.host).partition(" on ")[0] if "container.image" in facts else "",
        uv,
        None if pip.gap else pip.value is not None,
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
    if run[:2] == ("uv", "venv") and target.uv is False and target.framework:
        return step.replace(run=("gpuready", "install", target.framework, "-e", run[-1]))
    return step


def _make_install_runnable(step: FixStep, target: InstallTarget) -> FixStep:
    if target.container:
        import shlex

        line = shlex.join(to_pip_command(step.run, target.python or "python", target.managed is True))
        return step.replace(does=f"{step.does}: in {target.container}, RUN {line}", run=(), safety="manual")
    if target.managed:
        does = f"make an environment of its own: the distribution manages {target.python} (PEP 668)"
        return step.replace(does=does, run=_new_environment_command(target), note="")
    if target.uv is not False:
        return step
    if target.pip:
        return step.replace(run=to_pip_command(step.run, target.python or "python"))
    if not target.framework:
        return step
    repaired = ("gpuready", "fix", target.framework, "--python", target.python)
    return step.replace(run=repaired if target.kind == "venv" else _new_environment_command(target))


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


def to_pip_command(run: Sequence[str], python: str, breaks_system: bool = False) -> tuple[str, ...]:
    """Translate ``uv pip install|uninstall ...`` to ``PYTHON -m pip ...`` with the same result."""
    verb = run[2]
    rest = [part for word in run[3:] for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    backend = rest[rest.index("--torch-backend") + 1] if "--torch-backend" in rest else ""
    words: list[str] = ["-y"] if verb == "uninstall" else []
    at = 0
    while at < len(rest):
        word, value = rest[at], rest[at + 1] if at + 1 < len(rest) else ""
        at += 1 + (word in UV_OPTIONS_WITH_VALUE)
        words += _translate_word(word, value, backend)
    if backend:
        words = ["--extra-index-url", TORCH_INDEX + backend, *words]
    if breaks_system:
        words = ["--break-system-packages", *words]
    return (python, "-m", "pip", verb, *_drop_repeated_flags(words))


def _drop_repeated_flags(words: list[str]) -> list[str]:
    flags = ("--upgrade", "--force-reinstall", "--no-deps", "--no-build-isolation")
    return [word for at, word in enumerate(words) if word not in flags or word not in words[:at]]


def _translate_word(word: str, value: str, backend: str) -> list[str]:
    """Translate one word of uv, with its value if it takes one."""
    if word in ("--python", "--torch-backend"):
        return []
    if word == "--upgrade-package":
        return ["--upgrade"]
    if word == "--reinstall" or (word == "--reinstall-package" and not backend):
        return ["--force-reinstall", "--no-deps"]
    if word == "--reinstall-package":
        return []  # the build in the requirement does it
    if word == "--no-cache":
        return ["--no-cache-dir"]
    if word == "--no-build-isolation-package":
        return ["--no-build-isolation"]
    if word == "--prerelease":
        return ["--pre"]
    if word == "--index":
        return ["--extra-index-url", value]
    if word in UV_OPTIONS_WITH_VALUE:
        return [word, value]
    name, spec = split_requirement(word)
    if backend and name in TORCH_PACKAGES and spec.startswith("==") and "+" not in spec:
        return [f"{word}+{backend}"]  # else pip keeps a build of the same release
    return [word]
