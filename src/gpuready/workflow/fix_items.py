"""The numbered changes of ``gpuready fix``: what gpuready makes itself, and what is left to a person."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from gpuready.apply.environment_copy import explain_refusal
from gpuready.apply.generation import EnvironmentHome
from gpuready.model import Facts, FixStep, Record
from gpuready.model.plan import FixItem, Plan
from gpuready.plan.change import FixChange
from gpuready.plan.fix import FixResult, merge_fix_steps

_FixRow = tuple[FixStep, tuple[FixChange, ...], dict[str, str]]


UNDO_COMMAND = ("gpuready", "fix", "--undo")
UNMET_CODE = "PKG044"
"""The code of a package that lacks what it requires, whatever requires it."""
REBOOT = ("sudo", "reboot")
_PACKAGE_VERBS, _VARIABLE_VERBS = {"package", "torch"}, {"set", "unset"}


class FixTarget(Record):
    """The environment to change: what it is, and why gpuready must not change it, if so."""

    kind: str  # venv, conda, system, gpuready; empty where there is none
    path: str = ""
    refusal: str = ""
    undo: tuple[str, ...] = UNDO_COMMAND
    no_install: str = ""  # why no new environment can be installed here, if so


class FixTask(Record):
    """One numbered change with the steps that make it."""

    item: FixItem
    how: str = ""  # packages, install, variables, remove; empty where a person does it
    steps: tuple[FixStep, ...] = ()
    changes: tuple[FixChange, ...] = ()


def describe_target(facts: Facts) -> FixTarget:
    """Tell what the environment is from its facts."""
    prefix, kind = str(facts.value_if_known("python.prefix") or ""), str(facts.value_if_known("python.kind") or "")
    if not prefix:
        return FixTarget("", "", "no environment was found")
    for folder in (prefix, prefix.rpartition("/installs/")[0]):
        if folder and EnvironmentHome(folder).is_managed():
            return FixTarget("gpuready", folder)
    if kind != "venv":
        return FixTarget(kind, prefix, f"gpuready does not change a {kind} Python")
    return FixTarget("venv", prefix, explain_refusal(prefix))


def list_fix_tasks(found: FixResult, target: FixTarget, framework: str, only: Sequence[str] = ()) -> list[FixTask]:
    """Return the changes in the order in which they are made; those that ``only`` leaves out are skipped."""
    rows = [
        (step, tuple(changes), _reasons_of_step(found.plan, number))
        for number, (step, changes) in enumerate(merge_fix_steps(found.changes), 1)
    ]
    if target.kind == "gpuready":
        rows = _join_package_rows(rows, target, framework)
    tasks = [_make_task(number, *row, target) for number, row in enumerate(rows, 1)]
    return [task if not only or set(only) & set(task.item.codes) else _skip_task(task) for task in tasks]


def _reasons_of_step(plan: Plan, number: int) -> dict[str, str]:
    """Return the codes that a step of the plan clears, each with what was found."""
    mine = [reason for reason in plan.because if reason.step == number]
    return {reason.about: reason.says.partition(f"{reason.about}: ")[2] for reason in mine}


def _join_package_rows(rows: list[_FixRow], target: FixTarget, framework: str) -> list[_FixRow]:
    """Replace all changes of packages by one new generation: an environment of gpuready is always one whole plan."""
    mine = [row for row in rows if _verbs(row[1]) & _PACKAGE_VERBS]
    if not mine:
        return rows
    run = ("gpuready", "install", framework, "-e", target.path)
    undo = ("gpuready", "install", "--rollback", "-e", target.path)
    step = mine[0][0].replace(does=f"install {framework} as a new environment in its place", run=run, undo=undo)
    changes = tuple(change for row in mine for change in row[1])
    reasons = {code: says for row in mine for code, says in row[2].items()}
    return [(step, changes, reasons), *(row for row in rows if row not in mine)]


def _verbs(changes: Iterable[FixChange]) -> set[str]:
    return {act[0] for change in changes for act in change.acts}


def _make_task(
    number: int, step: FixStep, changes: tuple[FixChange, ...], reasons: dict[str, str], target: FixTarget
) -> FixTask:
    how, why_not = _choose_how(step, changes, target)
    commands: tuple[tuple[str, ...], ...] = (step.run,) if step.run else ()
    if not how and any(act[:2] == ("fact", "driver.version") for change in changes for act in change.acts):
        commands += (REBOOT,) if commands else ()
    note = "; ".join(text for text in (why_not, step.note) if text)
    undo = _describe_undo(how, step, target)
    item = FixItem(
        number, step.does, "gpuready" if how else "you", tuple(reasons), tuple(reasons.values()), commands, undo, note
    )
    return FixTask(item, how, (step,), changes)


def _choose_how(step: FixStep, changes: tuple[FixChange, ...], target: FixTarget) -> tuple[str, str]:
    """Return how gpuready makes this change; empty where a person must, and then why."""
    verbs, run = _verbs(changes), step.run
    if verbs and verbs <= _VARIABLE_VERBS:
        return "variables", ""
    if run[:2] == ("gpuready", "install"):
        return ("", target.no_install) if target.no_install else ("install", "")
    if run[:2] == ("rm", "--") and "/site-packages/" not in run[2]:
        return "remove", ""
    if (run[:2] == ("rm", "--") and target.kind == "venv") or (run[:2] == ("uv", "pip") and not _names_local_file(run)):
        return ("", target.refusal) if target.refusal else ("packages", "")
    return "", ""


def _names_local_file(run: Sequence[str]) -> bool:
    """Whether a command reads files of the framework's checkout, which only its user has."""
    named = ("-r", "-e", ".", "./", "/")
    return any(run[at].startswith(named) and run[at - 1] != "--python" for at in range(3, len(run)))


def _describe_undo(how: str, step: FixStep, target: FixTarget) -> str:
    if how in ("packages", "variables"):
        return shlex.join(target.undo)
    if how == "install":
        return " ".join(step.undo) or "remove the new folder; the environment of now is not changed"
    return "none needed: the program makes the file again" if how == "remove" else " ".join(step.undo)


def put_unmet_first(tasks: Sequence[FixTask], unmet: Sequence[str], target: FixTarget) -> list[FixTask]:
    """Put first that uv resolves all packages together, where some lack what they require: the others are made if that is not enough."""
    does = "resolve all installed packages together, so that each has what it requires"
    undo = _describe_undo("packages", FixStep(does), target)
    item = FixItem(1, does, "gpuready", (UNMET_CODE,), ("; ".join(unmet[:3]),), undo=undo)
    later = [task.item.replace(number=task.item.number + 1) for task in tasks]
    notes = ["; ".join(filter(None, (item.note, "if 1 is not enough"))) for item in later]
    rest = zip(tasks, later, notes, strict=True)
    return [
        FixTask(item, "packages"),
        *(task.replace(item=own.replace(note=note) if task.how == "packages" else own) for task, own, note in rest),
    ]


def _skip_task(task: FixTask) -> FixTask:
    return task.replace(item=task.item.replace(state="skipped"), how="")
