"""Where poetry and hatch keep the environment of a project, by their documented settings; neither is run."""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from hashlib import sha256

from gpuready.catalog.packages import canonical_package_name
from gpuready.probe.fact_helpers import read_if_present
from gpuready.system import HostAccess


def list_project_prefixes(host: HostAccess, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the folders in which an environment of this project may lie, and of which tool."""
    text = read_if_present(host.read_text, f"{folder}/pyproject.toml") or ""
    if "[tool.poetry" in text or "poetry.core" in text or read_if_present(host.stat_path, f"{folder}/poetry.lock"):
        for prefix in _poetry_prefixes(host, folder, text):
            yield prefix, "poetry project"
    yield _hatch_prefix(host, folder, text), "hatch project"


def read_toml_string(text: str, table: str, key: str) -> str:
    """Return a string of a table, such as ``name = "app"`` below ``[project]``; tomllib costs more than a check may."""
    is_inside = not table
    for line in text.splitlines():
        row = line.strip()
        if row.startswith("["):
            is_inside = row.partition("#")[0].strip() == f"[{table}]"
        name, equals, value = row.partition("=")
        if is_inside and equals and name.strip().strip('"') == key:
            quoted = value.strip()
            return quoted[1:].partition(quoted[0])[0] if quoted[:1] in ("'", '"') else ""
    return ""


def _path_id(path: str) -> str:
    """The 8 letters by which both tools know a folder: urlsafe base64 of its SHA-256."""
    digest = binascii.b2a_base64(sha256(path.encode("utf-8", "surrogateescape")).digest()).decode()
    return digest.replace("+", "-").replace("/", "_")[:8]


def _user_folder(host: HostAccess, variable: str, below_home: str, name: str) -> str:
    base = read_if_present(host.get_env_var, variable)
    home = read_if_present(host.get_env_var, "HOME") or ""
    return f"{base or f'{home}/{below_home}'}/{name}"


def _expand_home(host: HostAccess, path: str) -> str:
    home = read_if_present(host.get_env_var, "HOME") or ""
    return home + path[1:] if path.startswith("~/") else path


# -- poetry -------------------------------------------------------------------------------------------


def _poetry_prefixes(host: HostAccess, folder: str, text: str) -> list[str]:
    """``{virtualenvs.path}/NAME-ID-py3.12``; envs.toml says which Python was chosen, else the newest."""
    name = read_toml_string(text, "project", "name") or read_toml_string(text, "tool.poetry", "name")
    real = read_if_present(host.resolve_path, folder, default=folder)
    start = f"{canonical_package_name(name or 'non-package-mode')[:42]}-{_path_id(real)}"
    where = _poetry_virtualenvs(host, folder)
    chosen = read_toml_string(read_if_present(host.read_text, f"{where}/envs.toml") or "", start, "minor")
    found = [name for name in read_if_present(host.list_directory, where) or () if name.startswith(f"{start}-py")]
    found.sort(key=lambda name: (name == f"{start}-py{chosen}", len(name), name), reverse=True)
    return [f"{where}/{name}" for name in found]


def _poetry_virtualenvs(host: HostAccess, folder: str) -> str:
    path = _poetry_setting(host, folder, "POETRY_VIRTUALENVS_PATH", "virtualenvs", "path") or "{cache-dir}/virtualenvs"
    if "{cache-dir}" in path:
        default = _user_folder(host, "XDG_CACHE_HOME", ".cache", "pypoetry")
        cache = _poetry_setting(host, folder, "POETRY_CACHE_DIR", "", "cache-dir") or default
        path = path.replace("{cache-dir}", cache)
    path = path.replace("{project-dir}", folder)
    return _expand_home(host, path).rstrip("/")


def _poetry_setting(host: HostAccess, folder: str, variable: str, table: str, key: str) -> str:
    """A setting of poetry: the variable, else poetry.toml of the project, else config.toml of the user."""
    value: str = read_if_present(host.get_env_var, variable) or ""
    default = _user_folder(host, "XDG_CONFIG_HOME", ".config", "pypoetry")
    user = read_if_present(host.get_env_var, "POETRY_CONFIG_DIR") or default
    for file in (f"{folder}/poetry.toml", f"{user}/config.toml"):
        text = "" if value else read_if_present(host.read_text, file) or ""
        value = value or read_toml_string(text, table, key)
    return value


# -- hatch --------------------------------------------------------------------------------------------


def _hatch_prefix(host: HostAccess, folder: str, text: str) -> str:
    """``{data}/env/virtual/PROJECT/ID/PROJECT``, or the path that the project gives its default environment."""
    configured = _hatch_path(host, folder, text)
    if configured:
        return configured if configured.startswith("/") else f"{folder}/{configured}"
    where = _hatch_environments(host, folder)
    named = read_toml_string(text, "project", "name")
    own_id = _path_id(folder)
    project = canonical_package_name(named) if named else f"{own_id}-unmanaged"
    environment = read_if_present(host.get_env_var, "HATCH_ENV") or "default"
    name = project if environment == "default" else environment
    is_flat = where.startswith(f"{folder}/") or where == _expand_home(host, "~/.virtualenvs")
    return f"{where}/{name}" if is_flat else f"{where}/{project}/{own_id}/{name}"


def _hatch_path(host: HostAccess, folder: str, text: str) -> str:
    own = read_if_present(host.read_text, f"{folder}/hatch.toml") or ""
    variable: str = read_if_present(host.get_env_var, "HATCH_ENV_TYPE_VIRTUAL_PATH") or ""
    return (
        variable
        or read_toml_string(text, "tool.hatch.envs.default", "path")
        or read_toml_string(own, "envs.default", "path")
    )


def _hatch_environments(host: HostAccess, folder: str) -> str:
    """The folder of all its virtual environments; config.toml may name it, relative to the project."""
    default = _user_folder(host, "XDG_CONFIG_HOME", ".config", "hatch/config.toml")
    config = read_if_present(host.read_text, read_if_present(host.get_env_var, "HATCH_CONFIG") or default) or ""
    configured = _expand_home(host, read_toml_string(config, "dirs.env", "virtual"))
    if configured:
        return configured if configured.startswith("/") else f"{folder}/{configured}"
    data = read_if_present(host.get_env_var, "HATCH_DATA_DIR") or read_toml_string(config, "dirs", "data")
    data = data or _user_folder(host, "XDG_DATA_HOME", ".local/share", "hatch")
    return f"{_expand_home(host, data)}/env/virtual"
