"""uv's configuration: which files are honoured, the folder that uv runs in, and the indexes that are configured.

The user's and the system's settings count. Those of the current folder may be a stranger's, and could name an index, a
cache or a target: they count only where that was asked for.
"""

import sys
from collections.abc import Iterator
from configparser import Error, RawConfigParser
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from gpuready.apply.install_errors import format_os_error
from gpuready.system import AccessError, HostAccess
from gpuready.system.own_folders import TemporaryFolder, write_scratch_file
from gpuready.system.process.runner import unredacted_variables

_MAX_BYTES = 1 << 20
_INDEX_KEYS = ("index-url", "extra-index-url", "index")
_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
_PATH_VARIABLES = (
    "UV_CACHE_DIR", "UV_CONFIG_FILE", "UV_CREDENTIALS_DIR", "UV_PYTHON_INSTALL_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "SSL_CLIENT_CERT", "NETRC",
)  # fmt: skip
_LIST_VARIABLES = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_BUILD_CONSTRAINT", "UV_EXCLUDE")
_ROOT_PROJECT = '[project]\nname = "gpuready-folder"\nversion = "0"\n\n[tool.uv.workspace]\n'


@contextmanager
def private_folder(host: HostAccess, config: str = "") -> Iterator[str]:
    """A folder where uv finds these settings, the user's and the system's only: the search upwards ends in it."""
    with TemporaryFolder(unredacted_variables(host)) as folder:
        try:
            write_scratch_file(f"{folder}/uv.toml", config.encode())
            write_scratch_file(f"{folder}/pyproject.toml", _ROOT_PROJECT.encode())
        except OSError as error:
            raise AccessError(f"no settings for uv can be written in {folder}: {format_os_error(error)}") from None
        yield folder


def absolute_variables(environment: dict[str, str], cwd: str) -> dict[str, str]:
    """Return variables with relative paths as absolute ones: uv runs in another folder."""
    found = {}
    for name in (*_PATH_VARIABLES, *_LIST_VARIABLES, *_INDEX_VARIABLES):
        text = environment.get(name, "")
        words = [text] if name in _PATH_VARIABLES else text.split()
        absolute = " ".join(_absolute_word(word, cwd, name in _INDEX_VARIABLES) for word in words)
        if absolute and absolute != " ".join(words):
            found[name] = absolute
    return found


def _absolute_word(word: str, cwd: str, is_index: bool) -> str:
    if is_index:
        name, path = _split_index_name(word)
        return f"{name}{cwd}/{path.removeprefix('./')}" if path.startswith(".") else word
    return f"{cwd}/{word.removeprefix('./')}" if word and not word.startswith(("/", "~")) else word


def _split_index_name(word: str) -> tuple[str, str]:
    """``corp=https://host/simple`` -> ``corp=`` and the address."""
    name, equals, rest = word.partition("=")
    return (name + equals, rest) if equals and "/" not in name else ("", word)


def uv_config_sets(host: HostAccess, use_project: bool, *keys: str) -> bool:
    """Whether one of uv's configuration files sets any of these keys."""
    return any(key in table for _, table in _read_uv_tables(host, use_project) for key in keys)


def read_uv_configs(host: HostAccess, use_project: bool) -> list[str]:
    """Return the texts of uv's configuration files that apply."""
    return [_read_config(host, path) for path in _list_uv_configs(host, use_project)]


def list_configured_indexes(host: HostAccess, use_project: bool) -> dict[str, str]:
    """Map the address of each configured index, without its login, to the file or variable that names it."""
    environment, found = unredacted_variables(host), dict[str, str]()
    for name in _INDEX_VARIABLES:
        for word in environment.get(name, "").split():
            found.setdefault(_plain_address(_split_index_name(word)[1], host), name)
    for path, table in _read_uv_tables(host, use_project):
        for address in _table_indexes(table):
            found.setdefault(_plain_address(address, host), path)
    return found


def _table_indexes(table: dict[str, Any]) -> Iterator[str]:
    for key in _INDEX_KEYS:
        value = table.get(key)
        for one in value if isinstance(value, list) else [value]:
            address = one.get("url") if isinstance(one, dict) else one
            if isinstance(address, str) and address:
                yield address


def _plain_address(address: str, host: HostAccess) -> str:
    path = f"{host.get_cwd()}/{address.removeprefix('./')}" if address.startswith(".") else address
    return strip_login(path).removeprefix("file://").rstrip("/")


def strip_login(url: str) -> str:
    """Return an address without user and password."""
    scheme, sep, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}" if sep else url


def split_index_login(url: str, name: str) -> tuple[str, dict[str, str | None]]:
    """Split an address from its password, which uv gets by variables."""
    scheme, sep, rest = url.partition("://")
    login, at, host = rest.partition("/")[0].rpartition("@")
    if not sep or not at:
        return url, {}
    user, _, password = login.partition(":")
    env: dict[str, str | None] = {f"UV_INDEX_{name}_USERNAME": user, f"UV_INDEX_{name}_PASSWORD": password}
    return f"{scheme}://{host}{rest[len(rest.partition('/')[0]) :]}", env


def describe_project_settings(host: HostAccess) -> str:
    """Return which files of the project rule uv, and what they set."""
    parts = []
    for path in _list_project_configs(host):
        keys = sorted({key for table in _settings_tables(_uv_table(host, path)) for key in table} - {"pip"})
        parts += [f"{path} ({', '.join(keys)})"] if keys else []
    return "; ".join(parts)


# -- files --------------------------------------------------------------------------------------------------


def _list_project_configs(host: HostAccess) -> Iterator[str]:
    folder = host.get_cwd()
    while folder:
        yield from (f"{folder}/uv.toml", f"{folder}/pyproject.toml")
        folder = folder.rpartition("/")[0]


def _list_uv_configs(host: HostAccess, use_project: bool) -> Iterator[str]:
    environment = unredacted_variables(host)
    if environment.get("UV_NO_CONFIG"):
        return
    if environment.get("UV_CONFIG_FILE"):
        yield environment["UV_CONFIG_FILE"]
        return
    if use_project:
        yield from _list_project_configs(host)
    home = environment.get("XDG_CONFIG_HOME") or environment.get("HOME", "") + "/.config"
    shared_folders = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    yield from (f"{folder}/uv/uv.toml" for folder in (home, *shared_folders.split(":"), "/etc") if folder)


def _read_uv_tables(host: HostAccess, use_project: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in _list_uv_configs(host, use_project):
        for table in _settings_tables(_uv_table(host, path)):
            yield path, table


def _uv_table(host: HostAccess, path: str) -> Any:
    data = parse_toml(_read_config(host, path))
    if not path.endswith("/pyproject.toml"):
        return data
    tools = data.get("tool")
    return tools.get("uv") if isinstance(tools, dict) else None


def _settings_tables(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
        if isinstance(data.get("pip"), dict):
            yield data["pip"]


def _read_config(host: HostAccess, path: str) -> str:
    try:
        return host.read_text(path, _MAX_BYTES) or ""
    except AccessError:
        return ""


def parse_toml(text: str) -> dict[str, Any]:
    """Decode TOML; empty where it is none: uv itself reports what is wrong with it."""
    if not text:
        return {}
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        table: dict[str, Any] = toml.loads(text)
    except (ValueError, RecursionError):
        return {}
    return table


LIST_KEYS = ("find-links", "extra-index-url", "trusted-host")
PIP_KEYS = (*LIST_KEYS, "index-url", "cert", "client-cert", "proxy", "no-index")


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
