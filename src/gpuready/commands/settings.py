"""Apply the settings file of the current folder to a request of the command line; its own words win."""

from gpuready.commands.declaration import Request
from gpuready.workflow.settings import Settings, read_settings

_OTHER_MACHINE = ("python", "on", "image")
"""Options that name what is judged, and is not of this folder: who wrote its settings does not silence findings about it."""


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
        if not settings.python or _names_another(request) or options.get("dockerfile"):
            return False
        options["python"] = settings.python
    elif name == "ignore":
        if settings.ignore and _names_another(request):
            request.session.write_sentence(
                f"ignore of {settings.path} is not applied to --python, --on and --image: use --ignore CODE=REASON"
            )
            return False
        added = {code: why for code, why in settings.ignore.items() if code not in options.get("ignore", {})}
        options["ignore"] = {**options.get("ignore", {}), **added}
        return bool(added)
    elif name == "strict":
        if not settings.strict or options.get("strict"):
            return False
        options["strict"] = True
    return True


def _names_another(request: Request) -> bool:
    return any(request.options.get(name) is not None for name in _OTHER_MACHINE)
