"""Change a virtual environment that gpuready did not make: work on a copy, then exchange the two.

    ENV.gpuready-fix/before/       the environment before the last change; ``gpuready fix --undo`` puts it back
    ENV.gpuready-fix/draft/        a copy that is being changed; it has the file DRAFT_MARK
    ENV.gpuready-fix/in-place      there while ENV is replaced file by file, where the disk cannot exchange folders
    ENV.gpuready-fix/journal.jsonl what was done, step by step

ENV itself changes in one step, or not at all. What a killed run leaves is put right by the next one (``recover``).
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from gpuready.apply import uv
from gpuready.apply.install_errors import InstallFailed, format_os_error
from gpuready.apply.journal import InstallJournal
from gpuready.apply.lease import Lease, LeaseBusyError
from gpuready.apply.uv_failure import explain_uv_failure
from gpuready.apply.wheel_contents import find_overreach
from gpuready.catalog.packages import canonical_package_name, split_requirement
from gpuready.system import durable_files, file_contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuready.apply.uv import UvSettings
    from gpuready.system import HostAccess

STATE_SUFFIX = ".gpuready-fix"
DRAFT_MARK = ".gpuready-draft"
COPY_DEADLINE = 3600.0
CONFIG_FILE = "pyvenv.cfg"
RUBBISH, SAVING = "rubbish", "saving"


class EnvironmentCopy:
    """One virtual environment, and the folder beside it that has its copies."""

    def __init__(self, host: HostAccess, path: str):
        self.host, self.path = host, file_contents.resolve_real_path(path)
        self.folder = self.path + STATE_SUFFIX
        self.draft, self.before = f"{self.folder}/draft", f"{self.folder}/before"
        self.in_place = f"{self.folder}/in-place"
        self.journal = InstallJournal(self.folder, host.get_wall_time)
        self.lease = Lease(self.folder, host.get_hostname())

    # -- the order of things ------------------------------------------------------------------------------

    def change(self, edit: Callable[[str], None]) -> None:
        """Copy, let ``edit`` change the copy, and exchange. InstallFailed, or any error of edit: nothing has changed."""
        with self._opened_folder():
            try:
                self.journal.record_step("begun", environment=self.path)
                self._make_draft()
                edit(self.draft)
                self._publish_draft()
            except OSError as error:
                raise InstallFailed(f"the copy could not be made: {format_os_error(error)}") from None
            finally:
                self.recover()

    def explain_refusal(self) -> str:
        """Return why it cannot be changed by this user, as a phrase; empty if it can."""
        parent = os.path.dirname(self.path)
        for folder in (self.path, parent):
            if not os.access(folder, os.W_OK | os.X_OK):
                return f"{folder} cannot be written by this user"
        return ""

    def undo(self) -> None:
        """Put back the environment before the last change. ValueError where there is none."""
        if not self._exists(self.folder):
            raise ValueError(f"gpuready fix has changed nothing here: there is no {self.folder}")
        with self._opened_folder():
            if not self._exists(self.before):
                raise ValueError(f"{self.folder} has no copy to put back")
            try:
                self.journal.record_step("undo", environment=self.path)
                self._replace_with(self.before)
                durable_files.remove_tree(self.before)
            except OSError as error:
                raise ValueError(f"the copy could not be put back: {format_os_error(error)}") from None
            self.journal.try_record_step("undone", environment=self.path)

    @contextmanager
    def _opened_folder(self) -> Iterator[None]:
        """Hold the folder of the copies, in order; ValueError where another process has it, or it cannot be made."""
        try:
            durable_files.make_folder(self.folder)
            self.lease.acquire_lease(wait=False)
        except LeaseBusyError as error:
            raise ValueError(f"{self.path} cannot be changed now: {error}") from None
        except OSError as error:
            raise ValueError(f"{self.folder} cannot be made: {format_os_error(error)}") from None
        try:
            self.recover()
            with self.lease.renew_in_background():
                yield
        finally:
            self.lease.release_lease()

    def recover(self) -> None:
        """Finish or take back what a killed run left."""
        if self._exists(self.in_place):
            self._copy_back(self.before)
            self.journal.record_step("recovered", environment=self.path, how="copied back")
        if self._exists(f"{self.draft}/{CONFIG_FILE}") and not self._exists(f"{self.draft}/{DRAFT_MARK}"):
            self._keep_old()  # without its mark it is the old environment, already exchanged
        durable_files.remove_file(f"{self.path}/{DRAFT_MARK}")
        self._remove_draft()

    # -- the copy -----------------------------------------------------------------------------------------

    def _make_draft(self) -> None:
        """Copy the environment. Its scripts find their Python by their own place, so that the copy can move."""
        self._remove_draft()
        durable_files.make_folder(self.draft)
        durable_files.replace_file(f"{self.draft}/{DRAFT_MARK}", "")
        self._copy_tree(self.path, self.draft)
        text = file_contents.read_text_file(f"{self.draft}/{CONFIG_FILE}") or ""
        durable_files.replace_file(f"{self.draft}/{CONFIG_FILE}", text.rstrip("\n") + "\nrelocatable = true\n")

    def _copy_tree(self, source: str, target: str) -> None:
        words = ("cp", "-a", "--reflink=auto", "--", f"{source}/.", target)
        ran = self.host.run(words, deadline=COPY_DEADLINE)
        if ran.rc != 0:
            lines = ran.err.strip().splitlines()
            raise InstallFailed(
                f"the environment could not be copied: {ran.end or (lines[-1] if lines else 'cp failed')}"
            )

    def _publish_draft(self) -> None:
        config = file_contents.read_text_file(f"{self.path}/{CONFIG_FILE}") or ""
        durable_files.replace_file(f"{self.draft}/{CONFIG_FILE}", config)
        durable_files.sync_disk(self.draft)
        self.journal.record_step("publish", environment=self.path, undo=["gpuready", "fix", "--undo"])
        if durable_files.exchange_paths(self.draft, self.path):
            self._keep_old()
        else:
            self._publish_in_place()
        durable_files.remove_file(f"{self.path}/{DRAFT_MARK}")
        self.journal.try_record_step("published", environment=self.path, before=self.before)

    def _keep_old(self) -> None:
        """Make the exchanged folder, which is the old environment, the copy to go back to."""
        durable_files.remove_tree(self.before)
        durable_files.rename_path(self.draft, self.before)

    def _publish_in_place(self) -> None:
        """Replace the files of the environment, where folders cannot be exchanged; the old ones are copied first."""
        saving = f"{self.folder}/{SAVING}"
        durable_files.make_folder(saving)
        self._copy_tree(self.path, saving)
        durable_files.sync_disk(saving)
        durable_files.remove_tree(self.before)
        durable_files.rename_path(saving, self.before)
        try:
            self._copy_back(self.draft)
        except BaseException:
            self._copy_back(self.before)
            raise

    def _replace_with(self, tree: str) -> None:
        if not durable_files.exchange_paths(tree, self.path):
            self._copy_back(tree)

    def _copy_back(self, tree: str) -> None:
        """Give the environment the files of a tree, one by one; a mark stays until that is done."""
        durable_files.replace_file(self.in_place, "")
        for name in file_contents.list_names_or_empty(self.path):
            durable_files.remove_tree(f"{self.path}/{name}")
        self._copy_tree(tree, self.path)
        durable_files.sync_disk(self.path)
        durable_files.remove_file(self.in_place)

    def _remove_draft(self) -> None:
        """Remove the draft; under another name first, for half a draft has no mark."""
        for name in (RUBBISH, SAVING):
            durable_files.remove_tree(f"{self.folder}/{name}")
        if durable_files.rename_path(self.draft, f"{self.folder}/{RUBBISH}"):
            durable_files.remove_tree(f"{self.folder}/{RUBBISH}")

    def _exists(self, path: str) -> bool:
        return self.host.stat_path(path) is not None


_BUILD_WORDS = ("--no-build-isolation", "--no-binary", "--only-binary", "--no-build")


def forbid_builds(run: Sequence[str]) -> tuple[str, ...]:
    """Let a ``uv pip install`` take wheels only, unless the command itself says what is built."""
    states_build = any(word in _BUILD_WORDS or "git+" in word for word in run)
    if run[:3] != ("uv", "pip", "install") or states_build:
        return tuple(run)
    return (*run[:3], "--only-binary", ":all:", *run[3:])


def run_uv_in(
    host: HostAccess,
    environment: str,
    run: Sequence[str],
    settings: UvSettings,
    show_step: Callable[[str], None],
    deadline: float,
) -> None:
    """Run a ``uv pip`` command of a fix for another environment. InstallFailed where it fails."""
    words = list(run[1:])
    if "--python" in words:
        place = words.index("--python")
        del words[place : place + 2]
    words[2:2] = ["--python", f"{environment}/bin/python"]
    words = _use_local_torch(host, environment, words, settings)

    def report_line(line: str) -> None:
        if line.startswith(("Resolved", "Prepared", "Installed", "Uninstalled", "Downloading", "Building", "Built")):
            show_step(line.strip())

    ran = uv.run_uv(host, (uv.find_uv(host), *words), settings, report_line, deadline)
    if ran.rc != 0 and settings.extra and "UV_INDEX" not in settings.env:
        # pip's extra indexes are asked only where the others do not do, and then as pip asks them: all alike.
        show_step("asking pip's extra indexes too")
        more = ("--index-strategy", "unsafe-best-match")
        extra: dict[str, str | None] = {"UV_INDEX": " ".join(settings.extra)}
        ran = uv.run_uv(host, (uv.find_uv(host), *words, *more), settings, report_line, deadline, extra)
    if ran.rc != 0:
        raise InstallFailed(explain_uv_failure(ran, " ".join(words[:2])))
    if "--reinstall" in words:
        _remove_empty_metadata(host, environment, words)
    faults = find_overreach(environment)
    if faults:
        raise InstallFailed(f"{faults[0].path} is not a wheel's to bring: {faults[0].says}", 1, faults=faults)


def _list_site_folders(host: HostAccess, environment: str) -> list[str]:
    pythons = [name for name in host.list_directory(f"{environment}/lib") or () if name.startswith("python3.")]
    return [f"{environment}/lib/{name}/site-packages" for name in pythons]


def _use_local_torch(host: HostAccess, environment: str, words: list[str], settings: UvSettings) -> list[str]:
    """Leave PyTorch's index out where a folder of wheels has the build that is asked for: the index may be out of reach."""
    builds = [word.removeprefix("torch==") for word in words if word.startswith("torch==") and "+" in word]
    if not builds or "--torch-backend" not in words:
        return words
    tags = [
        "cp" + folder.split("/")[-2].removeprefix("python").replace(".", "")
        for folder in _list_site_folders(host, environment)
    ]
    files = [file.replace("%2B", "+") for folder in settings.folders for file in host.list_directory(folder) or ()]
    if not any(file.startswith(f"torch-{builds[0]}-{tag}-") for file in files for tag in tags):
        return words
    at = words.index("--torch-backend")
    return [*words[:at], *words[at + 2 :]]


def _remove_empty_metadata(host: HostAccess, environment: str, words: Sequence[str]) -> None:
    """Remove what is left of the metadata of another version, which an uninstall by its RECORD leaves: it has no METADATA."""
    names = {canonical_package_name(split_requirement(word)[0]) for word in words[2:] if not word.startswith("-")}
    for site in _list_site_folders(host, environment):
        for entry in host.list_directory(site) or ():
            is_named = entry.endswith(".dist-info") and canonical_package_name(entry.partition("-")[0]) in names
            if is_named and host.stat_path(f"{site}/{entry}/METADATA") is None:
                durable_files.remove_tree(f"{site}/{entry}")
