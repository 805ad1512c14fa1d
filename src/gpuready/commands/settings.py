"""Apply the settings file of the current folder to a request of the command line; its own words win."""

from __future__ import annotations

from gpuready.commands.declaration import Request
from gpuready.workflow.settings import Settings, read_settings

_OTHER_ENVIRONMENT = ("python", "on", "dockerfile", "image")
"""Options that name what is judged: beside them, the environment of the settings is not meant."""


def apply_settings(request: Request) -> None:
    """Take what the command's declaration lists from the settings, where the command line does not say it."""
    if not request.command.settings:
        return
    settings = read_settings()
    if settings is None:
        return
    applied = [name for name in request.command.settings if _apply_setting(request, settings, name)]
    request.settings = settings.replace(applied=tuple(applied))
    if applied and request.command.name != "check":  # whose header says it
        request.session.write_sentence(f"settings from {settings.path}: {', '.join(applied)}")


def _apply_setting(request: Request, settings: Settings, name: str) -> bool:
    options = request.options
    if name == "framework":
        if request.arguments or not 0 < len(settings.framework) <= request.command.most:
            return False
        if options.get("contract") is not None or options.get("undo"):
            return False
        request.arguments = list(settings.framework)
    elif name == "python":
        if not settings.python or any(options.get(other) is not None for other in _OTHER_ENVIRONMENT):
            return False
        options["python"] = settings.python
    elif name == "ignore":
        added = {code: why for code, why in settings.ignore.items() if code not in options.get("ignore", {})}
        options["ignore"] = {**options.get("ignore", {}), **added}
        return bool(added)
    elif name == "strict":
        if not settings.strict or options.get("strict"):
            return False
        options["strict"] = True
    return True
