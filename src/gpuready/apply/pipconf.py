"""Settings in pip's and uv's configuration files, as far as they matter here."""

from __future__ import annotations

from gpuready.system import Blind
from gpuready.system.follow import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuready.system import Door

LISTS = ("find-links", "extra-index-url", "trusted-host")
KEYS = (*LISTS, "index-url", "cert", "client-cert", "proxy", "no-index")
_LARGEST = 1 << 20


def told(door: Door) -> dict[str, tuple[str, ...]]:
    """Return pip's settings: files from the widest scope on, then the environment; later ones win per key."""
    ours = variables(door)
    found: dict[str, tuple[str, ...]] = {}
    for path in _pip_files(door, ours):
        found |= _ini(_text(door, path))
    for key in KEYS:
        value = ours.get("PIP_" + key.upper().replace("-", "_"), "")
        if value.strip():
            found[key] = _values(key, value)
    return found


def _pip_files(door: Door, ours: dict[str, str]) -> Iterator[str]:
    named = ours.get("PIP_CONFIG_FILE", "")
    if named == "/dev/null":  # pip's convention for: read none
        return
    home, prefix = ours.get("HOME", ""), door.interpreter().get("prefix", "")
    wide = ours.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    yield from (f"{folder}/pip/pip.conf" for folder in reversed(wide.split(":")) if folder)
    yield "/etc/pip.conf"
    if home:
        yield f"{home}/.pip/pip.conf"
        yield f"{ours.get('XDG_CONFIG_HOME') or home + '/.config'}/pip/pip.conf"
    if prefix:
        yield f"{prefix}/pip.conf"
    if named:
        yield named


def _text(door: Door, path: str) -> str:
    try:
        return door.read(path, _LARGEST) or ""
    except Blind:  # pip also ignores a file that it cannot read
        return ""


def _ini(text: str) -> dict[str, tuple[str, ...]]:
    from configparser import Error, RawConfigParser

    parser = RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except (Error, ValueError):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            rows = ((key.replace("_", "-"), value) for key, value in parser.items(section))
            found |= {key: _values(key, value) for key, value in rows if key in KEYS and value.strip()}
    return found


def _values(key: str, value: str) -> tuple[str, ...]:
    return tuple(value.split()) if key in LISTS else (value.strip(),)


def uv_has(door: Door, *keys: str) -> bool:
    """Whether one of uv's configuration files sets any of these keys."""
    return any(key in table for table in _uv_tables(door) for key in keys)


def _uv_tables(door: Door) -> Iterator[dict[str, Any]]:
    ours = variables(door)
    if ours.get("UV_NO_CONFIG"):
        return
    if ours.get("UV_CONFIG_FILE"):
        yield from _tables(_toml(_text(door, ours["UV_CONFIG_FILE"])))
        return
    folder = door.cwd()
    while folder:
        yield from _tables(_toml(_text(door, f"{folder}/uv.toml")))
        project = _toml(_text(door, f"{folder}/pyproject.toml")).get("tool", {})
        yield from _tables(project.get("uv", {}) if isinstance(project, dict) else {})
        folder = folder.rpartition("/")[0]
    home = ours.get("XDG_CONFIG_HOME") or ours.get("HOME", "") + "/.config"
    for path in (f"{home}/uv/uv.toml", "/etc/xdg/uv/uv.toml", "/etc/uv/uv.toml"):
        yield from _tables(_toml(_text(door, path)))


def _tables(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
        if isinstance(data.get("pip"), dict):
            yield data["pip"]


def _toml(text: str) -> dict[str, Any]:
    import sys
    from importlib import import_module

    if not text:
        return {}
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        found: dict[str, Any] = toml.loads(text)
    except (ValueError, RecursionError):  # uv itself reports what is wrong with it
        return {}
    return found
