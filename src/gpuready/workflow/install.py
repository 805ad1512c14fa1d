"""``gpuready install``: plan, build beside the current environment, check it, publish; or roll back, or verify."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuready import contracts, system, workflow
from gpuready import probe as looking
from gpuready.apply import disk_space, generation, install_steps, source_checkout, source_requirements, uv
from gpuready.apply.generation import EnvironmentHome
from gpuready.apply.install import DEADLINE, Installer
from gpuready.apply.install_errors import InstallFailed
from gpuready.apply.install_steps import (
    InstallInputs,
    describe_builds,
    foreign_architecture,
    is_for_cpu,
    list_index_urls,
)
from gpuready.apply.source_checkout import open_checkout
from gpuready.apply.user_packages import UserPackages, find_user_packages, merge_requirements, parse_addition
from gpuready.apply.uv import UvSettings, find_python
from gpuready.catalog.kernels import kernels_for_word
from gpuready.catalog.packages import find_lookalike
from gpuready.catalog.releases import launch_command
from gpuready.model import Contract, Facts, Report
from gpuready.model.plan import InstallResult, KernelPlan, Plan
from gpuready.plan.limits import is_for_gpus_alone
from gpuready.probe.environment_choice import choose_interpreter
from gpuready.workflow import contract_choice, machine_facts, plan
from gpuready.workflow.lock_files import explain_foreign_file, read_lock_file
from gpuready.workflow.refusal import Refused, call_or_refuse

ShowStep = Callable[..., None]


DEFAULT_ENVIRONMENT = ".venv"
MAX_DEADLINE = 1e8  # seconds
IGNORED_ON_CPU = {"GPU001": "the plan is for the CPU", "PKG001": "the plan took the CPU build of torch"}
"""Findings to expect in a CPU environment, and why they are ignored there."""


def rollback_environment(environment: str) -> InstallResult:
    """Go back to the environment before this one, at once and without network."""
    return _time_install(
        lambda: call_or_refuse(generation.rollback_environment, system.LiveHost(), environment_home(environment))
    )


def verify_environment(environment: str, find_links: Sequence[str] = ()) -> InstallResult:
    """Check that every file of an environment is present and unchanged, by the wheels of its lock where they are at hand."""
    host = system.LiveHost()
    folders = _read_uv_settings(host, find_links, True).folders
    home = environment_home(environment)
    return _time_install(lambda: call_or_refuse(generation.verify_environment, host, home, folders, _survey_files))


def _survey_files(environment: str, framework: str) -> Sequence[dict[str, Any]]:
    """Return what a check finds in the files of an environment."""
    roots = [contracts.distribution_name(framework)] if framework else []
    facts = Facts(tuple(looking.survey_environment(machine_facts.choose_probed_host(), environment, roots)))
    return facts.value_if_known("import.damage") or ()


def environment_home(environment: str) -> EnvironmentHome:
    return EnvironmentHome(environment)


def _time_install(do: Callable[[], InstallResult]) -> InstallResult:
    began = time.perf_counter()
    done = do()
    return done.replace(seconds=round(time.perf_counter() - began, 4))


class InstallOrder:
    """One requested install: the plan, its environment, and what it needs. Nothing has been changed yet."""

    def __init__(
        self,
        framework: str,
        environment: str = DEFAULT_ENVIRONMENT,
        *,
        lock: str | None = None,
        on: str | None = None,
        python: str | None = None,
        wants: str | None = None,
        contract: str | None = None,
        config: str | None = None,
        source: str | None = None,
        find_links: Sequence[str] = (),
        offline: bool = False,
        allow_build: bool = False,
        use_project_config: bool = False,
        keep: int = 2,
        what_if: Mapping[str, str] | None = None,
        additions: Sequence[str] = (),
        show_step: ShowStep = lambda *_: None,
        acts: bool = True,
    ):
        """With ``acts`` (it will be installed), refuse now what the install would refuse; without, start no program of the environment.

        ``additions``: requirements of the user beside the framework's; ``trl[peft]`` names extras of the framework's own.
        """
        self.began = time.perf_counter()
        self.framework, extras = _split_extras(framework)
        self.additions = [call_or_refuse(parse_addition, text) for text in (*extras, *additions)]
        self.on, self.python = on, python
        self.wants, self.contract, self.keep, self.show_step, self.acts = wants, contract, keep, show_step, acts
        self.what_if, self.config, self.lock = dict(what_if or {}), config, lock
        self.allow_build, self.use_project_config = allow_build, use_project_config
        self.home = environment_home(environment)
        reason = self.home.explain_refusal()
        if reason:
            raise Refused(f"{environment} {reason}")
        self.host = system.LiveHost()
        self.foreign_file_refusal = explain_foreign_file(self.host, "--lock", lock) or explain_foreign_file(
            self.host, "--contract", contract
        )
        if self.foreign_file_refusal and acts:
            raise Refused(self.foreign_file_refusal)
        self.uv_settings: UvSettings = _read_uv_settings(self.host, find_links, offline, use_project_config)
        self.source = self._open_source(source)
        users = find_user_packages(self.home.current_generation())
        self.lost_notes = [f"not kept: {text}" for text in users.lost]
        if lock is not None:
            if self.additions:
                raise Refused("--lock FILE has every package already: leave the others out, or plan without --lock")
            self.plan = read_lock_file(lock, framework)
        else:
            self.plan = self._plan_with_additions(users, self.source or None, find_links, offline)
        self.notes = [
            *self.lost_notes,
            *self._describe_cpu_plan(),
            *self._describe_builds(acts),
            *self.uv_settings.notes,
            *([f"root would be refused: {self.foreign_file_refusal}"] if self.foreign_file_refusal else []),
        ]
        self.plan = self.plan.replace(kernels=tuple(k for k in self.plan.kernels if self._should_install_kernel(k)))
        self.ingredients = self._make_ingredients()
        self.disk_need = self._check_disk_space()

    # -- the plan ---------------------------------------------------------------------------------------

    def _open_source(self, source: str | None) -> str:
        """Return the folder of the checkout; Refused where a framework is on no index and none was named."""
        if source:
            return call_or_refuse(open_checkout, self.host, source)
        name = call_or_refuse(contracts.parse_contract_spec, self.framework)[0] if self.framework else ""
        row = find_lookalike(contracts.distribution_name(name)) if name and contracts.has_contract(name) else None
        if row:
            fetch = f"gpuready install {self.framework} --source {row.get('checkout', 'https://…')}"
            raise Refused(
                f"{name} is on no index: {fetch} fetches it from its git address; --source DIR takes a checkout"
            )
        return ""

    def _plan_with_additions(
        self, users: UserPackages, source: str | None, find_links: Sequence[str], offline: bool
    ) -> Plan:
        """Plan with what the user added to the environment: in its versions, else in others, else without, which is said."""
        named, loose = self.additions, [text.partition("==")[0] for text in users.found]
        for found in dict.fromkeys([users.found, tuple(loose), ()]):
            self.additions = merge_requirements(named, users.recorded, found)
            try:
                chosen = self._make_plan(source, find_links, offline)
            except Refused:
                if not found:
                    raise
                self.show_step(f"no plan has {' and '.join(found)} too")
                continue
            self.lost_notes += [f"not kept: {text}, with which there is no plan" for text in users.found if not found]
            self.lost_notes += [f"kept: {text}, which you installed, is in the lock now" for text in found]
            break
        return chosen

    def _make_plan(self, source: str | None, find_links: Sequence[str], offline: bool) -> Plan:
        if not self.framework:
            raise Refused("gpuready install takes a FRAMEWORK, or --lock FILE; --rollback and --verify take neither")
        planned = plan.plan_frameworks(
            [self.framework],
            on=self.on,
            python=self.python,
            wants=self.wants,
            contract=self.contract,
            config=self.config,
            source=source,
            find_links=find_links,
            offline=offline,
            allow_build=self.allow_build,
            use_project_config=self.use_project_config,
            what_if=self.what_if,
            additions=self.additions,
            note=self.show_step,
            run_python=self.acts,
        )
        chosen: Plan = planned.plans[0]
        if chosen.verdict != "plan":
            why = chosen.conflicts[0].says if chosen.conflicts else "no choice fits this machine"
            advice = suggest_elsewhere(self.framework, chosen, planned.facts, self.on, self.wants)
            raise Refused(f"there is no plan for {self.framework} here: {why}; {advice}")
        if not chosen.lock:
            why = chosen.why_unresolved or "nothing was resolved"
            raise Refused(f"the plan for {self.framework} has no lock to install: {why}")
        self.wants = str(chosen.options.get("wants") or "") or self.wants  # those of the job's file too
        return chosen

    def _describe_cpu_plan(self) -> list[str]:
        """Say that this becomes an environment for the CPU, where nobody asked for one."""
        asked = "cpu" in (self.wants or "").split(",") or self.on is not None or "torch" in self.what_if
        if asked or not is_for_cpu(self.plan):
            return []
        return ["no GPU is visible here: this makes a CPU environment; --on h100x8 makes one for a machine with GPUs"]

    def _describe_builds(self, acts: bool) -> list[str]:
        """Name what is built from its sources; Refused before anything is made, where nobody agreed to that."""
        says = describe_builds(self.plan)
        if says and acts and not self.allow_build:
            raise Refused(f"{says}: agree with --allow-build, or name a folder that has wheels with --find-links DIR")
        return [says] if says else []

    def _should_install_kernel(self, kernel: KernelPlan) -> bool:
        """Return whether to install a compiled package; Refused where it is required and cannot be built here."""
        if kernel not in install_steps.kernels_to_build(self.plan):
            return True
        manual_step = install_steps.pending_manual_step(kernel)
        foreign = call_or_refuse(
            install_steps.foreign_architecture, self.plan, self.host.get_uname().get("machine", "")
        )
        if foreign and kernel.how == "build":
            manual_step = f"go to a machine with {foreign}"
        if self._is_required(kernel.package):
            if manual_step:
                raise Refused(
                    f"{kernel.package} {kernel.version} has to be built, and first a person must {manual_step}"
                )
            return True
        self.notes.append(f"{kernel.package} is left out: nothing that was asked for requires it; --wants brings it")
        return False

    def _is_required(self, package: str) -> bool:
        wanted = {word.strip() for word in (self.wants or "").split(",")}
        if any(package in kernels_for_word(word) for word in wanted):
            return True
        contract = self._load_plan_contract()
        if contract is None:
            return False
        needs = [need for need in contract.requirements_for(f"package.{package}") if need.level == "required"]
        return any(not need.when or wanted & set(need.when.removeprefix("wants=").split("|")) for need in needs)

    def _load_plan_contract(self) -> Contract | None:
        """Return the contract of the plan: the user's own, else the framework's, if there is one."""
        if self.contract is not None:
            return contract_choice.read_named_contract(self.contract)
        name = self.framework or self.plan.framework
        spec = call_or_refuse(contracts.parse_contract_spec, name)[0] if name else ""  # a lock of pip names none
        if not contracts.has_contract(spec):
            return None
        return contracts.load_contract(spec, self.plan.version or None, self.plan.variant or None)

    def _make_ingredients(self) -> InstallInputs:
        path = call_or_refuse(uv.find_uv, self.host)
        call_or_refuse(uv.check_uv_version, self.host, path)
        foreign = call_or_refuse(foreign_architecture, self.plan, self.host.get_uname().get("machine", ""))
        linked = (self.host.get_env_var("UV_LINK_MODE") or "").lower() == "symlink"
        return InstallInputs(
            path,
            self._find_interpreter(path),
            self.home.path.rpartition("/")[2] or "gpuready",
            list_index_urls(self.plan),
            self.on is not None or bool(foreign),
            linked,
            self.allow_build,
            self.source,
            source_checkout.hash_checkout(self.source) if self.source else "",
            call_or_refuse(
                source_requirements.list_local_packages,
                self.host,
                self.source,
                self._load_plan_contract(),
                self.plan.torch,
            ),
            foreign,
        )

    def _find_interpreter(self, uv: str) -> str:
        """Find the Python to build the environment from: the named one, else the one that uv finds or fetches."""
        if self.python and not self.acts and self.host.stat_path(self.python):  # a path: uv would start it
            return call_or_refuse(choose_interpreter, system.ReadOnlyHost(), self.python)
        wanted = self.plan.python or self.what_if.get("python-version") or ""
        minor = ".".join(wanted.split(".")[:2])
        for request in dict.fromkeys([self.python] if self.python else [wanted, minor]):
            found = call_or_refuse(find_python, self.host, uv, self.uv_settings, request)
            if found:
                return found
        if minor and not self.python and not self._is_offline():
            self.notes.append(f"Python {minor} is not on this machine: uv fetches it")
            return minor
        why = f"--python {self.python}" if self.python else f"Python {minor}"
        raise Refused(f"{why} is not to be found here: install it (uv python install {minor or '3.12'})")

    def _is_offline(self) -> bool:
        return bool(self.uv_settings.env.get("UV_OFFLINE") or self.host.get_env_var("UV_OFFLINE"))

    def _check_disk_space(self) -> dict[str, Any]:
        wanted = disk_space.estimate_space(self.plan, self.uv_settings.folders)
        why = "" if self._is_already_built() else disk_space.explain_shortage(wanted, self.home.existing_parent())
        if why:
            raise Refused(f"there is not enough room: {why}")
        return {"size": wanted.size, "files": wanted.files, "how": wanted.how_measured}

    def _is_already_built(self) -> bool:
        return bool(self.home.generations_of_plan(install_steps.plan_identity(self.plan, self.ingredients.source_hash)))

    # -- install ---------------------------------------------------------------------------------------

    def dry_run(self) -> InstallResult:
        """Return what would run. Nothing is run or written."""
        identity = install_steps.plan_identity(self.plan, self.ingredients.source_hash)
        done = self.home.generations_of_plan(identity)
        generation = done[0] if done else self.home.next_generation(identity)
        now = self.home.current_generation()
        steps = () if done else tuple(install_steps.list_install_steps(self.plan, generation.path, self.ingredients))
        return InstallResult(
            "dry-run",
            self.home.path,
            generation.name,
            now.name if now else "",
            self.plan,
            steps,
            "" if not done else f"{generation.name} holds this plan already",
            notes=tuple(self.notes),
            need=self.disk_need,
        )

    def run_install(self) -> InstallResult:
        """Install atomically."""
        if self.foreign_file_refusal:
            raise Refused(self.foreign_file_refusal)
        worker = Installer(
            self.host,
            self.home,
            self.plan,
            self.ingredients,
            self.uv_settings,
            self._check_generation,
            self.show_step,
            self.keep,
            self._install_deadline(),
        )
        try:
            done = worker.install_plan()
        except InstallFailed as failed:
            now = self.home.current_generation()
            done = InstallResult(
                "failed",
                self.home.path,
                now.name if now else "",
                plan=self.plan,
                steps=tuple(worker.steps_taken),
                says=system.redact_text(str(failed)),
                faults=failed.faults,
                report=failed.report,
                exit=failed.exit,
            )
        notes = tuple(dict.fromkeys((*self.notes, *done.notes)))
        done = self._add_start_of_lock(done) if self.lock is not None else done
        return done.replace(seconds=round(time.perf_counter() - self.began, 3), need=self.disk_need, notes=notes)

    def _add_start_of_lock(self, done: InstallResult) -> InstallResult:
        """Add the framework's own command where a lock was installed: what the file says of it is not believed."""
        named = self.framework or self.plan.framework or next(iter(self._known_frameworks()), "")
        framework = contracts.parse_contract_spec(named)[0] if named else ""
        gpus = done.report.facts.value_if_known("gpu.count") if done.report is not None else None
        return done.replace(plan=self.plan.replace(start=launch_command(framework, int(gpus or 1))))

    def _known_frameworks(self) -> list[str]:
        """Return the packages of the lock that have a contract."""
        return [row.name for row in self.plan.lock if contracts.has_contract(row.name)]

    def _install_deadline(self) -> float:
        text = self.host.get_env_var("GPUREADY_INSTALL_DEADLINE") or ""
        try:
            seconds = float(text) if text else DEADLINE
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= MAX_DEADLINE:
            raise Refused(f"GPUREADY_INSTALL_DEADLINE must be a number of seconds above 0, not {text!r}")
        return seconds

    # -- check -------------------------------------------------------------------------------------

    def _check_generation(self, generation: str) -> Report:
        """Check the new environment on the machine that it is for."""
        ignored = IGNORED_ON_CPU if not self.plan.cuda and "+rocm" not in self.plan.torch else {}
        options: dict[str, Any] = {"on": self.on, "wants": self.wants, "contract": self.contract}
        options |= {"what_if": {k: v for k, v in self.what_if.items() if k not in ("torch", "python-version")}}
        spec = self.framework or self.plan.framework
        named = [spec] if spec else self._known_frameworks()[:1]
        if named:
            options |= {"python": generation, "run_python": True, "imports": "needed"}
            return workflow.check_machine(named, ignore=ignored, **options)[0]
        self.notes.append("the lock names no framework that gpuready knows: its files were looked over, and no more")
        return Report(Contract("lock", ""), Facts(()))


def _split_extras(framework: str) -> tuple[str, list[str]]:
    """``trl[peft]==1.16`` is trl==1.16, and the requirement trl[peft]."""
    head, bracket, rest = framework.partition("[")
    extras, _, after = rest.partition("]")
    return f"{head}{after}", [f"{contracts.distribution_name(head.strip())}[{extras}]"] if bracket else []


def _read_uv_settings(
    host: system.HostAccess, find_links: Sequence[str], offline: bool, use_project_config: bool = False
) -> UvSettings:
    return call_or_refuse(uv.make_uv_settings, host, find_links, offline, use_project_config)


def suggest_elsewhere(framework: str, chosen: Plan, facts: Facts | None, on: str | None, wants: str | None) -> str:
    """Return the command that goes on: without a GPU, for a machine that has one, or for the CPU where the framework takes one."""
    command = f"gpuready install {framework}"
    if on is not None or facts is None or facts.value_if_known("gpu.count"):
        return f"gpuready plan {framework} tells more"
    is_cpu_left = "cpu" not in (wants or "").split(",") and _runs_on_cpu(chosen)
    on_cpu = f", for this CPU: {command} --wants {','.join(filter(None, (wants, 'cpu')))}" if is_cpu_left else ""
    return f"for a machine with GPUs: {command} --on h100x8 (or another GPU){on_cpu}"


def _runs_on_cpu(chosen: Plan) -> bool:
    """Whether the framework of a plan may run on a CPU alone, by its contract; unknown is no."""
    if not contracts.has_contract(chosen.framework):
        return False
    contract = contracts.load_contract(chosen.framework, chosen.version or None, chosen.variant or None)
    return not is_for_gpus_alone(contract)
