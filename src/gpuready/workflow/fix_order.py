"""``gpuready fix``: show the changes of ``plan --fix``, make those that are safe, check again, say what is left."""

import time
from collections.abc import Callable, Sequence
from shlex import quote

from gpuready import system, workflow
from gpuready.apply import uv
from gpuready.apply.disk_space import format_size
from gpuready.apply.environment_copy import EnvironmentCopy
from gpuready.apply.environment_packages import EnvironmentPackages, forbid_builds
from gpuready.apply.fix_record import FILE_NAME, FixState, SettingsFile
from gpuready.apply.install_errors import InstallFailed
from gpuready.contracts import distribution_name
from gpuready.model import Fact, Finding, FixStep, Report
from gpuready.model.plan import FixOutcome
from gpuready.plan.change import apply_changes, changed_variables
from gpuready.plan.fix import plan_fix
from gpuready.system import durable_files
from gpuready.system.durable_files import fingerprint_environment
from gpuready.system.file_contents import resolve_real_path
from gpuready.workflow import fix_commands
from gpuready.workflow.fix import FixRequest, compute_fix, list_unmet_needs, make_judge
from gpuready.workflow.fix_items import (
    UNDO_COMMAND,
    UNMET_CODE,
    FixTarget,
    FixTask,
    describe_target,
    list_fix_tasks,
    put_unmet_first,
)
from gpuready.workflow.install import InstallOrder
from gpuready.workflow.refusal import Refused, call_or_refuse, suggest_nearest

ShowStep = Callable[..., None]


UV_DEADLINE = 4 * 3600.0
MAX_ROUNDS = 3
"""How often the copy is changed and checked: later rounds for what the first one left of the same findings."""


NO_GPU_FOR_INSTALL = "once a GPU is visible here; for another machine add --on, such as --on h100x8"


FOR_CPU = "no GPU is visible here and torch is a CPU build: taken as an environment for the CPU; --on h100x8 mends it for GPUs"


class FixFailed(ValueError):
    """A change could not be made; in a sentence."""


class FixOrder:
    """One requested fix. Nothing has been changed until ``apply``."""

    def __init__(
        self,
        request: FixRequest,
        *,
        only: Sequence[str] = (),
        find_links: Sequence[str] = (),
        offline: bool = False,
        allow_build: bool = False,
        use_project_config: bool = False,
        show_step: ShowStep = lambda *_: None,
        show_search: ShowStep | None = None,
    ):
        self.show_step, self.host = show_step, system.LiveHost()
        self.find_links, self.offline = tuple(find_links), offline
        self.allow_build, self.use_project_config = allow_build, use_project_config
        self.uv_settings = call_or_refuse(uv.make_uv_settings, self.host, self.find_links, offline, use_project_config)
        self.request, self.before, self.found = compute_fix(request, show_search or show_step)
        self.notes = (FOR_CPU,) if self.request.wants != request.wants else ()
        self.target = describe_target(self.before.facts)
        if self.before.lacks_gpus:
            self.target = self.target.replace(no_install=NO_GPU_FOR_INSTALL)
        if request.python:
            self.target = self.target.replace(undo=(*UNDO_COMMAND, "--python", request.python))
        spec = request.spec or self.before.contract.framework
        if self.target.kind not in ("", "venv", "gpuready") and not self.before.facts.value_if_known("python.managed"):
            hint = f"; `gpuready install {quote(spec)} -e .venv` makes an environment of its own"
            self.target = self.target.replace(refusal=self.target.refusal + hint)
        unmet = [] if self.target.kind != "venv" or self.target.refusal else list_unmet_needs(self.target.path)
        codes = _check_codes(only, self.before, UNMET_CODE if unmet else "")
        left = {finding.code for finding in self.found.report.findings}
        self.cleared = set(codes or (finding.code for finding in self.before.findings if finding.code not in left))
        tasks = list_fix_tasks(self.found, self.target, spec, codes)
        if unmet and UNMET_CODE in (codes or UNMET_CODE):
            tasks = put_unmet_first(tasks, unmet, self.target)
        self.tasks = [self._make_task_runnable(task) for task in tasks]
        self.began = time.perf_counter()
        self.python_after, self.settings_file, self.copy = "", "", ""
        self.fingerprint = ""  # of the environment before the first change
        self.conflicts: list[str] = []  # what uv still finds unmet
        self.space = ""
        self.imported: list[Fact] = []  # that the copy imports, which need not be tried again

    def _make_task_runnable(self, task: FixTask) -> FixTask:
        """Return a task that is left to a person with commands that this person can run."""
        if task.how or not task.item.commands:
            return task
        uv = fix_commands.look_for_uv(self.host) if self.request.on is None else None
        target = fix_commands.describe_install_target(self.before.facts, self.before.contract.framework, uv)
        steps = [FixStep(task.item.does, run, "ask") for run in task.item.commands]
        commands = tuple(fix_commands.make_step_runnable(step, target.replace(kind="")).run for step in steps)
        return task.replace(item=task.item.replace(commands=tuple(run for run in commands if run)))

    @property
    def changes_something(self) -> bool:
        return any(task.how for task in self.tasks)

    def dry_run(self) -> FixOutcome:
        """Return what would be changed. Nothing is."""
        made = {code for task in self.tasks if task.how for code in task.item.codes}
        errors = {finding.code for finding in self.before.findings if finding.severity == "error"}
        changed = "partly" if errors - made else "undecided" if self.before.lacking else "fixed"
        foreseen = changed if self.changes_something else self._idle_verdict()
        return self._make_outcome("dry-run", self.before).replace(foreseen=foreseen)

    # -- apply --------------------------------------------------------------------------------------------

    def apply(self) -> FixOutcome:
        """Make the changes that gpuready makes, and check again."""
        if not self.changes_something:
            return self._make_outcome(self._idle_verdict(), self.before)
        self.fingerprint = self._look()
        try:
            for how, make in (
                ("packages", self._change_packages),
                ("install", self._install_environments),
                ("variables", self._write_settings),
                ("remove", self._remove_files),
            ):
                self._make_changes(how, make)
        except FixFailed as error:
            return self._make_outcome("failed", None, says=system.redact_text(str(error)))
        self.show_step("checking again")
        report = self._check_again()
        left = {finding.code for finding in report.findings}
        for task in [task for task in self.tasks if task.item.codes]:
            if task.item.state == "applied" and left.issuperset(task.item.codes):
                self._set_state([task], "ineffective")
            elif not task.how and task.item.state == "planned" and left.isdisjoint(task.item.codes):
                self._set_state([task], "unneeded")
        errors = any(finding.severity == "error" for finding in report.findings)
        is_open = report.verdict == "undecided"
        return self._make_outcome("partly" if errors or self.conflicts else "undecided" if is_open else "fixed", report)

    def _idle_verdict(self) -> str:
        errors = any(finding.severity == "error" for finding in self.before.findings)
        if errors or self.tasks:
            return "by-hand"
        return "undecided" if self.before.verdict == "undecided" else "nothing-to-fix"

    def _make_changes(self, how: str, make: Callable[[list[FixTask]], None]) -> None:
        tasks = [task for task in self.tasks if task.how == how]
        if not tasks:
            return
        try:
            make(tasks)
        except (InstallFailed, Refused, OSError, ValueError) as error:
            self._set_state(tasks, "failed")
            raise FixFailed(str(error)) from None
        except BaseException:  # a signal: what was begun is taken back already
            self.show_step("stopped: " + self._describe_stop())
            raise
        self._set_state([task for task in self.tasks if task.how == how and task.item.state == "planned"], "applied")

    def _describe_stop(self) -> str:
        done = [str(task.item.number) for task in self.tasks if task.item.state == "applied"]
        if not done:
            return "nothing was changed" if self._is_unchanged() else f"look at {self.target.path}: it has changed"
        undo = " ".join(self._undo_command())
        return f"change {', '.join(done)} is made, the others are not" + (f"; {undo} takes it back" if undo else "")

    def _look(self) -> str:
        return fingerprint_environment(self.target.path) if self.target.path else ""

    def _is_unchanged(self) -> bool:
        """Look whether the environment is as it was, and no change was made elsewhere."""
        return self._look() == self.fingerprint and not any(task.item.state == "applied" for task in self.tasks)

    def _set_state(self, tasks: list[FixTask], state: str) -> None:
        self.tasks = [t.replace(item=t.item.replace(state=state)) if t in tasks else t for t in self.tasks]

    def _change_packages(self, tasks: list[FixTask]) -> None:
        """Change a copy of the environment, check it, and exchange the two."""
        copy, made = EnvironmentCopy(self.host, self.target.path), list[str]()

        def edit(draft: str) -> None:
            resolves_first = not all(
                task.steps for task in tasks
            )  # then the other changes are made if that is not enough
            steps, codes = [] if resolves_first else _steps(tasks), set(self.cleared)
            packages = EnvironmentPackages(self.host, draft, self.uv_settings, self.show_step, UV_DEADLINE)
            packages.repair_metadata()
            known, first = packages.list_conflicts(), distribution_name(self.before.contract.framework)
            for _ in range(MAX_ROUNDS):
                for step in steps:
                    made.append(step.does)
                    self.show_step(step.does)
                    copy.journal.record_step("run", does=step.does, run=list(step.run))
                    if step.run[:2] == ("rm", "--"):
                        packages.delete(step.run[2].replace(f"{copy.path}/", f"{draft}/", 1))
                        continue
                    run = step.run if self.allow_build else forbid_builds(step.run)
                    packages.change(run, first, self._asked_ranges())
                self._resolve_conflicts(packages, known, first)
                self.show_step("checking the copy")
                report = self._check(draft)
                codes |= {finding.code for finding in self._new_errors(report)}
                steps = self._steps_still_needed(report, codes)
                if not steps:
                    break
            self._refuse_new_errors(report)
            results = report.facts.value_if_known("import.result") or {}
            if results and not any(row["error"] for row in results.values()):
                self.imported = [report.facts.fact("import.result")]
            if fingerprint_environment(f"{draft}/lib") == fingerprint_environment(f"{copy.path}/lib"):
                raise FixFailed("uv had nothing to change for what was found: a person has to look at it")

        size = durable_files.measure_tree(copy.path)[0]
        self.show_step(f"copying {copy.path}: {format_size(size)}, by links where the disk has them")
        self.copy = copy.change(edit)
        self.space = copy.describe_space()
        self._set_state([task for task in tasks if task.steps and task.item.does not in made], "unneeded")

    def _asked_ranges(self) -> dict[str, str]:
        """Return what the findings ask of packages, but for what one installed package asks of another."""
        needs = [need for finding in self.before.findings if finding.code != UNMET_CODE for need in finding.needs]
        return {need.key.removeprefix("package."): need.want for need in needs if need.key.startswith("package.")}

    def _resolve_conflicts(self, packages: EnvironmentPackages, known: Sequence[str], first: str) -> None:
        """Leave no installed package without what it requires; FixFailed where the changes would add one that is."""
        self.conflicts, why = packages.list_conflicts(), ""
        if not self.conflicts:
            return
        self.show_step(f"resolving all packages together: {self.conflicts[0]}")
        try:
            packages.resolve_conflicts(first, self.allow_build)
            self.conflicts = packages.list_conflicts()
        except InstallFailed as error:
            why = f" ({error})"
        new = [text for text in self.conflicts if text not in known]
        if new:
            raise FixFailed(
                f"packages of the changed copy would lack what they require, so it was not taken: {new[0]}{why}"
            )

    def _steps_still_needed(self, report: Report, codes: set[str]) -> list[FixStep]:
        """Return the package steps that clear what is left of the same findings: an install may bring less than expected."""
        if not any(finding.severity == "error" and finding.code in codes for finding in report.findings):
            return []
        found = plan_fix(report, make_judge(report))
        tasks = list_fix_tasks(found, self.target, report.contract.framework, tuple(codes))
        return _steps([task for task in tasks if task.how == "packages"])

    def _new_errors(self, report: Report) -> list[Finding]:
        known = {finding.code for finding in self.before.findings}
        return [f for f in report.findings if f.severity == "error" and f.code not in known]

    def _refuse_new_errors(self, report: Report) -> None:
        """FixFailed where the changed copy has an error that the environment did not have."""
        if new := self._new_errors(report):
            raise FixFailed(f"the changed copy has a new problem, so it was not taken ({new[0].code}): {new[0].says}")

    def _install_environments(self, tasks: list[FixTask]) -> None:
        for step in _steps(tasks):
            words = dict(zip(step.run[3::2], step.run[4::2], strict=False))
            what_if = {"python-version": words["--python-version"]} if "--python-version" in words else {}
            order = InstallOrder(
                step.run[2],
                words["-e"],
                on=self.request.on,
                wants=self.request.wants,
                contract=self.request.contract,
                find_links=self.find_links,
                offline=self.offline,
                allow_build=self.allow_build,
                use_project_config=self.use_project_config,
                what_if=what_if,
                show_step=self.show_step,
            )
            done = order.run_install()
            if done.verdict == "failed":
                raise FixFailed(done.says)
            self.python_after = done.environment

    def _write_settings(self, tasks: list[FixTask]) -> None:
        path = f"{self.host.get_cwd()}/{FILE_NAME}"
        changes = [change for task in tasks for change in task.changes]
        SettingsFile(self.host, open_fix_state(self.host, self.target)).write(path, *changed_variables(changes))
        self.settings_file = path

    def _remove_files(self, tasks: list[FixTask]) -> None:
        for step in _steps(tasks):
            for path in step.run[2:]:
                durable_files.remove_file(path)

    # -- check again ---------------------------------------------------------------------------------------

    def _check(self, python: str | None = None) -> Report:
        return self.request.check(python, self.before.contract.framework)

    def _check_again(self) -> Report:
        """Check the environment as it is now, with the variables of the settings file."""
        is_known = bool(self.imported) and not self.python_after
        request = self.request.replace(imports="never") if is_known else self.request
        report = request.check(self.python_after or None, self.before.contract.framework)
        changes = [change for task in self.tasks if task.how == "variables" for change in task.changes]
        facts = report.facts.with_facts(*self.imported) if is_known else report.facts
        return make_judge(report)(apply_changes(facts, changes)) if changes or is_known else report

    def _make_outcome(self, verdict: str, report: Report | None, says: str = "") -> FixOutcome:
        plan = self.found.plan
        conflicts = tuple(conflict.says for conflict in plan.conflicts)
        notes = (plan.contract_note, *plan.notes) if plan.contract_note else plan.notes
        return FixOutcome(
            verdict,
            self.before.contract.name,
            self.python_after or self.target.path,
            self.target.kind,
            tuple(task.item for task in self.tasks),
            says,
            self.settings_file,
            self.copy,
            self._undo_command(),
            verdict == "failed" and self._is_unchanged(),
            (*self.notes, *conflicts, *notes, *self.uv_settings.notes)
            if verdict in ("dry-run", "by-hand", "undecided")
            else (*self.notes, *self.conflicts, *filter(None, (self.space,))),
            round(time.perf_counter() - self.began, 3),
            self.before,
            report,
        )

    def _undo_command(self) -> tuple[str, ...]:
        if not self.copy and not self.settings_file:
            return ()
        return self.target.undo


def _steps(tasks: list[FixTask]) -> list[FixStep]:
    return [step for task in tasks for step in task.steps]


def _check_codes(only: Sequence[str], report: Report, more: str = "") -> tuple[str, ...]:
    """Return the codes of ``--only``; Refused where one is not among the findings."""
    codes = tuple(code.strip().upper() for code in only if code.strip())
    found = list(dict.fromkeys([*(finding.code for finding in report.findings), *filter(None, [more])]))
    for code in codes:
        if code not in found:
            what = f"found were {', '.join(found)}" if found else "nothing was found"
            raise Refused(f"--only {code}: no such finding here{suggest_nearest(code, found)}; {what}")
    return codes


def open_fix_state(host: system.HostAccess, target: FixTarget) -> FixState:
    """The user's own record of an environment; of the current folder where there is none that gpuready changes."""
    is_copied = target.kind == "venv" and not target.refusal
    return FixState(host, resolve_real_path(target.path if is_copied else host.get_cwd()))


def undo_fix(python: str | None, show_step: ShowStep) -> FixOutcome:
    """Put back what the last fix of an environment changed. Refused where there is nothing."""
    began, host = time.perf_counter(), system.LiveHost()
    show_step("looking at the environment")
    target = describe_target(workflow.probe_machine(python, run_python=True))
    state = call_or_refuse(open_fix_state, host, target)
    copy = call_or_refuse(EnvironmentCopy, host, target.path) if target.kind == "venv" else None
    settings_file = SettingsFile(host, state)
    call_or_refuse(settings_file.read_own, state.read().settings_path)  # refuse it before anything is put back
    if copy is not None and copy.before:
        call_or_refuse(copy.undo)
    elif copy is not None and (foreign := copy.find_foreign_state()):
        raise Refused(copy.describe_foreign_state(foreign))
    elif not state.read().settings_path:
        hint = f"; gpuready install --rollback -e {quote(target.path)} goes back" if target.kind == "gpuready" else ""
        raise Refused(f"there is nothing to take back: gpuready fix has changed nothing of {target.path}{hint}")
    settings = call_or_refuse(settings_file.undo)
    notes = (f"{settings} is as it was before",) if settings else ()
    seconds = round(time.perf_counter() - began, 3)
    return FixOutcome("undone", environment=target.path, kind=target.kind, notes=notes, seconds=seconds)
