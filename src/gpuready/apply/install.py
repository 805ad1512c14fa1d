"""Install a plan: build a new generation beside the old one, check it, then publish it.

The published generation is never touched on the way: not by an error, a signal, a full disk or SIGKILL.
"""

from __future__ import annotations

import time

from gpuready.apply import audit, build, uv
from gpuready.apply.generation import MANIFEST, Generation, Home
from gpuready.apply.journal import Journal
from gpuready.apply.lease import Held, Lease, Lost
from gpuready.apply.trouble import Failed, named, why
from gpuready.contracts import distribution
from gpuready.planned import Installed
from gpuready.system import durable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from gpuready.apply.build import Ingredients
    from gpuready.apply.uv import Settings
    from gpuready.model import Report, Step
    from gpuready.planned import Fault, Plan
    from gpuready.system import Door

CLEANING = 3.0
"""How long cleanup may take after a stop, in seconds; the next install removes the rest."""

DEADLINE = 4 * 3600.0
_GENTLE = ("overlap",)
"""Faults that come from the wheels: they are reported and do not stop an install."""


class Worker:
    """Installs one plan into one home."""

    def __init__(
        self,
        door: Door,
        home: Home,
        plan: Plan,
        use: Ingredients,
        made: Settings,
        judge: Callable[[str], Report],
        say: Callable[[str], None],
        keep: int = 2,
        deadline: float = DEADLINE,
    ):
        self.door, self.home, self.plan, self.use, self.made = door, home, plan, use, made
        self.judge, self.say, self.keep = judge, say, keep
        self.until = time.monotonic() + deadline
        self.identity = build.identity(plan)
        self.journal = Journal(home.path, door.wall)
        self.lease = Lease(home.at(".gpuready"), door.hostname())
        self.taken: list[Step] = []
        self.notes: list[str] = []

    # -- sequence ---------------------------------------------------------------------------------------

    def install(self) -> Installed:
        """Install, or return what is already installed. InstallFailed if it cannot; then nothing has changed."""
        done = self._found(locked=False)
        if done:
            return done
        try:
            self.home.occupy()
            self.lease.take(said=self.say)
        except Held as held:
            raise Failed(str(held)) from None
        except OSError as error:
            raise Failed(f"{self.home.path} cannot hold an environment: {named(error)}") from None
        try:
            return self._found(locked=True) or self._built()
        except OSError as error:
            raise Failed(f"the install could not go on: {named(error)}") from None
        except Lost as lost:
            raise Failed(str(lost)) from None
        finally:
            self.lease.leave()

    def _found(self, locked: bool) -> Installed | None:
        """Return an intact generation of this plan if there is one, publishing it if necessary."""
        if not locked and self._untidy():
            return None
        if locked:
            for name in self.home.sweep():
                self.journal.note("swept", generation=name, why="it was never finished")
        for generation in self.home.made_from(self.identity):
            now = self.home.current()
            if generation != now and not locked:
                return None
            if self._harmed(generation):
                continue
            report = self._clear(generation)
            if generation != now:
                self.home.take_up(generation)
                self._publish(generation, now)
            if locked:
                self._tidy()
            if generation != now:
                return self._told("installed", generation, now, report)
            return self._told("unchanged", generation, self.home.previous(), report)
        return None

    def _untidy(self) -> bool:
        """Whether an earlier run ended before its cleanup."""
        every = self.home.generations()
        return len(every) > self.keep or not all(generation.complete for generation in every)

    def _harmed(self, generation: Generation) -> bool:
        found = audit.audit(generation.path, generation.manifest(), deep=False)
        faults = [fault for fault in found if fault.kind not in _GENTLE]
        if faults:
            first = faults[0]
            more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
            note = f"{generation.name} is not as it was published ({first.kind}: {first.path}{more})"
            if note not in self.notes:
                self.notes.append(note)
        return bool(faults)

    def _built(self) -> Installed:
        before = self.home.current()
        generation = self.home.next(self.identity)
        self.journal.note(
            "begun", generation=generation.name, plan=self.identity, undo="remove the generation"
        )
        try:
            known = self._filled(generation)
            report = self._clear(generation)
            self._sealed(generation, known)
        except BaseException as error:
            self._abandon(generation, error)
            raise
        self._publish(generation, before)
        self._tidy()
        return self._told("installed", generation, before, report)

    # -- building ---------------------------------------------------------------------------------------

    def _filled(self, generation: Generation) -> dict[str, Any]:
        """Install every file as its wheel records it; after a damaged cache, retry once."""
        known, faults = self._once(generation)
        bad = sorted({fault.package for fault in faults if fault.package and fault.kind not in _GENTLE})
        if bad:
            self.say(
                f"damaged on arrival: {', '.join(bad)}; uv's cache of it is cleared, and it is fetched again"
            )
            self.journal.note("evicted", packages=bad)
            self._uv(("cache", "clean", *bad), 120.0, check=False)
            durable.remove_tree(generation.path)
            known, faults = self._once(generation)
        wrong = [fault for fault in faults if fault.kind not in _GENTLE]
        if wrong:
            said = f"{wrong[0].path} is {wrong[0].kind}" + (f": {wrong[0].says}" if wrong[0].says else "")
            raise Failed(f"what was installed is not what its wheels say: {said}", 1, faults=wrong)
        self.notes += [f"{f.path}: {f.says}" for f in faults[:5]]
        self.notes += [f"and {len(faults) - 5} more files that two packages bring"] if len(faults) > 5 else []
        runs = audit.starters(generation.path)
        self.notes += [f"runs code whenever this Python starts: {', '.join(runs)}"] if runs else []
        return known

    def _once(self, generation: Generation) -> tuple[dict[str, Any], list[Fault]]:
        venv, packages, *others = build.steps(self.plan, generation.path, self.use)
        self._run(venv)
        durable.write(f"{generation.path}/{build.LOCK}", build.lock_text(self.plan.lock))
        self._run(packages)
        for step in others:
            self._run(step)
        build.settle(generation.path)
        self.say("looking over every file")
        return audit.describe(generation.path, self.lease.beat)

    def _run(self, step: Step) -> None:
        self.say(step.does)
        self.journal.note("run", does=step.does, run=list(step.run))
        self.taken.append(step)
        variables, words = build.parted(step.run)
        self._uv(words[1:], self.until - time.monotonic(), variables)

    def _uv(
        self,
        words: Sequence[str],
        deadline: float,
        variables: dict[str, str | None] | None = None,
        check: bool = True,
    ) -> None:
        env = build.settings_for(self.made, self.plan) | (variables or {})
        with self.lease.beating():
            ran = uv.run(self.door, (self.use.uv, *words), self.made, self._hear, max(deadline, 1.0), env)
        self.lease.beat()
        if check and ran.rc != 0:
            raise Failed(why(ran, words[0]))

    def _hear(self, line: str) -> None:
        if line.startswith(("Resolved", "Prepared", "Installed", "Downloading", "Building", "Built")):
            self.say(line.strip())

    # -- checking ---------------------------------------------------------------------------------------

    def _clear(self, generation: Generation) -> Report:
        """Check that the framework imports and that the check has no errors."""
        if not generation.complete:
            self._imports(generation)
        report = self.judge(generation.path)
        if report.verdict not in ("clear", "ready"):
            codes = [f.code for f in report.findings if f.severity == "error"]
            codes = codes or [u.code for u in report.undecided]
            word = report.verdict.replace("-", " ")
            raise Failed(f"the check of the new environment says {word} ({', '.join(codes)})", 1, report)
        return report

    def _imports(self, generation: Generation) -> None:
        """An intact wheel may still be broken: only importing it shows that."""
        locked = {row.name for row in self.plan.lock}
        own = [name for name in ("torch", distribution(self.plan.framework)) if name in locked]
        found = [module for name in own for module in audit.modules(generation.path, name)]
        if not found:
            return
        self.say(f"importing {', '.join(found)}")
        argv = build.smoke(self.plan, found, f"{generation.path}/bin/python")
        self.journal.note("import", run=list(argv))
        with self.lease.beating():
            ran = self.door.run(argv, deadline=min(build.SMOKE_DEADLINE, self.until - time.monotonic()))
        if ran.rc == 0:
            return
        said = [line for line in ran.err.splitlines() if line.strip()]
        last = ran.end or (said[-1].strip() if said else f"exit {ran.rc}")
        text = f"import {', '.join(found)} fails in the new environment: {last[:300]}"
        if not self.use.elsewhere:
            raise Failed(text, 1)
        self.notes.append(f"{text}; it is for another machine, so this does not hold it up")

    # -- publishing -------------------------------------------------------------------------------------

    def _sealed(self, generation: Generation, known: dict[str, Any]) -> None:
        """Sync to disk, then write the manifest as the last file, which completes the generation."""
        import json

        from gpuready import __version__

        manifest = {
            "schema": 1,
            "gpuready": __version__,
            "identity": self.identity,
            "made": self.door.wall(),
            "python": audit.interpreter(generation.path),
            "plan": self.plan.to_json(),
        }
        self.journal.note("sync", generation=generation.name)
        durable.sync_disk(generation.path)
        durable.write(f"{generation.path}/{MANIFEST}", json.dumps(manifest | known, default=str))

    def _publish(self, generation: Generation, before: Generation | None) -> None:
        undo = ["gpuready", "install", "--rollback", "-e", self.home.path] if before else []
        self.lease.confirm()
        self.journal.note(
            "publish", generation=generation.name, before=before.name if before else "", undo=undo
        )
        self.home.publish(generation)
        self.journal.try_note("published", generation=generation.name)

    def _tidy(self) -> None:
        """Remove old generations; a failure here does not affect the published one."""
        try:
            gone, busy = self.home.tidy(self.keep)
        except OSError as error:
            self.notes.append(f"older generations could not be removed: {named(error)}")
            return
        for name in gone:
            self.journal.try_note("removed", generation=name)
        for name, pid in busy.items():
            by = f"process {pid}" if pid else "a process"
            self.notes.append(f"{name} is kept: {by} still uses it")

    def _abandon(self, generation: Generation, error: BaseException) -> None:
        until = time.monotonic() + CLEANING
        durable.remove_tree(generation.path, lambda: time.monotonic() < until)
        said = str(error) or type(error).__name__
        self.journal.try_note("abandoned", generation=generation.name, why=said[:500])

    def _told(
        self, verdict: str, generation: Generation, before: Generation | None, report: Report
    ) -> Installed:
        return Installed(
            verdict,
            self.home.path,
            generation.name,
            before.name if before else "",
            self.plan,
            tuple(self.taken),
            notes=tuple(self.notes),
            report=report,
        )
