"""Settings of a project: ``gpuready.toml``, or ``[tool.gpuready]`` in pyproject.toml, of the current folder alone.

The command line reads them, no other face does. They may come from a stranger's repository: no setting runs anything,
names an index or gives consent, and ``python`` is an environment inside the folder whose files tell its version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready import system
from gpuready.contracts.toml import decode_toml
from gpuready.model import Fact
from gpuready.model.record import Record, field
from gpuready.probe.fact_helpers import read_if_present
from gpuready.probe.target_environment import parse_pyvenv_config
from gpuready.rules import list_codes
from gpuready.workflow.refusal import Refused, call_or_refuse, suggest_nearest

OWN_FILE, PROJECT_FILE, PROJECT_TABLE = "gpuready.toml", "pyproject.toml", "[tool.gpuready"
KNOWN_SETTINGS = ("framework", "python", "ignore", "strict")
_MAX_BYTES = 1 << 20


class Settings(Record):
    """The settings of one file; ``applied`` are those that the command line did not override."""

    path: str
    framework: tuple[str, ...] = ()
    python: str = ""
    ignore: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    applied: tuple[str, ...] = ()

    def to_facts(self) -> list[Fact]:
        """Return the facts by which a report names the file and what was taken from it."""
        stated: dict[str, Any] = {"settings.file": self.path, "settings.applied": self.applied}
        if "python" in self.applied:
            stated["python.chosen_by"] = self.path
        return [Fact(key, value, self.path, "stated") for key, value in stated.items()]


def read_settings() -> Settings | None:
    """Read the settings of the current folder; None where it has none. Refused, in one sentence, where one is wrong."""
    host = system.LiveHost()
    for path in (OWN_FILE, PROJECT_FILE):
        if call_or_refuse(host.stat_path, path) is None:
            continue
        text = _read_settings_text(host, path)
        if path == OWN_FILE or PROJECT_TABLE in text:
            return _parse_settings(host, path, text)
    return None


def _read_settings_text(host: system.LiveHost, path: str) -> str:
    try:
        text = host.read_text(path, _MAX_BYTES + 1) or ""
    except system.AccessError as error:
        raise Refused(f"cannot read {path}: {error}") from None
    if len(text) > _MAX_BYTES:
        raise Refused(f"{path} is larger than 1 MiB, which no settings file is")
    return text


def _parse_settings(host: system.LiveHost, path: str, text: str) -> Settings:
    data: Any = call_or_refuse(decode_toml, text, path, "settings file")
    if path == PROJECT_FILE:
        tools = data.get("tool")
        data = tools.get("gpuready", {}) if isinstance(tools, dict) else {}
    if not isinstance(data, dict):
        raise Refused(f"{path}: tool.gpuready must be a table")
    for name in data:
        if name not in KNOWN_SETTINGS:
            known = f"{suggest_nearest(name, KNOWN_SETTINGS)}; the settings are {', '.join(KNOWN_SETTINGS)}"
            raise Refused(f"{path} has a setting {name!r} that gpuready does not know{known}")
    return Settings(
        path,
        _parse_frameworks(path, data.get("framework", [])),
        _parse_python(host, path, data["python"]) if "python" in data else "",
        _parse_ignored(path, data.get("ignore", {})),
        _parse_strict(path, data.get("strict", False)),
    )


def _parse_frameworks(path: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise Refused(f'{path}: framework must be a name or a list of names, such as "axolotl"')
    return tuple(names)


def _parse_strict(path: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{path}: strict must be true or false")
    return value


def _parse_ignored(path: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(reason, str) and reason.strip() for reason in value.values()):
        raise Refused(f'{path}: ignore must give each code a reason: ignore = {{ NET001 = "one node only" }}')
    if not value:
        return {}
    codes = list_codes()
    for code in value:
        if code.upper() not in codes:
            raise Refused(f"{path}: ignore has {code!r}, and no rule has that code{suggest_nearest(code, codes)}")
    return {code.upper(): reason for code, reason in value.items()}


def _parse_python(host: system.LiveHost, path: str, value: Any) -> str:
    """Return the folder of an environment inside the current folder, whose version can be read: nothing is run."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise Refused(f'{path}: python must be the folder of an environment, such as ".venv"')
    folder = value.rstrip("/")
    for tail in ("/bin/python", "/bin/python3"):
        folder = folder.removesuffix(tail)
    here = call_or_refuse(host.get_cwd)
    if not call_or_refuse(host.resolve_path, folder).startswith(call_or_refuse(host.resolve_path, here) + "/"):
        raise Refused(f"{path}: python must lie inside this folder, and {value!r} does not; use --python for another")
    if not _states_version(host, folder):
        raise Refused(
            f"{path}: python {value!r} is not a virtual or conda environment that states its version in a file"
        )
    return folder


def _states_version(host: system.LiveHost, folder: str) -> bool:
    """Whether pyvenv.cfg or conda-meta tells the version, so that the interpreter need not be run."""
    config = parse_pyvenv_config(read_if_present(host.read_text, f"{folder}/pyvenv.cfg") or "")
    if (config.get("version") or config.get("version_info") or "")[:1].isdigit():
        return True
    names = read_if_present(host.list_directory, f"{folder}/conda-meta") or ()
    return not config and any(name.startswith("python-") and name.count("-") == 2 for name in names)
