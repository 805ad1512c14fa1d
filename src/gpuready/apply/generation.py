"""The folder of an environment: its generations, and the link that selects one.

    DIR/installs/0007-3f2a…/     a whole environment, made by uv; complete once it has its manifest
    DIR/current -> installs/0007-3f2a…
    DIR/bin -> current/bin, and so lib, pyvenv.cfg …: DIR itself is used like any environment
    DIR/.gpuready/                    the lock; marks DIR as managed by gpuready
    DIR/journal.jsonl               what was done, step by step

Publishing is one rename of ``current``. A generation without a manifest is unfinished and gets removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuready.apply import audit, install_seal, wheel_contents
from gpuready.apply.install_lock import InstallLock, InstallLockBusyError
from gpuready.model import Record
from gpuready.model.facts import FILE_KINDS
from gpuready.model.plan import InstallFault, InstallResult, LockedPackage
from gpuready.model.validation import parse_record
from gpuready.system import HostAccess, durable_files, file_contents, private_files, redact_text
from gpuready.system.files import read_link
from gpuready.system.process import inspection

MANIFEST_FILE = "gpuready.json"
UNKNOWN_MANIFEST = (
    "no file differs from what the environment says of itself, but it was not installed by your gpuready (its state folder knows "
    "nothing of it): install it again from a lock that you trust"
)
IN_USE_LOCK = "in-use.lock"
ORDER_FILE = "order"
FIXED_LINKS = ("bin", "lib", "lib64", "include", "share", "etc", "pyvenv.cfg")
_OWN_FOLDER = ".gpuready"


class EnvironmentGeneration(Record):
    """One generation: its number, the plan it was made from, and its path."""

    number: int
    plan: str  # the first letters of the hash of its contents
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def has_manifest(self) -> bool:
        return os.path.isfile(f"{self.path}/{MANIFEST_FILE}")

    @property
    def install_order(self) -> int:
        """Order of installation: its number, or a later one if it was published again."""
        text = (file_contents.read_text_file(f"{self.path}/{ORDER_FILE}") or "").strip()
        return int(text) if text.isdecimal() and len(text) < 10 else self.number

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest written at publication; empty if it cannot be read."""
        try:
            manifest = json.loads(file_contents.read_text_file(f"{self.path}/{MANIFEST_FILE}") or "")
        except (ValueError, RecursionError):
            return {}
        return manifest if isinstance(manifest, dict) else {}


class EnvironmentHome:
    """The folder of one environment."""

    def __init__(self, path: str):
        self.path = os.path.abspath(path)

    def join_path(self, *names: str) -> str:
        return "/".join((self.path, *names))

    # -- reading ----------------------------------------------------------------------------------------

    def explain_refusal(self) -> str:
        """Return why this folder cannot hold an environment, as a phrase; empty if it can."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return self._explain_parent_refusal()
        except NotADirectoryError:
            return "is not a folder"
        except OSError as error:
            return f"cannot be read: {(error.strerror or 'error').lower()}"
        if names and _OWN_FOLDER not in names:
            if "pyvenv.cfg" in names:
                return "is an environment that gpuready did not make: name another folder, or move it away"
            return "has files that are not gpuready's: name another folder"
        if link := next((name for name in (_OWN_FOLDER, "installs") if os.path.islink(f"{self.path}/{name}")), ""):
            return f"has a link where gpuready has a folder ({link}): name another folder"
        if not os.access(self.path, os.W_OK | os.X_OK):
            return "cannot be written"
        return self._explain_other_owner()

    def _explain_other_owner(self) -> str:
        """Return that the generations are another user's; empty if they are ours, or we are root."""
        owner = private_files.find_foreign_owner(f"{self.path}/{_OWN_FOLDER}")
        if owner is None:
            return ""
        return f"cannot be written: it belongs to uid {owner}, who alone changes them; name another folder"

    def _explain_parent_refusal(self) -> str:
        folder = self.existing_parent()
        if not os.path.isdir(folder):
            return f"cannot be made: {folder} is not a folder"
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"cannot be made: {folder} cannot be written"
        return ""

    def existing_parent(self) -> str:
        """Return the folder itself, or its nearest existing parent."""
        folder = self.path
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        return folder

    def is_managed(self) -> bool:
        return os.path.isdir(self.join_path(_OWN_FOLDER))

    def list_generations(self) -> list[EnvironmentGeneration]:
        """List every generation, oldest first, complete or not."""
        generations = []
        for name in file_contents.list_names_or_empty(self.join_path("installs")):
            number, _, plan = name.partition("-")
            path = self.join_path("installs", name)
            if number.isdigit() and not os.path.islink(path):
                generations.append(EnvironmentGeneration(int(number), plan, path))
        return sorted(generations, key=lambda g: (g.install_order, g.name))

    def current_generation(self) -> EnvironmentGeneration | None:
        """Return the published generation."""
        name = (read_link(self.join_path("current")) or "").rpartition("/")[2]
        return next((g for g in self.list_generations() if g.name == name and g.has_manifest), None)

    def previous_generation(self) -> EnvironmentGeneration | None:
        """Return the complete generation before the published one."""
        published = self.current_generation()
        older = [
            g
            for g in self.list_generations()
            if g.has_manifest and (published is None or g.install_order < published.install_order)
        ]
        return older[-1] if older else None

    def generations_of_plan(self, plan: str) -> list[EnvironmentGeneration]:
        """List the complete generations of a plan: the published one first, then the newest."""
        published = self.current_generation()
        matches = [g for g in self.list_generations() if g.has_manifest and g.plan == plan]
        return sorted(matches, key=lambda g: (g != published, -g.install_order))

    # -- changing ---------------------------------------------------------------------------------------

    def claim_folder(self) -> None:
        """Mark the folder as ours: all that may be done without the lock, whose holder removes drafts that it finds."""
        durable_files.make_folder(self.join_path(_OWN_FOLDER))

    def prepare_folder(self) -> None:
        """Make the folder of generations, with the lock held. OSError if it cannot hold links, which all of this needs."""
        durable_files.make_folder(self.join_path("installs"))
        durable_files.replace_link(self.join_path(_OWN_FOLDER, "links"), "work")
        durable_files.remove_file(self.join_path(_OWN_FOLDER, "links"))

    def next_generation(self, plan: str) -> EnvironmentGeneration:
        number = self._last_order() + 1
        return EnvironmentGeneration(number, plan, self.join_path("installs", f"{number:04}-{plan}"))

    def _last_order(self) -> int:
        return max([max(g.install_order, g.number) for g in self.list_generations()], default=0)

    def mark_newest(self, generation: EnvironmentGeneration) -> None:
        """Order an older generation as the newest, so that a rollback leads to the one before."""
        durable_files.replace_file(f"{generation.path}/{ORDER_FILE}", str(self._last_order() + 1))

    def publish_generation(self, generation: EnvironmentGeneration) -> None:
        """Make this generation the environment by one durable rename."""
        for name in FIXED_LINKS:
            self._ensure_fixed_link(name, generation)
        durable_files.replace_link(self.join_path("current"), f"installs/{generation.name}")

    def _ensure_fixed_link(self, name: str, generation: EnvironmentGeneration) -> None:
        """Create the lasting link to one part of ``current``, before ``current`` exists."""
        if os.path.islink(self.join_path(name)) or not os.path.lexists(f"{generation.path}/{name}"):
            return
        durable_files.replace_link(self.join_path(name), f"current/{name}")

    def remove_unfinished(self) -> list[str]:
        """Remove what an earlier run left unfinished; return the names."""
        swept = []
        for generation in self.list_generations():
            if not generation.has_manifest:
                durable_files.remove_tree(generation.path)
                swept.append(generation.name)
        for folder in (self.path, self.join_path(_OWN_FOLDER), self.join_path("installs")):
            for name in [one for one in file_contents.list_names_or_empty(folder) if one.endswith(".draft")]:
                durable_files.remove_file(f"{folder}/{name}")
        return swept

    def remove_old_generations(self, keep: int) -> tuple[list[str], dict[str, int]]:
        """Remove all but the newest ``keep``, the published and the used; return removed, and used with PIDs."""
        complete = [g for g in self.list_generations() if g.has_manifest]
        published = self.current_generation()
        others = [g for g in complete if g != published]
        spare = others[: max(len(others) - (keep - 1), 0)]
        busy = self.find_used_generations(spare)
        gone = []
        for generation in spare:
            if generation.path in busy:
                continue
            durable_files.remove_file(
                f"{generation.path}/{MANIFEST_FILE}"
            )  # first: without it the generation counts as unfinished
            durable_files.remove_tree(generation.path)
            gone.append(generation.name)
        return gone, {path.rpartition("/")[2]: pid for path, pid in busy.items()}

    def find_used_generations(self, generations: list[EnvironmentGeneration]) -> dict[str, int]:
        """Return generations used by a process (PID 0 if only its lock shows it); uncertain counts as used."""
        if not generations:
            return {}
        users = inspection.find_folder_users([g.path for g in generations], self.path)
        for generation in generations:
            if (
                generation.path not in users
                and durable_files.is_locked(f"{generation.path}/{IN_USE_LOCK}") is not False
            ):
                users[generation.path] = 0
        return users


JOURNAL_FILE = "journal.jsonl"


class InstallJournal:
    """Append-only log of what was done to an environment."""

    def __init__(self, folder: str, clock: Callable[[], float]):
        self.path, self.clock, self.pid = f"{folder}/{JOURNAL_FILE}", clock, os.getpid()

    def record_step(self, step: str, **more: Any) -> None:
        """Write one step. OSError if it cannot be written: then the step must not be taken."""
        line = {"at": round(self.clock(), 3), "pid": self.pid, "step": step} | more
        durable_files.append_line(self.path, redact_text(json.dumps(line, default=str)))

    def try_record_step(self, step: str, **more: Any) -> None:
        """Write one step after a failure, where a full disk must not hide the cause."""
        try:
            self.record_step(step, **more)
        except OSError:
            return


def rollback_environment(host: HostAccess, home: EnvironmentHome) -> InstallResult:
    """Publish the previous generation: one rename, no network. ValueError if there is none."""
    _require_managed(home)
    lock = InstallLock(home.join_path(".gpuready"), host.get_hostname())
    try:
        lock.acquire(wait=False)
    except InstallLockBusyError as error:
        raise ValueError(f"{home.path} cannot be rolled back now: {error}") from None
    try:
        published, before = home.current_generation(), home.previous_generation()
        if before is None:
            raise ValueError(f"{home.path} has no environment before {published.name if published else 'this one'}")
        base = audit.find_base_python(before.path, before.read_manifest())
        if file_contents.file_size(base) is None:
            raise ValueError(f"{before.name} has lost its Python ({base})")
        journal = InstallJournal(home.path, host.get_wall_time)
        journal.record_step("rollback", generation=before.name, before=published.name if published else "")
        home.publish_generation(before)
        return InstallResult("rolled-back", home.path, before.name, published.name if published else "")
    finally:
        lock.release()


def verify_environment(
    host: HostAccess,
    home: EnvironmentHome,
    folders: Sequence[str],
    survey: Callable[[str, str], Iterable[dict[str, Any]]],
) -> InstallResult:
    """Check that every file of the published generation is unchanged. ValueError if none is published.

    ``folders`` of wheels: packages whose wheel of the lock is there are compared with it, the others with their RECORD.
    ``survey`` returns what a check finds in the files of a generation, for a framework.
    """
    _require_managed(home)
    published = home.current_generation()
    if published is None:
        raise ValueError(f"{home.path} has no complete environment: install one")
    manifest = published.read_manifest()
    rows = _locked_rows(manifest)
    of_wheels, compared = wheel_contents.compare_with_wheels(published.path, rows, folders)
    all_faults = [*audit.audit_environment(published.path, manifest), *of_wheels]
    all_faults += wheel_contents.find_overreach(published.path)
    surveyed = list(survey(published.path, _framework_of(manifest)))
    all_faults += _list_surveyed_faults(published.path, surveyed, {fault.path for fault in all_faults})
    found = {(fault.kind, fault.path): fault for fault in all_faults}
    faults = tuple(fault for fault in found.values() if fault.kind not in audit.HARMLESS_FAULTS)
    harmless = [f"{fault.path}: {fault.says}" for fault in found.values() if fault not in faults]
    before = home.previous_generation()
    is_known = install_seal.read_seal(host, f"{published.path}/{MANIFEST_FILE}") is not None
    verdict = "damaged" if faults else "intact" if is_known else "undecided"
    known = manifest.get("packages") or {}
    need = {"packages": len(known), "compared": compared}
    return InstallResult(
        verdict,
        home.path,
        published.name,
        before.name if before else "",
        faults=faults,
        notes=(*_describe_needs(surveyed), *_describe_comparison(compared, len(rows)), *harmless[:5]),
        says="" if is_known else UNKNOWN_MANIFEST,
        need=need,
        exit={"damaged": 1, "undecided": 3}.get(verdict, 0),
    )


def _list_surveyed_faults(root: str, rows: Iterable[dict[str, Any]], known: set[str]) -> Iterator[InstallFault]:
    """Yield the files that a check finds damaged, as far as they are not known already."""
    for row in rows:
        path = str(row["path"]).removeprefix(f"{root}/")
        if row["kind"] in FILE_KINDS and path not in known:
            yield InstallFault(
                "missing" if row["kind"] == "missing" else "changed", path, row["distribution"], row["detail"]
            )


def _describe_needs(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Say what a check finds that is no file's fault: a library or a package that is not here, or of another version."""
    others = [row for row in rows if row["kind"] not in FILE_KINDS]
    return [f"{row['path'] or row['distribution']}: {row['detail']}; gpuready check tells more" for row in others[:5]]


def _framework_of(manifest: Mapping[str, Any]) -> str:
    plan = manifest.get("plan")
    name = plan.get("framework") if isinstance(plan, dict) else ""
    return name if isinstance(name, str) else ""


def _locked_rows(manifest: Mapping[str, Any]) -> list[LockedPackage]:
    """Return the lock of a published generation; rows that cannot be read are left out."""
    plan = manifest.get("plan")
    rows = plan.get("lock") if isinstance(plan, dict) else ()
    try:
        return [parse_record(LockedPackage, row) for row in rows or ()]
    except (ValueError, TypeError):
        return []


def _describe_comparison(compared: int, packages: int) -> tuple[str, ...]:
    if compared >= packages:
        return ()
    return (
        f"{compared} of {packages} packages were compared with the wheels of the lock, the others with their RECORD: "
        "--find-links DIR names a folder of wheels (gpuready plan FRAMEWORK --bundle DIR makes one)",
    )


def _require_managed(home: EnvironmentHome) -> None:
    if not home.is_managed():
        raise ValueError(f"{home.path} is not an environment made by gpuready: name one with -e DIR")
