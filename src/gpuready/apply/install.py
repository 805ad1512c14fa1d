"""Install a plan: build a new generation beside the old one, check it, then publish it.

The published generation is never touched on the way: not by an error, a signal, a full disk or SIGKILL.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpuready import __version__
from gpuready.apply import audit, install_seal, install_steps, uv, wheel_contents
from gpuready.apply.generation import MANIFEST_FILE, EnvironmentGeneration, EnvironmentHome, InstallJournal
from gpuready.apply.install_errors import InstallFailed, format_os_error, suggest_missing_package
from gpuready.apply.install_lock import InstallLock, InstallLockBusyError
from gpuready.apply.install_steps import InstallInputs
from gpuready.apply.source_checkout import add_left_out
from gpuready.apply.uv import UvSettings, explain_uv_failure
from gpuready.contracts import distribution_name
from gpuready.model import FixStep, Report
from gpuready.model.facts import verdict_words
from gpuready.model.plan import InstallFault, InstallResult, Plan
from gpuready.system import HostAccess, durable_files
from gpuready.system.imports.real_import import ImportTask, import_roots
from gpuready.system.process.termination import note_interrupt

CLEANUP_SECONDS = 3.0
"""How long cleanup may take after a stop, in seconds; the next install removes the rest."""

DEADLINE = 4 * 3600.0


class Installer:
    """Installs one plan into one home."""

    def __init__(
        self,
        host: HostAccess,
        home: EnvironmentHome,
        plan: Plan,
        inputs: InstallInputs,
        settings: UvSettings,
        judge: Callable[[str], Report],
        show_progress: Callable[..., None],
        keep: int = 2,
        deadline: float = DEADLINE,
    ):
        self.host, self.home, self.plan, self.inputs, self.settings = host, home, plan, inputs, settings
        self.judge, self.show_progress, self.keep = judge, show_progress, keep
        self.until = time.monotonic() + deadline
        self.identity = install_steps.plan_identity(plan, inputs.source_hash)
        self.journal = InstallJournal(home.path, host.get_wall_time)
        self.lock = InstallLock(home.join_path(".gpuready"), host.get_hostname())
        self.steps_taken: list[FixStep] = []
        self.notes: list[str] = []
        self.step_count = 0
        self.inventory: audit.DistributionInventory | None = None  # what the packages of the new generation claim
        self.imported: dict[str, Any] | None = None  # what importing from the new generation gave

    # -- sequence ---------------------------------------------------------------------------------------

    def install_plan(self) -> InstallResult:
        """Install, or return what is already installed. InstallFailed if it cannot; then nothing has changed."""
        if reused := self._reuse_published():
            return reused
        self._take_lock()
        try:
            return self._reuse_generation() or self._build_generation()
        except OSError as error:
            raise InstallFailed(f"the install could not go on: {format_os_error(error)}") from None
        finally:
            self.lock.release()

    def _take_lock(self) -> None:
        try:
            self.home.claim_folder()
            self.lock.acquire(on_wait=self.show_progress)
            self.home.prepare_folder()
        except InstallLockBusyError as busy_error:
            raise InstallFailed(str(busy_error)) from None
        except OSError as error:
            self.lock.release()
            raise InstallFailed(f"{self.home.path} cannot hold an environment: {format_os_error(error)}") from None

    def _reuse_published(self) -> InstallResult | None:
        """Return the published generation if it is intact and of this plan. Without the lock: another install may
        publish its own meanwhile and remove this one, and then nothing that was found counts."""
        generation = self.home.current_generation()
        if generation is None or generation.plan != self.identity or self._needs_cleanup():
            return None
        try:
            report = self._check_generation(generation) if self._is_as_published(generation) else None
        except Exception:
            if self.home.current_generation() == generation:
                raise
            report = None
        if report and self.home.current_generation() == generation:
            return self._make_result("unchanged", generation, self.home.previous_generation(), report)
        self.notes, self.imported = [], None
        return None

    def _reuse_generation(self) -> InstallResult | None:
        """Return an intact generation of this plan if there is one, publishing it if necessary."""
        for name in self.home.remove_unfinished():
            self.journal.record_step("swept", generation=name, why="it was never finished")
        for generation in self.home.generations_of_plan(self.identity):
            published = self.home.current_generation()
            if not self._is_as_published(generation):
                continue
            report = self._check_generation(generation)
            if generation != published:
                self.home.mark_newest(generation)
                self._publish_generation(generation, published)
            self._remove_old_generations()
            if generation != published:
                return self._make_result("installed", generation, published, report)
            return self._make_result("unchanged", generation, self.home.previous_generation(), report)
        return None

    def _needs_cleanup(self) -> bool:
        """Whether an earlier run ended before its cleanup."""
        generations = self.home.list_generations()
        return len(generations) > self.keep or not all(generation.has_manifest for generation in generations)

    def _is_as_published(self, generation: EnvironmentGeneration) -> bool:
        """Whether this user's gpuready made it and every file is as it was then; what changed after that is hashed."""
        made = install_seal.read_seal(self.host, f"{generation.path}/{MANIFEST_FILE}")
        if made is None:
            self._add_note(f"{generation.name} was not installed by your gpuready: it is installed anew")
            return False
        all_faults = audit.audit_environment(generation.path, generation.read_manifest(), made)
        faults = [fault for fault in all_faults if fault.kind not in audit.HARMLESS_FAULTS]
        if faults:
            first = faults[0]
            more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
            self._add_note(f"{generation.name} is not as it was published ({first.kind}: {first.path}{more})")
        return not faults

    def _add_note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _build_generation(self) -> InstallResult:
        before = self.home.current_generation()
        generation = self.home.next_generation(self.identity)
        self.journal.record_step("begun", generation=generation.name, plan=self.identity, undo="remove it")
        try:
            known = self._fill_generation(generation)
            report = self._check_generation(generation)
            self._write_manifest(generation, known)
        except BaseException as error:
            self._abandon_generation(generation, error)
            raise
        self._publish_generation(generation, before)
        self._remove_old_generations()
        return self._make_result("installed", generation, before, report)

    # -- building ---------------------------------------------------------------------------------------

    def _fill_generation(self, generation: EnvironmentGeneration) -> dict[str, Any]:
        """Install every file as its wheel records it; what differs is fetched once more, unless its wheel is known to differ."""
        known, faults = self._fill_once(generation)
        bad = [fault for fault in faults if fault.package and fault.kind not in audit.HARMLESS_FAULTS]
        if bad:
            known["misrecorded"] = audit.hash_faulty_files(generation.path, bad)
            if not self._came_in_wheels(bad, known["misrecorded"]):
                first_time = known["misrecorded"].items()
                known, faults = self._fill_again(generation, sorted({fault.package for fault in bad}))
                known["misrecorded"] = dict(first_time & audit.hash_faulty_files(generation.path, faults).items())
                for text in self._name_differences(known["misrecorded"], faults):
                    install_seal.write_seal(self.host, text, install_seal.WHEELS)
        wrong = [
            f for f in faults if f.kind not in audit.HARMLESS_FAULTS and f.path not in known.get("misrecorded", {})
        ]
        if wrong:
            message = f"{wrong[0].path} is {wrong[0].kind}" + (f": {wrong[0].says}" if wrong[0].says else "")
            raise InstallFailed(f"what was installed is not what its wheels say: {message}", 1, faults=wrong)
        self._note_misrecorded(faults, known.get("misrecorded", {}))
        faults = [fault for fault in faults if fault.kind in audit.HARMLESS_FAULTS]
        self.notes += [f"{f.path}: {f.says}" for f in faults[:5]]
        self.notes += [f"and {len(faults) - 5} more files that two packages bring"] if len(faults) > 5 else []
        runs = audit.list_startup_code(generation.path, self.inventory)
        self.notes += [f"runs code whenever this Python starts: {', '.join(runs)}"] if runs else []
        return known

    def _came_in_wheels(self, faults: Sequence[InstallFault], found: dict[str, str]) -> bool:
        """Whether all that differs was fetched anew before, and differed in the same way."""
        texts = self._name_differences(found, faults) if all(fault.path in found for fault in faults) else [""]
        return all(install_seal.has_seal(self.host, text, install_seal.WHEELS) for text in texts)

    def _name_differences(self, found: dict[str, str], faults: Sequence[InstallFault]) -> list[str]:
        """Name what differs from a RECORD: the wheel by the hashes of the lock, the file, its contents."""
        wheels = {row.name: sorted(row.hashes) for row in self.plan.lock}
        return [json.dumps([wheels.get(f.package), f.path, found[f.path]]) for f in faults if f.path in found]

    def _fill_again(
        self, generation: EnvironmentGeneration, bad: Sequence[str]
    ) -> tuple[dict[str, Any], list[InstallFault]]:
        """Clear uv's cache of packages and install them anew: what differs again in the same way came in the wheel."""
        self.show_progress(
            f"damaged on arrival: {', '.join(bad)}; uv's cache of it is cleared, and it is fetched again"
        )
        self.journal.record_step("evicted", packages=list(bad))
        # By force: else uv waits until no other uv works, which may be hours.
        self._run_uv(("cache", "clean", "--force", *bad), 120.0)
        self.imported = None
        claims = list((self.inventory or audit.DistributionInventory(generation.path)).rows.items())
        shared = {row.package for _, rows in claims if any(row.package in bad for row in rows) for row in rows}
        if not shared <= {row.name for row in self.plan.lock}:
            durable_files.remove_tree(generation.path)
            return self._fill_once(generation)
        audit.remove_packages(generation.path, shared)
        _, packages, *_ = install_steps.list_install_steps(self.plan, generation.path, self.inputs)
        self._run_step(packages)
        self._refuse_overreach(generation)
        self.inventory = audit.DistributionInventory(generation.path)
        self._refuse_foreign_code(generation)
        return self._look_over(generation)

    def _note_misrecorded(self, faults: Sequence[InstallFault], misrecorded: dict[str, str]) -> None:
        """Name the packages whose wheel, of the lock's hash, does not agree with its own RECORD."""
        names = sorted({fault.package for fault in faults if fault.path in misrecorded})
        for name in names:
            paths = [fault.path for fault in faults if fault.package == name and fault.path in misrecorded]
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            self.notes.append(
                f"the RECORD in the wheel of {name} is wrong about {paths[0]}{more}: installed as the wheel has it"
            )

    def _fill_once(self, generation: EnvironmentGeneration) -> tuple[dict[str, Any], list[InstallFault]]:
        venv, packages, *others = install_steps.list_install_steps(self.plan, generation.path, self.inputs)
        self.step_count = 2 + len(others)
        self._run_step(venv)
        if not self.inputs.foreign:
            install_steps.own_interpreter(self.host, generation.path)
        durable_files.replace_file(
            f"{generation.path}/{install_steps.LOCK_FILE}", install_steps.format_lock_requirements(self.plan.lock)
        )
        self._run_step(packages)
        self.inventory = audit.DistributionInventory(generation.path)
        self._refuse_overreach(generation)
        for step in others:
            self._run_step(step)
        self.inventory = audit.DistributionInventory(generation.path) if others else self.inventory
        self._add_left_out(generation)
        self._refuse_foreign_code(generation)
        install_steps.write_generation_hook(generation.path)
        install_steps.note_purpose(generation.path, self.plan, self.inputs.foreign)
        return self._look_over(generation)

    def _look_over(self, generation: EnvironmentGeneration) -> tuple[dict[str, Any], list[InstallFault]]:
        """Compare every file, in a thread, while the modules are imported; what differs counts before what the import gave."""
        outcome: list[Any] = []

        def compare_files() -> None:
            try:
                outcome.extend(audit.describe_generation(generation.path, self.inventory))
                outcome[1] += self._compare_with_lock(generation)
            except Exception as error:  # raised again by the thread that waits
                outcome[:] = [error]

        self.show_progress("looking over every file")
        thread = threading.Thread(target=compare_files, daemon=True)
        thread.start()
        self.imported = self._import_modules(generation)
        thread.join()
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0], outcome[1]

    def _refuse_overreach(self, generation: EnvironmentGeneration) -> None:
        """Refuse a wheel that replaces the environment's own files, before anything of it is run."""
        faults = wheel_contents.find_overreach(generation.path, self.inventory)
        if faults:
            raise InstallFailed(f"{faults[0].path} is not a wheel's to bring: {faults[0].says}", 1, faults=faults)

    def _add_left_out(self, generation: EnvironmentGeneration) -> None:
        """Take from a checkout the modules that its own build leaves out."""
        for site in audit.list_site_folders(generation.path) if self.inputs.source else ():
            folders = add_left_out(self.inputs.source, f"{generation.path}/{site}")
            if folders:
                self.notes.append(f"taken from the checkout, whose build leaves them out: {', '.join(folders)}")

    def _refuse_foreign_code(self, generation: EnvironmentGeneration) -> None:
        """Refuse what was built here for this machine, where the environment is for another architecture."""
        built = (
            wheel_contents.list_other_architecture(generation.path, self.inputs.foreign) if self.inputs.foreign else []
        )
        if built:
            raise InstallFailed(
                f"{', '.join(built)} has no wheel for {self.inputs.foreign}, and what is built here is for this machine: "
                f"install it on a machine with {self.inputs.foreign}"
            )

    def _compare_with_lock(self, generation: EnvironmentGeneration) -> list[InstallFault]:
        rebuilt = {kernel.package for kernel in install_steps.kernels_to_build(self.plan)}
        rows = [row for row in self.plan.lock if row.name not in rebuilt]
        inventory = self.inventory or audit.DistributionInventory(generation.path)
        return [
            *wheel_contents.find_absent_packages(inventory, rows),
            *wheel_contents.compare_with_wheels(generation.path, rows, self.settings.folders, inventory)[0],
        ]

    def _run_step(self, step: FixStep) -> None:
        self.steps_taken.append(step)
        self.show_progress(step.does, min(len(self.steps_taken), self.step_count), self.step_count)
        self.journal.record_step("run", does=step.does, run=list(step.run))
        variables, words = install_steps.split_env_command(step.run)
        self._run_uv(words[1:], self.until - time.monotonic(), variables)

    def _run_uv(self, words: Sequence[str], deadline: float, variables: dict[str, str | None] | None = None) -> None:
        env = install_steps.extra_index_environment(self.settings, self.plan) | (variables or {})
        ran = uv.run_uv(
            self.host, (self.inputs.uv, *words), self.settings, self._report_uv_line, max(deadline, 1.0), env
        )
        if ran.rc != 0:
            raise InstallFailed(explain_uv_failure(ran, words[0]))

    def _report_uv_line(self, line: str) -> None:
        if line.startswith(("Resolved", "Prepared", "Installed", "Downloading", "Building", "Built")):
            self.show_progress(line.strip())

    # -- checking ---------------------------------------------------------------------------------------

    def _check_generation(self, generation: EnvironmentGeneration) -> Report:
        """Check that the framework imports and that the check has no errors."""
        self._check_imports(generation)
        report = self.judge(generation.path)
        errors = [finding.code for finding in report.findings if finding.severity == "error"]
        codes = ", ".join(errors or [rule.code for rule in report.undecided])
        if report.verdict == "undecided" and self.inputs.elsewhere:
            self.notes.append(f"what only the machine that it is for can tell was not checked here ({codes})")
        elif report.verdict not in ("clear", "ready"):
            raise InstallFailed(
                f"the check of the new environment says {verdict_words(report.verdict)} ({codes})", 1, report
            )
        return report

    def _check_imports(self, generation: EnvironmentGeneration) -> None:
        """An intact wheel may still be broken: only importing it shows that."""
        if self.inputs.foreign:
            self.notes.append(
                f"not imported: it is for {self.inputs.foreign}; there bin/python must lead to a Python of the same version"
            )
            return
        result, self.imported = self.imported or self._import_modules(generation), None
        if not result["error"]:
            return
        error = str(result["error"])[:300]
        text = f"import {result['module']} fails in the new environment: {error}{suggest_missing_package(error)}"
        if not self.inputs.elsewhere:
            raise InstallFailed(text, 1)
        self.notes.append(f"{text}; it is for another machine, so this does not hold it up")

    def _import_modules(self, generation: EnvironmentGeneration) -> dict[str, Any]:
        """Import torch, the framework and its entry modules; what Python compiles on the way stays for the first start."""
        locked = {row.name for row in self.plan.lock}
        own = [name for name in ("torch", distribution_name(self.plan.framework)) if name in locked]
        modules = audit.list_import_names(generation.path, own)
        if self.inputs.foreign or not modules:
            return {"error": ""}
        modules += install_steps.list_entry_modules(self.plan)
        self.show_progress(f"importing {', '.join(modules)}")
        self.journal.record_step("import", modules=modules)
        task = ImportTask(self.plan.framework, tuple(modules))
        (result,) = import_roots(self.host, f"{generation.path}/bin/python", [task], ("-I",)).values()
        return result

    # -- publishing -------------------------------------------------------------------------------------

    def _write_manifest(self, generation: EnvironmentGeneration, known: dict[str, Any]) -> None:
        """Sync to disk, then write the manifest as the last file, which completes the generation."""
        manifest = {
            "schema": 1,
            "gpuready": __version__,
            "identity": self.identity,
            "made": self.host.get_wall_time(),
            "python": audit.describe_interpreter(generation.path),
            "plan": self.plan.to_json(),
        }
        self.journal.record_step("sync", generation=generation.name)
        durable_files.sync_disk(generation.path)
        text = json.dumps(manifest | known, default=str)
        if why := install_seal.write_seal(self.host, text):
            self.notes.append(f"your state folder cannot be written ({why}): --verify will not know this environment")
        durable_files.replace_file(f"{generation.path}/{MANIFEST_FILE}", text)

    def _publish_generation(self, generation: EnvironmentGeneration, before: EnvironmentGeneration | None) -> None:
        undo = ["gpuready", "install", "--rollback", "-e", self.home.path] if before else []
        self.journal.record_step("publish", generation=generation.name, before=before.name if before else "", undo=undo)
        self.home.publish_generation(generation)
        self.journal.try_record_step("published", generation=generation.name)

    def _remove_old_generations(self) -> None:
        """Remove old generations; a failure here does not affect the published one."""
        try:
            gone, busy = self.home.remove_old_generations(self.keep)
        except OSError as error:
            self.notes.append(f"older environments could not be removed: {format_os_error(error)}")
            return
        for name in gone:
            self.journal.try_record_step("removed", generation=name)
        for name, pid in busy.items():
            by = f"process {pid}" if pid else "a process"
            self.notes.append(f"{name} is kept: {by} still uses it")

    def _abandon_generation(self, generation: EnvironmentGeneration, error: BaseException) -> None:
        until = time.monotonic() + CLEANUP_SECONDS
        durable_files.remove_tree(generation.path, lambda: time.monotonic() < until)
        kept = "is as it was" if self.home.current_generation() else "holds no environment yet"
        note_interrupt(
            error, f"the unfinished environment was removed, {self.home.path} {kept}; uv's cache keeps its files"
        )
        message = str(error) or type(error).__name__
        self.journal.try_record_step("abandoned", generation=generation.name, why=message[:500])

    def _make_result(
        self, verdict: str, generation: EnvironmentGeneration, before: EnvironmentGeneration | None, report: Report
    ) -> InstallResult:
        return InstallResult(
            verdict,
            self.home.path,
            generation.name,
            before.name if before else "",
            self.plan,
            tuple(self.steps_taken),
            notes=tuple(self.notes),
            report=report,
        )
