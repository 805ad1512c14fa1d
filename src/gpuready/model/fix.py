"""Records of ``gpuready fix``: the numbered changes, who makes each, and what is left."""

from __future__ import annotations

from typing import Any

from gpuready.model import Record


class FixItem(Record):
    """One numbered change."""

    number: int
    does: str
    by: str  # gpuready, or you
    codes: tuple[str, ...] = ()  # the findings it clears
    why: tuple[str, ...] = ()  # one sentence for each of them
    commands: tuple[tuple[str, ...], ...] = ()
    undo: str = ""
    note: str = ""
    state: str = "planned"  # planned, applied, failed, skipped (--only)


class FixOutcome(Record):
    """The result of a fix."""

    verdict: str  # fixed, partly, nothing-to-fix, by-hand, dry-run, failed, undone
    framework: str = ""
    environment: str = ""
    kind: str = ""  # venv, conda, system, gpuready
    items: tuple[FixItem, ...] = ()
    says: str = ""
    settings_file: str = ""  # the variables that were written, to be sourced before the job
    copy: str = ""  # the environment as it was before
    undo: tuple[str, ...] = ()  # the command that takes it back
    is_unchanged: bool = False  # of one that failed: the environment was looked at again, and is as it was
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    before: Any = None  # the Report before
    report: Any = None  # the Report after

    @property
    def exit(self) -> int:
        """0 where no error is left, or nothing was to be changed; 1 where something is left; 2 where it failed."""
        if self.verdict == "failed":
            return 2
        return 1 if self.verdict in ("partly", "by-hand") else 0
