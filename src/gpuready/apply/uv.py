"""Find, configure and run uv. The user's and the system's uv and pip configuration is honoured, a project's only if asked.

uv reads its own settings itself (uv.toml, ``UV_*``), in a private folder so that it finds none of the current one.
pip's settings are passed on if uv has no equivalent, always by the environment: an address may contain a password, and
argument lists are public.
"""

import os
import re
from collections.abc import Callable, Sequence

from gpuready.apply import uv_config
from gpuready.apply.build_errors import LOGIN_WAY, explain_build_failure, find_host, find_network_cause
from gpuready.apply.install_errors import format_os_error
from gpuready.apply.uv_config import read_pip_settings
from gpuready.apply.uv_output import InconclusiveResolution, parse_uv_failure
from gpuready.model import versions
from gpuready.system import AccessError, HostAccess, RunResult, redact_text
from gpuready.system.own_programs import find_own_uv
from gpuready.system.process.runner import run_with_progress, unredacted_variables

MIN_VERSION = "0.9"
"""The oldest uv that supports what is used here."""

DEADLINE = 900.0
"""How long one resolution may take, in seconds."""

# Settings that would undo the pinning of indexes or change the request: never passed on.
_REMOVED_VARIABLES: tuple[str, ...] = (
    "UV_TORCH_BACKEND",
    "UV_NO_SOURCES",
    "UV_NO_SOURCES_PACKAGE",
    "UV_INDEX_STRATEGY",
    "UV_PROJECT",
)
_REMOVED_VARIABLES += ("UV_WORKING_DIR", "UV_SYSTEM_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "RUST_LOG")

_DEFAULT_VARIABLES = {
    "UV_PYTHON_DOWNLOADS": "never",  # a plan changes nothing, and metadata does not need the target's Python
    "UV_HTTP_RETRIES": "2",
    "UV_HTTP_CONNECT_TIMEOUT": "5",
    "UV_NO_PROGRESS": "1",
    "NO_COLOR": "1",
    "MACOSX_DEPLOYMENT_TARGET": "14.0",  # for plans for a Mac: torch's wheels need it, and uv would take macOS 13
}
"""Defaults for uv unless the user sets them."""


class UvSettings:
    """How uv is run: flags, changes of its environment, and notes about them.

    Not a Record: the environment may contain secrets, and a Record prints its fields.
    """

    __slots__ = ("env", "extra", "flags", "folders", "indexes", "notes", "use_project")

    def __init__(self) -> None:
        self.flags: tuple[str, ...] = ()
        self.env: dict[str, str | None] = {}
        self.folders: tuple[str, ...] = ()  # local folders of wheels, absolute
        self.extra: tuple[str, ...] = ()  # pip's extra indexes, used only for packages that no other index has
        self.indexes: tuple[str, ...] = ()  # addresses of other indexes than the default, without login
        self.notes: tuple[str, ...] = ()
        self.use_project = False  # whether uv's settings of the current folder count


def find_uv(host: HostAccess) -> str:
    """Return the uv that came with gpuready, else the one on PATH. ValueError, in a sentence, if there is none."""
    path = find_own_uv() or host.find_program("uv")
    if path is None:
        raise ValueError("uv is not there: install it with pip install uv, or put it on PATH")
    return path


def check_uv_version(host: HostAccess, path: str) -> str:
    """Return uv's version. ValueError, in a sentence, if it does not answer or is too old."""
    ran = host.run((path, "--version"), deadline=10.0)
    words = ran.out.split()
    version = words[1] if ran.rc == 0 and len(words) > 1 else ""
    if not versions.is_version(version):
        raise ValueError(f"{path} does not say its version ({ran.end or f'exit {ran.rc}'}): reinstall uv")
    if versions.compare_versions(version, MIN_VERSION) < 0:
        raise ValueError(f"{path} is uv {version}, older than {MIN_VERSION}: pip install --upgrade uv")
    return version


def make_uv_settings(
    host: HostAccess, find_links: Sequence[str] = (), offline: bool = False, use_project_config: bool = False
) -> UvSettings:
    """Make the settings for uv. ValueError, in a sentence, if a named folder does not exist."""
    environment, pip, settings = unredacted_variables(host), read_pip_settings(host), UvSettings()
    settings.env = {name: None for name in _REMOVED_VARIABLES if name in environment}
    settings.env |= {name: value for name, value in _DEFAULT_VARIABLES.items() if name not in environment}
    notes: list[str] = []
    _add_find_links(host, settings, find_links, pip.get("find-links", ()), environment.get("UV_FIND_LINKS", ""), notes)
    settings.use_project = use_project_config
    _add_pip_indexes(host, settings, pip, environment)
    _add_connection_settings(settings, pip, environment)
    if offline:
        settings.env["UV_OFFLINE"] = "1"
    if pip.get("no-index", ("",))[0].lower() in ("1", "true", "yes", "on"):
        settings.flags += ("--no-index",)
    if use_project_config:
        notes += _keep_own_cache(host, settings, environment)
    else:
        changed = {name: value for name, value in settings.env.items() if value is not None}
        settings.env |= uv_config.absolute_variables(environment | changed, host.get_cwd())
    notes += _name_indexes(host, settings)
    settings.notes = tuple(notes)
    return settings


def _keep_own_cache(host: HostAccess, settings: UvSettings, environment: dict[str, str]) -> list[str]:
    """Say what the project sets. A cache that it names is never used: uv believes what a cache says of hashes."""
    if "UV_CACHE_DIR" not in environment:
        ran = run_uv(host, (find_uv(host), "cache", "dir"), UvSettings(), deadline=10.0)
        settings.env |= {"UV_CACHE_DIR": ran.out.strip()} if ran.rc == 0 and ran.out.strip() else {}
    said = uv_config.describe_project_settings(host)
    return [f"uv's settings of this project are used: {said}"] if said else []


def _name_indexes(host: HostAccess, settings: UvSettings) -> list[str]:
    """Name every configured index: what is not the default one is said."""
    named = uv_config.list_configured_indexes(host, settings.use_project)
    default = settings.env.get("UV_DEFAULT_INDEX")
    if default and "UV_DEFAULT_INDEX" not in unredacted_variables(host):
        named = {uv_config.strip_login(default).removeprefix("file://").rstrip("/"): "pip's settings"} | named
    settings.indexes = tuple(named)
    return [describe_index(address, where) for address, where in named.items()]


def describe_index(address: str, where: str) -> str:
    """Name an index by its host: the path of an address may be secret."""
    scheme, sep, rest = address.partition("://")
    return f"packages come from the index {'of ' + rest.partition('/')[0] if sep else scheme} ({where})"


def _add_find_links(
    host: HostAccess,
    settings: UvSettings,
    command_line_links: Sequence[str],
    pip_links: Sequence[str],
    uv_links: str,
    notes: list[str],
) -> None:
    """Folders and pages of wheels: from the command line, uv and pip, in this order."""
    places = [_resolve_find_link(host, place, strict=True) for place in command_line_links]
    for place in [p for p in uv_links.split(",") if p] + list(pip_links):
        link = _resolve_find_link(host, place, strict=False)
        if not link:
            notes.append(f"find-links {redact_text(place)} is not there, and is left out")
        places.append(link)
    kept = list(dict.fromkeys(place for place in places if place))
    settings.folders = tuple(place for place in kept if "://" not in place)
    if kept:
        settings.env["UV_FIND_LINKS"] = ",".join(kept)


def _resolve_find_link(host: HostAccess, place: str, strict: bool) -> str:
    if "://" in place and not place.startswith("file://"):
        if strict and not place.partition("://")[2].strip("/"):
            raise ValueError(f"--find-links {place} names no host")
        return place
    path = place.removeprefix("file://")
    path = path if path.startswith("/") else f"{host.get_cwd()}/{path.removeprefix('./')}"
    status = host.stat_path(path)
    if strict and (status is None or status["kind"] != "dir"):
        raise ValueError(f"--find-links {place} is not a folder: name one with wheels")
    if strict and "," in path:
        raise ValueError(f"--find-links {place} has a comma in its name, which uv cannot be told: rename it")
    return path.rstrip("/") if status is not None and "," not in path else ""


def _add_pip_indexes(
    host: HostAccess, settings: UvSettings, pip: dict[str, tuple[str, ...]], environment: dict[str, str]
) -> None:
    """Use pip's index if uv has none; pip's extra indexes are kept separate."""

    def uv_sets(*keys: str) -> bool:
        return uv_config.uv_config_sets(host, settings.use_project, *keys)

    has_own_index = any(name in environment for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"))
    if "index-url" in pip and not has_own_index and not uv_sets("index-url", "index"):
        settings.env["UV_DEFAULT_INDEX"] = pip["index-url"][0]
    has_own_index = any(name in environment for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL"))
    if "extra-index-url" in pip and not has_own_index and not uv_sets("extra-index-url", "index"):
        settings.extra = pip["extra-index-url"]


def _add_connection_settings(
    settings: UvSettings, pip: dict[str, tuple[str, ...]], environment: dict[str, str]
) -> None:
    if "cert" in pip and "SSL_CERT_FILE" not in environment:
        settings.env["SSL_CERT_FILE"] = pip["cert"][0]
    if "client-cert" in pip and "SSL_CLIENT_CERT" not in environment:
        settings.env["SSL_CLIENT_CERT"] = pip["client-cert"][0]
    if "trusted-host" in pip and "UV_INSECURE_HOST" not in environment:
        settings.env["UV_INSECURE_HOST"] = " ".join(pip["trusted-host"])
    if "proxy" in pip and not {"ALL_PROXY", "HTTPS_PROXY", "all_proxy", "https_proxy"} & set(environment):
        settings.env["ALL_PROXY"] = pip["proxy"][0]


def run_uv(
    host: HostAccess,
    argv: Sequence[str],
    settings: UvSettings,
    on_line: Callable[[str], None] = lambda line: None,
    deadline: float = DEADLINE,
    env: dict[str, str | None] | None = None,
    config: str = "",
) -> RunResult:
    """Run uv until it ends or the deadline; its process group never outlives us. ``on_line`` gets each stderr line.

    ``config``: settings besides those of the user and the system, where those of the project do not count.
    """
    flags = settings.flags if argv[1] in ("pip", "venv") else ()
    changes = settings.env | (env or {})
    if settings.use_project:
        return run_with_progress(host, (*argv, *flags), on_line, deadline, changes)
    try:
        with uv_config.private_folder(host, config) as folder:
            return run_with_progress(host, (*argv, *flags, "--directory", folder), on_line, deadline, changes)
    except AccessError as error:
        return RunResult(tuple(argv), None, end=f"cannot execute: {error}")


def find_python(host: HostAccess, path: str, settings: UvSettings, request: str) -> str:
    """Return the interpreter that uv finds for a version or a path; empty if there is none.

    ValueError, in a sentence, if uv does not run, or stops at a launcher that starts no Python.
    """
    is_path = bool(request) and not request.startswith("/") and host.stat_path(request) is not None
    named = f"{host.get_cwd()}/{request}" if is_path else request
    # A request in any case: without one uv would take a path from a .python-version file above.
    words = (path, "python", "find", "--system", "--no-project")
    ran = run_uv(host, (*words, named or "3"), settings, deadline=30.0)
    launcher = _find_broken_launcher(ran.err) if ran.rc else ""
    behind = _find_behind_shim(host, launcher, request) if launcher else ""
    if behind:
        ran = run_uv(host, (*words, behind), settings, deadline=30.0)
    if ran.end:
        raise ValueError(explain_uv_failure(ran, "python find"))
    if ran.rc and launcher and "first executable" in ran.err:
        raise ValueError(
            f"{launcher} is first on PATH for Python {request} and starts none: install that version "
            "(pyenv install, uv python install), take the launcher off PATH, or name a Python with --python PATH"
        )
    return ran.out.strip() if ran.rc == 0 else ""


def _find_broken_launcher(err: str) -> str:
    """``error: Failed to inspect Python interpreter from first executable in the search path at `/…/shims/python3.12` ``.

    Behind another Python on PATH it is a warning: ``… interpreter from search path at `/…/shims/python3.12` ``.
    """
    for where in ("first executable in the search path", "search path"):
        _, found, rest = err.partition(f"Failed to inspect Python interpreter from {where} at `")
        if found:
            return rest.partition("`")[0]
    return ""


def _find_behind_shim(host: HostAccess, shim: str, request: str) -> str:
    """Return the newest Python of this version among pyenv's, which its shim does not start unless it is active."""
    root, found, _ = shim.partition("/shims/")
    names = (host.list_directory(f"{root}/versions") if found else None) or ()
    minor = ".".join(request.split(".")[:2])
    fitting = [name for name in names if versions.is_version(name) and f"{name}.".startswith(f"{minor}.")]
    chosen = request if request in fitting else max(fitting, key=versions.parse_release, default="")
    return f"{root}/versions/{chosen}/bin/python" if chosen else ""


_FETCH_PHRASES = ("Failed to fetch", "Failed to download", "error sending request")
_OFFLINE_PHRASES = ("etwork connectivity is disabled", "etwork was disabled", "etwork is disabled")


def explain_uv_failure(ran: RunResult, what: str) -> str:
    if ran.end == "deadline":
        return f"uv {what} was not done in time ({ran.seconds:.0f} s), and was ended"
    if ran.end == "signal XFSZ":
        return f"uv {what} failed: EFBIG, file too large"
    if ran.end:
        return f"uv {what} failed: {ran.end}"
    text = _extract_uv_error(ran.err) or f"exit {ran.rc}"
    if "building from source is disabled" in " ".join(ran.err.split()):
        return (
            f"uv {what} failed: a package of the lock has no wheel for this machine, and building one runs its code: "
            f"agree with --allow-build, or make a wheel of it first and name its folder with --find-links; {text[:300]}"
        )
    known = explain_build_failure(ran.err) or _explain_unreachable(ran.err, what)
    if known:
        return known
    if "No solution found" in ran.err:
        return f"uv {what} failed: {_explain_no_solution(ran.err)}"
    match = re.search(r"os error (\d+)", ran.err)
    if match:
        number = int(match[1])
        return f"uv {what} failed: {format_os_error(OSError(number, os.strerror(number)))}; {text[:300]}"
    return f"uv {what} failed: {text[:600]}"


def _explain_no_solution(err: str) -> str:
    found = parse_uv_failure(err, "this request", {})
    if isinstance(found, InconclusiveResolution):
        return f"{found.why}; name a folder of wheels that has it with --find-links DIR"
    return found.says


def _explain_unreachable(err: str, what: str) -> str:
    """Say which host cannot be reached, why, and what to do; empty if the failure has another reason."""
    output = " ".join(err.split())
    cause = find_network_cause(err) if any(phrase in output for phrase in _FETCH_PHRASES) else ""
    ways = "install that Python first" if what == "venv" else "name a folder of wheels with --find-links DIR"
    if cause:
        host = find_host(err) or "the package index"
        check = LOGIN_WAY if cause.endswith(("(401)", "(403)")) else "check the network and the proxy"
        return f"nothing could be fetched from {host}: {cause}; {check}, or {ways}"
    if any(phrase in output for phrase in _OFFLINE_PHRASES):
        missing = re.search(r"Because (\S{1,100}) was not found in the ", output)
        named = f": {missing[1]}" if missing else ""
        return f"uv {what} failed: the network is off, and what is missing is not in uv's cache{named}; allow the network, or {ways}"
    return ""


def _extract_uv_error(err: str) -> str:
    """Return uv's error message on one line, from its first ``error`` on."""
    lines = [line.strip(" ×╰─▶│├╴") for line in err.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith("error")]
    kept = [line for line in lines[starts[0] if starts else 0 :] if line and not line.startswith("warning")]
    return "; ".join(kept).removeprefix("error: ")
