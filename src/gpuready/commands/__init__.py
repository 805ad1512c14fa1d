"""Every command, declared once: parameters and one function that runs it. The faces (command line, Python, MCP, web) derive the rest."""

from importlib import import_module
from types import ModuleType
from typing import Any

from gpuready.commands.declaration import Command

COMMAND_MODULES = {
    "check": "check",
    "prove": "prove",
    "plan": "plan",
    "install": "install",
    "fix": "fix",
    "fit": "fit",
    "env": "env",
    "run": "run",
    "diagnose": "diagnose",
    "diff": "diff",
    "explain": "explain",
    "probe": "probe",
    "issue": "issue",
    "bench": "bench",
    "report": "report",
    "serve": "serve",
    "mcp": "mcp",
    "docs": "docs",
    "completion": "completion",
    "fleet check": "fleet",
    "fleet prove": "fleet",
    "fleet bench": "fleet",
    "fleet drift": "fleet",
    "fleet bisect": "fleet",
    "contract list": "contract",
    "contract show": "contract",
    "contract diff": "contract",
    "contract new": "contract",
    "contract check": "contract",
}
"""Every command of the command line in the order of the help, and the module of this package that declares it."""


FIRST_COMMANDS = ("check", "fix", "fit", "diagnose", "run", "fleet check")
"""Those of the first help; the others are shown by --help-all."""

UNLISTED_COMMANDS = ("fleet drift",)
"""Those that go on working, and that no help names: fleet check shows where nodes differ."""

COMMAND_ALIASES = {"doctor": "check"}
"""Other words for a command."""


def load_command_module(name: str) -> ModuleType:
    return import_module(f"gpuready.commands.{name}")


def load_command(name: str) -> Command:
    """Return one command; its module alone is imported."""
    module = load_command_module(COMMAND_MODULES.get(name, name))
    found: Command = next(command for command in module.COMMANDS if command.name == name)
    return found


def load_all_commands() -> dict[str, Command]:
    """Return every command of the command line: for the help, completion and the reference page."""
    return {name: load_command(name) for name in COMMAND_MODULES}


def load_function(name: str) -> Any:
    """Return a command's Python function, with the signature that its declaration gives."""
    function = getattr(load_command_module(name), name)
    if not hasattr(function, "__signature__"):
        import inspect

        command: Any = next(c for c in load_command_module(name).COMMANDS if c.name in (name, f"{name} show"))
        stated = inspect.signature(function).parameters
        plain = [one for one in stated.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default if one.metavar or one.default else False
            )
            for one in command.parameters.values()
            if one.python and one.name not in stated
        ]
        others = [one for one in stated.values() if one not in plain and command.other_keywords]
        function.__signature__ = inspect.Signature([*plain, *keywords, *others])
    return function
