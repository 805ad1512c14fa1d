"""Find, configure and run uv. The user's own uv and pip configuration is honoured.

uv reads its own settings itself (uv.toml, ``UV_*``). pip's settings are passed on if uv has no equivalent, always
by the environment: an address may contain a password, and argument lists are public.
"""

from __future__ import annotations

from gpuready.system.follow import follow, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuready.system import Door, Ran

LEAST = "0.9"
"""The oldest uv that supports what is used here."""

DEADLINE = 900.0
"""How long one resolution may take, in seconds."""

# Settings that would undo the pinning of indexes or change the request: never passed on.
_UNDOING: tuple[str, ...] = (
    "UV_TORCH_BACKEND",
    "UV_NO_SOURCES",
    "UV_NO_SOURCES_PACKAGE",
    "UV_INDEX_STRATEGY",
    "UV_PROJECT",
)
_UNDOING += ("UV_WORKING_DIR", "UV_SYSTEM_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "RUST_LOG")

_CALM = {
    "UV_PYTHON_DOWNLOADS": "never",  # a plan changes nothing, and metadata does not need the target's Python
    "UV_HTTP_RETRIES": "2",
    "UV_HTTP_CONNECT_TIMEOUT": "5",
    "UV_NO_PROGRESS": "1",
    "NO_COLOR": "1",
}
"""Defaults for uv unless the user sets them."""


class Settings:
    """How uv is run: flags, changes of its environment, and notes about them.

    Not a Record: the environment may contain secrets, and a Record prints its fields.
    """

    __slots__ = ("env", "extra", "flags", "folders", "notes")

    def __init__(self) -> None:
        self.flags: tuple[str, ...] = ()
        self.env: dict[str, str | None] = {}
        self.folders: tuple[str, ...] = ()  # local folders of wheels, absolute
        self.extra: tuple[str, ...] = ()  # pip's extra indexes, used only for packages that no other index has
        self.notes: tuple[str, ...] = ()


def find(door: Door) -> str:
    """Return the uv that came with gpuready, else the one on PATH. ValueError, in a sentence, if there is none."""
    path = _own() or door.which("uv")
    if path is None:
        raise ValueError("uv is not there: install it with pip install uv, or put it on PATH")
    return path


def _own() -> str | None:
    try:
        from uv import find_uv_bin
    except ImportError:
        return None
    try:
        return str(find_uv_bin())
    except (FileNotFoundError, OSError):
        return None


def version(door: Door, path: str) -> str:
    """Return uv's version. ValueError, in a sentence, if it does not answer or is too old."""
    from gpuready import versions

    ran = door.run((path, "--version"), deadline=10.0)
    words = ran.out.split()
    found = words[1] if ran.rc == 0 and len(words) > 1 else ""
    if not versions.is_version(found):
        raise ValueError(f"{path} does not say its version ({ran.end or f'exit {ran.rc}'}): reinstall uv")
    if versions.compare(found, LEAST) < 0:
        raise ValueError(f"{path} is uv {found}, older than {LEAST}: pip install --upgrade uv")
    return found


def settings(door: Door, find_links: Sequence[str] = (), offline: bool = False) -> Settings:
    """Make the settings for uv. ValueError, in a sentence, if a named folder does not exist."""
    from gpuready.apply.pipconf import told

    ours, pip, made = variables(door), told(door), Settings()
    made.env = {name: None for name in _UNDOING if name in ours}
    made.env |= {name: value for name, value in _CALM.items() if name not in ours}
    notes: list[str] = []
    _places(door, made, find_links, pip.get("find-links", ()), ours.get("UV_FIND_LINKS", ""), notes)
    _indexes(door, made, pip, ours)
    _connection(made, pip, ours)
    if offline:
        made.env["UV_OFFLINE"] = "1"
    if pip.get("no-index", ("",))[0].lower() in ("1", "true", "yes", "on"):
        made.flags += ("--no-index",)
    made.notes = tuple(notes)
    return made


def _places(
    door: Door, made: Settings, named: Sequence[str], pips: Sequence[str], uvs: str, notes: list[str]
) -> None:
    """Folders and pages of wheels: from the command line, uv and pip, in this order."""
    places = [_place(door, place, strict=True) for place in named]
    for place in [p for p in uvs.split(",") if p] + list(pips):
        found = _place(door, place, strict=False)
        if not found:
            from gpuready.system import redact

            notes.append(f"find-links {redact(place)} is not there, and is left out")
        places.append(found)
    kept = list(dict.fromkeys(place for place in places if place))
    made.folders = tuple(place for place in kept if "://" not in place)
    if kept:
        made.env["UV_FIND_LINKS"] = ",".join(kept)


def _place(door: Door, place: str, strict: bool) -> str:
    if "://" in place and not place.startswith("file://"):
        return place
    path = place.removeprefix("file://")
    path = path if path.startswith("/") else f"{door.cwd()}/{path.removeprefix('./')}"
    found = door.stat(path)
    if strict and (found is None or found["kind"] != "dir"):
        raise ValueError(f"--find-links {place} is no folder: name one that holds wheels")
    if strict and "," in path:
        raise ValueError(f"--find-links {place} has a comma in its name, which uv cannot be told: rename it")
    return path.rstrip("/") if found is not None and "," not in path else ""


def _indexes(door: Door, made: Settings, pip: dict[str, tuple[str, ...]], ours: dict[str, str]) -> None:
    """Use pip's index if uv has none; pip's extra indexes are kept separate."""
    from gpuready.apply.pipconf import uv_has

    own = any(name in ours for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"))
    if "index-url" in pip and not own and not uv_has(door, "index-url", "index"):
        made.env["UV_DEFAULT_INDEX"] = pip["index-url"][0]
    own = any(name in ours for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL"))
    if "extra-index-url" in pip and not own and not uv_has(door, "extra-index-url", "index"):
        made.extra = pip["extra-index-url"]


def _connection(made: Settings, pip: dict[str, tuple[str, ...]], ours: dict[str, str]) -> None:
    if "cert" in pip and "SSL_CERT_FILE" not in ours:
        made.env["SSL_CERT_FILE"] = pip["cert"][0]
    if "client-cert" in pip and "SSL_CLIENT_CERT" not in ours:
        made.env["SSL_CLIENT_CERT"] = pip["client-cert"][0]
    if "trusted-host" in pip and "UV_INSECURE_HOST" not in ours:
        made.env["UV_INSECURE_HOST"] = " ".join(pip["trusted-host"])
    if "proxy" in pip and not {"ALL_PROXY", "HTTPS_PROXY", "all_proxy", "https_proxy"} & set(ours):
        made.env["ALL_PROXY"] = pip["proxy"][0]


def run(
    door: Door,
    argv: Sequence[str],
    made: Settings,
    hear: Callable[[str], None] = lambda line: None,
    deadline: float = DEADLINE,
    env: dict[str, str | None] | None = None,
) -> Ran:
    """Run uv until it ends or the deadline; its process group never outlives us. ``on_line`` gets each stderr line."""
    return follow(door, (*argv, *made.flags), hear, deadline, made.env | (env or {}))
