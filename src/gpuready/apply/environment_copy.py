"""Change a virtual environment that gpuready did not make: work on a copy, then exchange the two.

    ENV.gpuready-fix/TOKEN/   a copy that is being changed, and after the exchange the environment as it was before

ENV itself changes in one step, or not at all. What a killed run leaves is put right by the next one (``recover``), by the record in
the user's own state folder (``fix_record``): whatever else lies in ENV.gpuready-fix is neither believed nor removed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from shlex import quote

from gpuready.apply import fix_record as phases
from gpuready.apply.disk_space import format_size
from gpuready.apply.fix_record import FixRecord, FixState
from gpuready.apply.install_errors import InstallFailed, format_os_error
from gpuready.apply.install_lock import InstallLock, InstallLockBusyError
from gpuready.system import AccessError, HostAccess, durable_files, file_contents
from gpuready.system.files import read_link
from gpuready.system.imports.distributions import COPIES_SUFFIX
from gpuready.system.private_files import require_own_folder

COPY_DEADLINE = 3600.0
CONFIG_FILE = "pyvenv.cfg"
LOCK_FILES = ("lock", "lock.held")
MARK_PREFIX = ".gpuready-draft-"


class EnvironmentCopy:
    """One virtual environment, and the folder beside it that has its copies. ValueError where there is no state folder."""

    def __init__(self, host: HostAccess, path: str):
        self.host, self.path = host, file_contents.resolve_real_path(path)
        self.folder = self.path + COPIES_SUFFIX
        self.state = FixState(host, self.path)
        self.journal = self.state.journal
        self.lock = InstallLock(self.folder, host.get_hostname())

    # -- the order of things ------------------------------------------------------------------------------

    def change(self, edit: Callable[[str], None]) -> str:
        """Copy, let ``edit`` change the copy, and exchange; return where the environment before is.

        InstallFailed, or any error of edit: the environment is as it was.
        """
        with self._opened_folder():
            try:
                self.journal.record_step("begun", environment=self.path)
                token = os.urandom(16).hex()
                self.state.save(token=token, phase=phases.DRAFTING, previous=self.state.read().token)
                self._make_draft(token)
                edit(self._copy(token))
                self._publish_draft(token)
            except OSError as error:
                raise InstallFailed(f"the copy could not be made: {format_os_error(error)}") from None
            finally:
                self.recover()
        return self.before

    @property
    def before(self) -> str:
        """The environment before the last change; empty where there is none."""
        token = self.state.read().token
        return self._copy(token) if token else ""

    def undo(self) -> None:
        """Put back the environment before the last change. ValueError where there is none."""
        with self._opened_folder():
            token = self.state.read().token
            if not token:
                raise ValueError(f"gpuready fix has changed nothing here: there is no copy of {self.path}")
            try:
                self.journal.record_step("undo", environment=self.path)
                self._put_back(token)
            except OSError as error:
                raise ValueError(f"the copy could not be put back: {format_os_error(error)}") from None
            finally:
                self.recover()
            self.journal.try_record_step("undone", environment=self.path)

    @contextmanager
    def _opened_folder(self) -> Iterator[None]:
        """Hold the folder of the copies, in order; ValueError where it is not ours, another process has it, or it cannot be made."""
        try:
            durable_files.make_folder(self.folder, 0o700)
            self._refuse_foreign_state()
            self.lock.acquire(wait=False)
        except InstallLockBusyError as error:
            raise ValueError(f"{self.path} cannot be changed now: {error}") from None
        except OSError as error:
            raise ValueError(f"{self.folder} cannot be made: {format_os_error(error)}") from None
        try:
            try:
                self.recover()
            except InstallFailed as error:
                raise ValueError(f"an earlier change was interrupted and cannot be taken back: {error}") from None
            yield
        finally:
            self.lock.release()

    def recover(self) -> None:
        """Finish or take back what a killed run left, as the record says."""
        record = self.state.read()
        is_marked = self._exists(f"{self._copy(record.token)}/{self._mark(record.token)}")
        if record.phase == phases.DRAFTING or (record.phase == phases.EXCHANGING and is_marked):
            self._forget_draft(record)
        elif record.phase == phases.EXCHANGING:
            self._keep_old(record)
        elif record.phase == phases.COPYING:
            self._copy_back(record.token)
            self.journal.record_step("recovered", environment=self.path, how="copied back")
            self._forget_draft(record)
        elif record.phase == phases.UNDOING and is_marked:
            durable_files.remove_file(f"{self._copy(record.token)}/{self._mark(record.token)}")
            self.state.save(phase=phases.DONE)
        elif record.phase in (phases.UNDOING, phases.COPYING_BACK):
            self._finish_undo(record)
        self._remove_rubbish()

    def find_foreign_state(self) -> list[str]:
        """The names in the folder of the copies that this user's gpuready did not put there; it makes no links."""
        record = self.state.read()
        own = {*LOCK_FILES, *_tokens(record.token, record.previous, *record.rubbish)}
        names = file_contents.list_names_or_empty(self.folder)
        return sorted(name for name in names if name not in own or read_link(f"{self.folder}/{name}") is not None)

    def _refuse_foreign_state(self) -> None:
        """ValueError where anything in the folder of the copies was put there by somebody else."""
        try:
            require_own_folder(self.folder)
        except AccessError as error:
            raise ValueError(f"{self.folder} {error}, so it is left alone: remove it and try again") from None
        if foreign := self.find_foreign_state():
            raise ValueError(self.describe_foreign_state(foreign))

    def describe_foreign_state(self, names: Sequence[str]) -> str:
        """The sentence about state that is not in this user's record: what it is, and what a person can do."""
        is_copy = self._exists(f"{self.folder}/{names[0]}/{CONFIG_FILE}")
        environment, copy = quote(self.path), quote(f"{self.folder}/{names[0]}")
        by_hand = (
            f"to put that copy back: mv {environment} {environment}.old && mv {copy} {environment}; " if is_copy else ""
        )
        return (
            f"{self.folder}/{names[0]} was not made by this user's gpuready on this machine, so it is neither used nor removed; "
            f"{by_hand}to do without it: rm -r {quote(self.folder)}"
        )

    # -- the copy -----------------------------------------------------------------------------------------

    def _copy(self, token: str) -> str:
        return f"{self.folder}/{token}"

    def _mark(self, token: str) -> str:
        """The file that tells the tree to be published from the one that is replaced."""
        return f"{MARK_PREFIX}{token}"

    def _make_draft(self, token: str) -> None:
        """Copy the environment. Its scripts find their Python by their own place, so that the copy can move."""
        draft = self._copy(token)
        durable_files.make_folder(draft)
        durable_files.replace_file(f"{draft}/{self._mark(token)}", "")
        self._copy_tree(self.path, draft)
        text = file_contents.read_text_file(f"{draft}/{CONFIG_FILE}") or ""
        durable_files.replace_file(f"{draft}/{CONFIG_FILE}", text.rstrip("\n") + "\nrelocatable = true\n")

    def _copy_tree(self, source: str, target: str) -> None:
        """Copy by blocks that are shared; else libraries by links, since nobody edits one in place; else byte by byte."""
        for how in (("--reflink=always",), ("-l",), ("--reflink=auto",)):
            if how == ("--reflink=always",) and not self._can_share_blocks(source, target):
                continue
            ran = self.host.run(("cp", "-a", *how, "--", f"{source}/.", target), deadline=COPY_DEADLINE)
            if ran.rc == 0:
                return durable_files.own_edited_files(target) if how == ("-l",) else None
            for name in file_contents.list_names_or_empty(target):
                if not name.startswith(MARK_PREFIX):
                    durable_files.remove_tree(f"{target}/{name}")
        lines = ran.err.strip().splitlines()
        raise InstallFailed(f"the environment could not be copied: {ran.end or (lines[-1] if lines else 'cp failed')}")

    def _can_share_blocks(self, source: str, target: str) -> bool:
        probe = f"{target}/.gpuready-probe"
        ran = self.host.run(("cp", "--reflink=always", "--", f"{source}/{CONFIG_FILE}", probe), deadline=COPY_DEADLINE)
        durable_files.remove_file(probe)
        return ran.rc == 0

    def _publish_draft(self, token: str) -> None:
        draft = self._copy(token)
        config = file_contents.read_text_file(f"{self.path}/{CONFIG_FILE}") or ""
        durable_files.replace_file(f"{draft}/{CONFIG_FILE}", config)
        durable_files.sync_disk(draft)
        self.journal.record_step("publish", environment=self.path, undo=["gpuready", "fix", "--undo"])
        record = self.state.save(phase=phases.EXCHANGING)
        if durable_files.exchange_paths(draft, self.path):
            self._keep_old(record)
        else:
            self._publish_in_place(token)
        self.journal.try_record_step("published", environment=self.path, before=self.before)

    def _keep_old(self, record: FixRecord) -> None:
        """Make what was exchanged, which is the old environment, the copy to go back to."""
        durable_files.remove_file(f"{self.path}/{self._mark(record.token)}")
        self.state.save(phase=phases.DONE, previous="", rubbish=_tokens(*record.rubbish, record.previous))

    def _forget_draft(self, record: FixRecord) -> None:
        phase = phases.DONE if record.previous else ""
        rubbish = _tokens(*record.rubbish, record.token)
        self.state.save(token=record.previous, previous="", phase=phase, rubbish=rubbish)

    def _publish_in_place(self, draft: str) -> None:
        """Replace the files of the environment, where folders cannot be exchanged; the old ones are copied first."""
        kept = os.urandom(16).hex()
        self.state.save(phase=phases.DRAFTING, rubbish=(kept,))
        durable_files.make_folder(self._copy(kept))
        self._copy_tree(self.path, self._copy(kept))
        durable_files.sync_disk(self._copy(kept))
        durable_files.remove_file(f"{self._copy(draft)}/{self._mark(draft)}")
        record = self.state.save(token=kept, phase=phases.COPYING, rubbish=(draft,))
        self._copy_back(draft)
        self._keep_old(record)

    def _put_back(self, token: str) -> None:
        copy = self._copy(token)
        try:
            require_own_folder(copy)
        except AccessError as error:
            raise ValueError(f"the copy cannot be put back: {copy} {error}") from None
        mark = f"{copy}/{self._mark(token)}"
        durable_files.replace_file(mark, "")
        record = self.state.save(phase=phases.UNDOING)
        if not durable_files.exchange_paths(copy, self.path):
            record = self.state.save(phase=phases.COPYING_BACK)
        self._finish_undo(record)

    def _finish_undo(self, record: FixRecord) -> None:
        if record.phase == phases.COPYING_BACK:
            self._copy_back(record.token)
        durable_files.remove_file(f"{self.path}/{self._mark(record.token)}")
        self.state.save(token="", phase="", rubbish=_tokens(*record.rubbish, record.token))

    def _copy_back(self, token: str) -> None:
        """Give the environment the files of a copy, one by one; nothing is removed before the new ones lie complete beside the old."""
        inside = f".gpuready-new-{token}"
        incoming = f"{self.path}/{inside}"
        durable_files.remove_tree(incoming)
        durable_files.make_folder(incoming)
        try:
            self._copy_tree(self._copy(token), incoming)
        except InstallFailed:
            durable_files.remove_tree(incoming)
            raise
        durable_files.sync_disk(incoming)
        names = file_contents.list_names_or_empty(incoming)
        for name in names:
            durable_files.remove_tree(f"{self.path}/{name}")
            durable_files.rename_path(f"{incoming}/{name}", f"{self.path}/{name}")
        for name in file_contents.list_names_or_empty(self.path):
            if name not in names:
                durable_files.remove_tree(f"{self.path}/{name}")
        durable_files.sync_disk(self.path)

    def _remove_rubbish(self) -> None:
        rubbish = self.state.read().rubbish
        left = tuple(token for token in rubbish if not durable_files.remove_tree(self._copy(token)))
        if left != rubbish:
            self.state.save(rubbish=left)

    def describe_space(self) -> str:
        """What the environment before takes beside the one of now."""
        size, own = map(format_size, durable_files.measure_tree(self.before))
        return (
            f"the environment before is kept in {self.before}: {size}, of which {own} are its own, the rest is shared"
        )

    def _exists(self, path: str) -> bool:
        return self.host.stat_path(path) is not None


def _tokens(*tokens: str) -> tuple[str, ...]:
    return tuple(token for token in tokens if token)


def explain_refusal(path: str) -> str:
    """Return why an environment cannot be changed by this user, as a phrase; empty if it can."""
    path = file_contents.resolve_real_path(path)
    for folder in (path, os.path.dirname(path)):
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"{folder} cannot be written by this user"
    return ""
