"""``gpuready install``: plan, build beside the current environment, check it, publish; or roll back, or verify."""

from __future__ import annotations

import time

from gpuready import contracts, system
from gpuready.planned import Installed
from gpuready.workflow.locks import locked
from gpuready.workflow.refusal import Refused, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.apply.build import Ingredients
    from gpuready.apply.generation import Home
    from gpuready.apply.uv import Settings
    from gpuready.model import Contract, Report
    from gpuready.planned import Kernel, Plan

    Say = Callable[[str], None]

DEFAULT = ".venv"
LONGEST = 1e8  # seconds
SET_ASIDE = {
    "GPU001": "the plan is for the CPU",
    "PKG001": "the plan took the CPU build of torch",
}
"""Findings to expect in a CPU environment, and why they are ignored there."""


def rollback(environment: str) -> Installed:
    """Go back to the environment before this one, at once and without network."""
    from gpuready.apply import upkeep

    return _timed(lambda: refusing(upkeep.rollback, system.Live(), home(environment)))


def verify(environment: str) -> Installed:
    """Check that every file of an environment is present and unchanged."""
    from gpuready.apply import upkeep

    return _timed(lambda: refusing(upkeep.verify, home(environment)))


def home(environment: str) -> Home:
    from gpuready.apply.generation import Home

    return Home(environment)


def _timed(do: Callable[[], Installed]) -> Installed:
    began = time.perf_counter()
    done = do()
    return done.but(seconds=round(time.perf_counter() - began, 4))


def _anothers(door: system.Door, flag: str, path: str | None) -> str:
    """Say why root refuses a file: another user may change it, and so what root installs. Empty where it is safe."""
    if path is None or door.user().get("uid") != 0:
        return ""
    found = refusing(door.stat, path)
    if found is None or found["kind"] != "file":
        return ""  # reading it reports the error
    if found["uid"]:
        whose = f"belongs to uid {found['uid']}, who"
    elif found["mode"] & 0o002:
        whose = "may be written by everybody, and so anybody"
    else:
        return ""
    return (
        f"{flag} {path} {whose} could change what root installs: install as that file's owner, "
        "or look at it and give a copy of your own (cp)"
    )


class Order:
    """One requested install: the plan, its environment, and what it needs. Nothing has been changed yet."""

    def __init__(
        self,
        framework: str,
        environment: str = DEFAULT,
        *,
        lock: str | None = None,
        on: str | None = None,
        python: str | None = None,
        wants: str | None = None,
        contract: str | None = None,
        source: str | None = None,
        find_links: Sequence[str] = (),
        offline: bool = False,
        keep: int = 2,
        what_if: Mapping[str, str] | None = None,
        say: Say = lambda text: None,
        acts: bool = True,
    ):
        """With ``acts`` (it will be installed), refuse now what the install would refuse."""
        self.framework, self.on, self.python = framework, on, python
        self.wants, self.contract, self.keep, self.say = wants, contract, keep, say
        self.what_if = dict(what_if or {})
        self.home = home(environment)
        why = self.home.refusal()
        if why:
            raise Refused(f"{environment} {why}")
        self.door = system.Live()
        self.anothers = _anothers(self.door, "--lock", lock) or _anothers(self.door, "--contract", contract)
        if self.anothers and acts:
            raise Refused(self.anothers)
        self.made: Settings = _settings(self.door, find_links, offline)
        if lock is not None:
            self.plan = locked(lock, framework)
        else:
            self.plan = self._planned(source, find_links, offline)
        self.notes = [
            *self.made.notes,
            *([f"root would be refused: {self.anothers}"] if self.anothers else []),
        ]
        self.plan = self.plan.but(kernels=tuple(k for k in self.plan.kernels if self._taken(k)))
        self.use = self._ingredients()
        self.need = self._fits()

    # -- the plan ---------------------------------------------------------------------------------------

    def _planned(self, source: str | None, find_links: Sequence[str], offline: bool) -> Plan:
        if not self.framework:
            raise Refused(
                "gpuready install takes a FRAMEWORK, or --lock FILE; --rollback and --verify take neither"
            )
        from gpuready.workflow import planning

        found = planning.plan(
            [self.framework],
            on=self.on,
            python=self.python,
            wants=self.wants,
            contract=self.contract,
            source=source,
            find_links=find_links,
            offline=offline,
            what_if=self.what_if,
            note=self.say,
        )
        plan: Plan = found.plans[0]
        if plan.verdict != "plan":
            why = plan.conflicts[0].says if plan.conflicts else "no choice fits this machine"
            raise Refused(
                f"there is no plan for {self.framework} here: {why}; gpuready plan {self.framework} tells more"
            )
        if not plan.lock:
            why = plan.resolved.removeprefix("not resolved here: ") or "nothing was resolved"
            raise Refused(f"the plan for {self.framework} has no lock to install: {why}")
        return plan

    def _taken(self, kernel: Kernel) -> bool:
        """Return whether to install a compiled package; Refused where it is required and cannot be built here."""
        from gpuready.apply import build

        if kernel not in build.kernels(self.plan):
            return True
        waits = build.ready(kernel)
        if self._required(kernel.package):
            if waits:
                raise Refused(
                    f"{kernel.package} {kernel.version} has to be built, and first a person must {waits}"
                )
            return True
        self.notes.append(
            f"{kernel.package} is left out: nothing that was asked for requires it; --wants brings it"
        )
        return False

    def _required(self, package: str) -> bool:
        from gpuready.catalog.kernels import asked_by

        wanted = {word.strip() for word in (self.wants or "").split(",")}
        if any(package in asked_by(word) for word in wanted):
            return True
        contract = self._contract()
        if contract is None:
            return False
        needs = [need for need in contract.wants(f"package.{package}") if need.level == "required"]
        return any(
            not need.when or wanted & set(need.when.removeprefix("wants=").split("|")) for need in needs
        )

    def _contract(self) -> Contract | None:
        """Return the contract of the plan: the user's own, else the framework's, if there is one."""
        if self.contract is not None:
            return refusing(contracts.read, self.contract)
        spec = contracts.parse(self.framework or self.plan.framework)[0]
        if not contracts.contracted(spec):
            return None
        return contracts.load(spec, self.plan.version or None, self.plan.variant or None)

    def _ingredients(self) -> Ingredients:
        from gpuready.apply import uv
        from gpuready.apply.build import Ingredients

        path = refusing(uv.find, self.door)
        refusing(uv.version, self.door, path)
        self._same_arch()
        linked = (self.door.env("UV_LINK_MODE") or "").lower() == "symlink"
        return Ingredients(
            path,
            self._interpreter(path),
            self.home.path.rpartition("/")[2] or "gpuready",
            _addresses(self.plan),
            self.on is not None,
            linked,
        )

    def _interpreter(self, uv: str) -> str:
        """Find the Python to build the environment from: the named one, else the one that uv finds."""
        wanted = self.plan.python or self.what_if.get("python-version") or ""
        minor = ".".join(wanted.split(".")[:2])
        for asked in dict.fromkeys([self.python] if self.python else [wanted, minor]):
            argv = [uv, "python", "find", "--system", "--no-project", *([asked] if asked else [])]
            ran = self.door.run(argv, deadline=30.0, env=self.made.env)
            if ran.rc == 0 and ran.out.strip():
                return ran.out.strip()
        why = f"--python {self.python}" if self.python else f"Python {minor}"
        raise Refused(f"{why} is not to be found here: install it (uv python install {minor or '3.12'})")

    def _same_arch(self) -> None:
        target = self.plan.platform.partition("-")[0]
        here = self.door.uname().get("machine", "")
        if target in ("x86_64", "aarch64") and here and target != here:
            raise Refused(
                f"the plan is for {target} and this machine is {here}: install it there, or plan a --bundle"
            )

    def _fits(self) -> dict[str, Any]:
        from gpuready.apply import space

        wanted = space.need(self.plan, self.made.folders)
        why = "" if self._there() else space.shortage(wanted, self.home.ground())
        if why:
            raise Refused(f"there is not enough room: {why}")
        return {"size": wanted.size, "files": wanted.files, "how": wanted.how}

    def _there(self) -> bool:
        from gpuready.apply import build

        return bool(self.home.made_from(build.identity(self.plan)))

    # -- install ---------------------------------------------------------------------------------------

    def dry(self) -> Installed:
        """Return what would run. Nothing is run or written."""
        from gpuready.apply import build

        identity = build.identity(self.plan)
        done = self.home.made_from(identity)
        generation = done[0] if done else self.home.next(identity)
        now = self.home.current()
        steps = () if done else tuple(build.steps(self.plan, generation.path, self.use))
        return Installed(
            "dry-run",
            self.home.path,
            generation.name,
            now.name if now else "",
            self.plan,
            steps,
            "" if not done else f"{generation.name} holds this plan already",
            notes=tuple(self.notes),
            need=self.need,
        )

    def install(self) -> Installed:
        """Install atomically."""
        if self.anothers:
            raise Refused(self.anothers)
        from gpuready.apply.install import Worker
        from gpuready.apply.trouble import Failed

        began = time.perf_counter()
        worker = Worker(
            self.door,
            self.home,
            self.plan,
            self.use,
            self.made,
            self._judge,
            self.say,
            self.keep,
            self._deadline(),
        )
        try:
            done = worker.install()
        except Failed as failed:
            now = self.home.current()
            done = Installed(
                "failed",
                self.home.path,
                now.name if now else "",
                plan=self.plan,
                steps=tuple(worker.taken),
                says=system.redact(str(failed)),
                faults=failed.faults,
                report=failed.report,
                exit=failed.exit,
            )
        notes = tuple(dict.fromkeys((*self.notes, *done.notes)))
        return done.but(seconds=round(time.perf_counter() - began, 3), need=self.need, notes=notes)

    def _deadline(self) -> float:
        from gpuready.apply.install import DEADLINE

        told = self.door.env("GPUREADY_INSTALL_DEADLINE") or ""
        try:
            seconds = float(told) if told else DEADLINE
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= LONGEST:
            raise Refused(f"GPUREADY_INSTALL_DEADLINE must be a number of seconds above 0, not {told!r}")
        return seconds

    # -- check -------------------------------------------------------------------------------------

    def _judge(self, generation: str) -> Report:
        """Check the new environment on the machine that it is for."""
        from gpuready import workflow

        cpu = not self.plan.cuda and "+rocm" not in self.plan.torch
        aside = SET_ASIDE if cpu else {}
        options: dict[str, Any] = {"on": self.on, "wants": self.wants, "contract": self.contract}
        options |= {
            "what_if": {k: v for k, v in self.what_if.items() if k not in ("torch", "python-version")}
        }
        spec = self.framework or self.plan.framework
        named = [spec] if spec else [row.name for row in self.plan.lock if contracts.contracted(row.name)][:1]
        if named:
            return workflow.check(named, python=generation, ignore=aside, **options)[0]
        self.notes.append(
            "the lock names no framework that gpuready knows: its files were looked over, and no more"
        )
        return _nothing_to_judge()


def _nothing_to_judge() -> Report:
    from gpuready.model import Contract, Facts, Report

    return Report(Contract("lock", ""), Facts(()))


def _addresses(plan: Plan) -> tuple[str, ...]:
    """Return the index URLs of a lock's rows, other than the default index and the user's own."""
    from gpuready.catalog import indexes

    names = dict.fromkeys(row.index for row in plan.lock if row.index)
    found = [indexes.url(name) for name in names if name in indexes.names() and name != indexes.DEFAULT]
    return tuple(found)


def _settings(door: system.Door, find_links: Sequence[str], offline: bool) -> Settings:
    from gpuready.apply import uv

    return refusing(uv.settings, door, find_links, offline)
