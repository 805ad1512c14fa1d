"""``gpuready install``: parse, confirm, call, render. Progress goes to stderr."""

from __future__ import annotations

import sys

from gpuready.cli.words import EVERYWHERE, PATIENT, RESOLVE, WHAT_IF, Command, Flag, Usage, what_if

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.words import Told
    from gpuready.planned import Installed
    from gpuready.render.layout import Screen
    from gpuready.workflow.installing import Order


_FLAGS = (
    Flag("-e", "the folder of the environment (default .venv)", "DIR"),
    *PATIENT,
    *RESOLVE,
    Flag("--lock", "install what this lock says", "FILE"),
    Flag("--dry-run", "show what would run; changes nothing"),
    Flag("--rollback", "go back to the environment before this one"),
    Flag("--verify", "is every file of the environment there and unchanged?"),
    Flag("--keep", "how many environments to keep for a rollback (default 2)", "N"),
    Flag("--yes", "do not ask"),
    *WHAT_IF,
)
COMMANDS = (
    Command(
        "install",
        "make it so: the old or the new, never half",
        _FLAGS + EVERYWHERE,
        "[FRAMEWORK]",
        0,
        1,
    ),
)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    """Return the text for stdout and the exit code."""
    flags = told.flags
    _coherent(told)
    from gpuready.workflow import installing

    environment = flags.get("e") or installing.DEFAULT
    if flags.get("rollback"):
        return _answer(installing.rollback(environment), told, screen)
    if flags.get("verify"):
        return _answer(installing.verify(environment), told, screen)
    return _made(told, screen, environment)


def _made(told: Told, screen: Screen, environment: str) -> tuple[str, int]:
    from gpuready.workflow import installing

    flags = told.flags
    order = installing.Order(
        told.arguments[0] if told.arguments else "",
        environment,
        **{name: flags.get(name) for name in ("lock", "on", "python", "wants", "contract", "source")},
        find_links=flags.get("find-links", ()),
        offline=bool(flags.get("offline")),
        keep=_keep(flags),
        what_if=what_if(flags),
        say=_say,
        acts=not flags.get("dry-run"),
    )
    if flags.get("dry-run"):
        return _answer(order.dry(), told, screen)
    if not _agreed(order, flags, screen):
        return "nothing was changed\n", 1
    return _answer(order.install(), told, screen)


def _coherent(told: Told) -> None:
    """Reject contradictory flags before anything is probed."""
    flags = told.flags
    acts = [name for name in ("rollback", "verify", "dry-run") if flags.get(name)]
    if len(acts) > 1:
        raise Usage(f"--{acts[0]} and --{acts[1]} do not go together: choose one")
    if acts and acts[0] != "dry-run" and (told.arguments or "lock" in flags):
        raise Usage(f"--{acts[0]} takes no FRAMEWORK and no --lock, only -e DIR")
    if not acts or acts[0] == "dry-run":
        _keep(flags)
        if not told.arguments and "lock" not in flags:
            raise Usage(
                "gpuready install takes a FRAMEWORK, or --lock FILE; --rollback and --verify take neither"
            )


def _keep(flags: Mapping[str, Any]) -> int:
    text = str(flags.get("keep", "2"))
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise Usage(f"--keep takes a number from 1 to 1000, not {text!r}")
    return int(text)


def _say(text: str) -> None:
    from gpuready.cli.terminal import sentence

    sentence(text)


def _agreed(order: Order, flags: Mapping[str, Any], screen: Screen) -> bool:
    """Show the plan and ask on a terminal; without one, the caller has agreed."""
    if flags.get("yes") or sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        return True
    from gpuready.cli.terminal import note
    from gpuready.render import install

    note(install.proposal(order.dry(), screen))
    sys.stderr.write("install this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _answer(done: Installed, told: Told, screen: Screen) -> tuple[str, int]:
    code = done.exit
    if told.flags.get("json"):
        from gpuready.render import answers

        return answers.install(done), code
    from gpuready.render import install

    return install.page(done, screen), code
