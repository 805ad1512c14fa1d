"""``gpuready install``: parse, confirm, call, render. Progress goes to stderr."""

from __future__ import annotations

import sys

from gpuready.cli.command_spec import (
    COMMON_FLAGS,
    RESOLVE_FLAGS,
    TARGET_FLAGS,
    WHAT_IF_FLAGS,
    CommandSpec,
    Flag,
    UsageError,
    what_if_values,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.model.plan import InstallResult
    from gpuready.render.layout import Screen
    from gpuready.workflow.install import InstallOrder


_FLAGS = (
    Flag("-e", "the folder of the environment (default .venv)", "DIR"),
    *TARGET_FLAGS,
    *RESOLVE_FLAGS,
    Flag("--lock", "install what this lock says", "FILE"),
    Flag("--dry-run", "show what would run; changes nothing"),
    Flag("--rollback", "go back to the environment before this one"),
    Flag("--verify", "is every file of the environment there and unchanged?"),
    Flag("--keep", "how many environments to keep for a rollback (default 2)", "N"),
    Flag("--yes", "do not ask"),
    *WHAT_IF_FLAGS,
)
COMMANDS = (
    CommandSpec("install", "make it so: the old or the new, never half", _FLAGS + COMMON_FLAGS, "[FRAMEWORK]", 0, 1),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    """Return the text for stdout and the exit code."""
    flags = parsed.flags
    _check_flag_conflicts(parsed)
    from gpuready.workflow import install

    environment = flags.get("e") or install.DEFAULT_ENVIRONMENT
    if flags.get("rollback"):
        return _format_installed(install.rollback_environment(environment), parsed, screen)
    if flags.get("verify"):
        return _format_installed(install.verify_environment(environment), parsed, screen)
    return _run_install(parsed, screen, environment)


def _run_install(parsed: ParsedCommand, screen: Screen, environment: str) -> tuple[str, int]:
    from gpuready.workflow import install

    flags = parsed.flags
    order = install.InstallOrder(
        parsed.arguments[0] if parsed.arguments else "",
        environment,
        **{name: flags.get(name) for name in ("lock", "on", "python", "wants", "contract", "source")},
        find_links=flags.get("find-links", ()),
        offline=bool(flags.get("offline")),
        keep=_parse_keep(flags),
        what_if=what_if_values(flags),
        show_step=_print_step,
        acts=not flags.get("dry-run"),
    )
    if flags.get("dry-run"):
        return _format_installed(order.dry_run(), parsed, screen)
    if not _confirm_install(order, flags, screen):
        return "nothing was changed\n", 1
    return _format_installed(order.run_install(), parsed, screen)


def _check_flag_conflicts(parsed: ParsedCommand) -> None:
    """Reject contradictory flags before anything is probed."""
    flags = parsed.flags
    actions = [name for name in ("rollback", "verify", "dry-run") if flags.get(name)]
    if len(actions) > 1:
        raise UsageError(f"--{actions[0]} and --{actions[1]} do not go together: choose one")
    if actions and actions[0] != "dry-run" and (parsed.arguments or "lock" in flags):
        raise UsageError(f"--{actions[0]} takes no FRAMEWORK and no --lock, only -e DIR")
    if not actions or actions[0] == "dry-run":
        _parse_keep(flags)
        if not parsed.arguments and "lock" not in flags:
            raise UsageError("gpuready install takes a FRAMEWORK, or --lock FILE; --rollback and --verify take neither")


def _parse_keep(flags: Mapping[str, Any]) -> int:
    text = str(flags.get("keep", "2"))
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise UsageError(f"--keep takes a number from 1 to 1000, not {text!r}")
    return int(text)


def _print_step(text: str) -> None:
    from gpuready.cli.terminal import write_sentence

    write_sentence(text)


def _confirm_install(order: InstallOrder, flags: Mapping[str, Any], screen: Screen) -> bool:
    """Show the plan and ask on a terminal; without one, the caller has agreed."""
    if flags.get("yes") or sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        return True
    from gpuready.cli.terminal import write_note
    from gpuready.render import install

    write_note(install.render_install_proposal(order.dry_run(), screen))
    sys.stderr.write("install this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _format_installed(result: InstallResult, parsed: ParsedCommand, screen: Screen) -> tuple[str, int]:
    code = result.exit
    if parsed.flags.get("json"):
        from gpuready.render import json_results

        return json_results.render_install_json(result), code
    from gpuready.render import install

    return install.render_install_screen(result, screen), code
