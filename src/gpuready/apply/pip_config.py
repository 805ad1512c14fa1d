"""Settings in pip's configuration files, as far as they matter here."""

from __future__ import annotations

from collections.abc import Iterator
from configparser import Error, RawConfigParser

from gpuready.system import AccessError, HostAccess
from gpuready.system.process.runner import unredacted_variables

LIST_KEYS = ("find-links", "extra-index-url", "trusted-host")
PIP_KEYS = (*LIST_KEYS, "index-url", "cert", "client-cert", "proxy", "no-index")
_LARGEST = 1 << 20


def read_pip_settings(host: HostAccess) -> dict[str, tuple[str, ...]]:
    """Return pip's settings: files from the widest scope on, then the environment; later ones win per key."""
    environment = unredacted_variables(host)
    settings: dict[str, tuple[str, ...]] = {}
    for path in _list_pip_configs(host, environment):
        settings |= _parse_pip_config(_read_config(host, path))
    for key in PIP_KEYS:
        value = environment.get("PIP_" + key.upper().replace("-", "_"), "")
        if value.strip():
            settings[key] = _split_value(key, value)
    return settings


def _list_pip_configs(host: HostAccess, environment: dict[str, str]) -> Iterator[str]:
    explicit_file = environment.get("PIP_CONFIG_FILE", "")
    if explicit_file == "/dev/null":  # pip's convention for: read none
        return
    home, prefix = environment.get("HOME", ""), host.get_interpreter().get("prefix", "")
    shared_folders = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    yield from (f"{folder}/pip/pip.conf" for folder in reversed(shared_folders.split(":")) if folder)
    yield "/etc/pip.conf"
    if home:
        yield f"{home}/.pip/pip.conf"
        yield f"{environment.get('XDG_CONFIG_HOME') or home + '/.config'}/pip/pip.conf"
    if prefix:
        yield f"{prefix}/pip.conf"
    if explicit_file:
        yield explicit_file


def _read_config(host: HostAccess, path: str) -> str:
    try:
        return host.read_text(path, _LARGEST) or ""
    except AccessError:  # pip also ignores a file that it cannot read
        return ""


def _parse_pip_config(text: str) -> dict[str, tuple[str, ...]]:
    parser = RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except (Error, ValueError):
        return {}
    settings: dict[str, tuple[str, ...]] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            rows = ((key.replace("_", "-"), value) for key, value in parser.items(section))
            settings |= {key: _split_value(key, value) for key, value in rows if key in PIP_KEYS and value.strip()}
    return settings


def _split_value(key: str, value: str) -> tuple[str, ...]:
    return tuple(value.split()) if key in LIST_KEYS else (value.strip(),)
