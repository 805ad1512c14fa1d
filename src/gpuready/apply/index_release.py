"""A release on the user's index: which version an index has, and what that version requires, its files. No code is run."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from gpuready.apply import resolution_cache, uv
from gpuready.apply.resolution_request import ResolutionRequest, format_stated_metadata
from gpuready.apply.uv import UvSettings
from gpuready.apply.uv_config import parse_toml
from gpuready.apply.uv_output import InconclusiveResolution, parse_uv_failure
from gpuready.model import Record, validation, versions
from gpuready.model.metadata import parse_metadata
from gpuready.model.plan import PlanConflict
from gpuready.system import AccessError, HostAccess, RunResult, save_atomically
from gpuready.system.download import unquote_url
from gpuready.system.own_folders import TemporaryFolder
from gpuready.system.process.runner import unredacted_variables
from gpuready.system.release_metadata import SearchedCode, fetch_release_metadata, search_release

DEADLINE = 60.0


class IndexRelease(Record):
    """One release: its version, what its own metadata requires, whether it has a wheel, and the day of its upload."""

    name: str
    version: str
    requires_dist: tuple[str, ...] = ()
    requires_python: str = ""
    has_wheel: bool = True
    uploaded: str = ""  # 2024-02-01; empty where the index does not say
    pythons: tuple[str, ...] = ()  # those that it has wheels for, where it has no other
    url: str = ""  # of the file that was read


def find_index_release(
    host: HostAccess, name: str, specifier: str, python: str, settings: uv.UvSettings, platform: str = ""
) -> IndexRelease | None:
    """Return the newest release inside a specifier with its own metadata; None where no index can say."""
    try:
        return read_index_release(host, name, specifier, python, settings, platform)
    except (AccessError, ValueError, LookupError):
        return None


def read_index_release(
    host: HostAccess, name: str, specifier: str, python: str, settings: uv.UvSettings, platform: str = ""
) -> IndexRelease:
    """Return the same; where there is none, ValueError says whether an index could not be read or has none.

    ``platform``: as the resolver calls it; without one, whether it has a wheel is said for this machine.
    """
    request = ResolutionRequest((f"{name}{specifier}",), {}, {}, (), python, platform)
    key = resolution_cache.resolution_cache_key(
        host, ("release with its address", name, specifier, python, platform), settings
    )
    cached = resolution_cache.load_cached_answer(host, key)
    if cached is not None:
        try:
            return validation.parse_record(IndexRelease, cached["release"])
        except (ValueError, KeyError, TypeError):
            pass
    release = _read_release(host, _locate_release(host, name, request, settings), settings)
    resolution_cache.store_answer(host, key, {"release": release.to_json()})
    return release


def _locate_release(host: HostAccess, name: str, request: ResolutionRequest, settings: uv.UvSettings) -> dict[str, Any]:
    """Ask uv for the files of a release. Its metadata is stated as empty, so that nothing is built to learn it."""
    flags = ["--no-deps", "--python-version", request.python, "--no-header"]
    flags += ["--python-platform", request.platform] if request.platform else []
    stated = format_stated_metadata([name], {})
    found = ask_for_files(host, request, flags, settings, deadline=DEADLINE, config=stated)
    if isinstance(found, list):
        return next(row for row in found if isinstance(row.get("version"), str))
    answer = parse_uv_failure(found.err or found.end, name, {})
    if isinstance(answer, InconclusiveResolution) and answer.cause and answer.cause.kind.startswith("index-"):
        raise ValueError(answer.why)
    if isinstance(answer, PlanConflict):
        raise ValueError(f"the index has {name}, and none of its files is for this: {answer.says}")
    is_offline = any(words in found.err for words in ("network was disabled", "not found in the cache"))
    raise ValueError("uv is offline, and its cache lacks it" if is_offline else f"no index has a package {name!r}")


def ask_for_files(
    host: HostAccess, request: ResolutionRequest, flags: Iterable[str], settings: uv.UvSettings, **options: Any
) -> list[dict[str, Any]] | RunResult:
    """Return the packages of uv's answer to a request, each with its files; how uv ended where it gives none."""
    with TemporaryFolder(unredacted_variables(host)) as folder:
        save_atomically(f"{folder}/pyproject.toml", request.format_project())
        argv = [uv.find_uv(host), "pip", "compile", f"{folder}/pyproject.toml", "--format", "pylock.toml", *flags]
        argv += ["--python", host.get_interpreter()["executable"], "-q", "-o", f"{folder}/pylock.toml"]
        ran = uv.run_uv(host, argv, settings, **options)
        text = host.read_text(f"{folder}/pylock.toml", 64 << 20) if ran.rc == 0 else None
    if text is None:
        return ran
    packages = parse_toml(text).get("packages", ())
    return [row for row in packages if isinstance(row, dict) and isinstance(row.get("name"), str)]


def _read_release(host: HostAccess, listed: dict[str, Any], settings: uv.UvSettings) -> IndexRelease:
    wheels = [one for one in listed.get("wheels", ()) if isinstance(one, dict)]
    entry = wheels[0] if wheels else listed["sdist"]
    url = parse_file_entry(entry)[1]
    found = parse_metadata(
        fetch_release_metadata(url, index_authorization(url, settings), _find_cafile(host, settings))
    )
    return IndexRelease(
        name=str(listed["name"]),
        version=str(listed["version"]),
        requires_dist=found["requires_dist"],
        requires_python=found["requires_python"] or "",
        has_wheel=bool(wheels),
        uploaded=str(entry.get("upload-time") or "")[:10],
        pythons=() if "sdist" in listed else _list_wheel_pythons(wheels),
        url=url,
    )


def search_code(host: HostAccess, release: IndexRelease, settings: UvSettings, what: SearchedCode) -> str | None:
    """Return the first file of a release whose code has something; empty for none, None where it cannot be read."""
    auth, cafile = index_authorization(release.url, settings), _find_cafile(host, settings)
    return search_release(release.url, what, auth, cafile) if release.url else ""


def _find_cafile(host: HostAccess, settings: UvSettings) -> str:
    return settings.env.get("SSL_CERT_FILE") or unredacted_variables(host).get("SSL_CERT_FILE", "")


def _list_wheel_pythons(wheels: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the Pythons of wheels that are all for one each: ``x-1.0-cp312-cp312-manylinux_2_28_x86_64.whl``."""
    tags = [parse_file_entry(one)[0].removesuffix(".whl").split("-")[-3:-1] for one in wheels]
    if not all(tag[0].startswith("cp3") and tag[1] == tag[0] for tag in tags):
        return ()
    return tuple(sorted({f"3.{tag[0][3:]}" for tag in tags}, key=versions.parse_release))


def parse_file_entry(entry: dict[str, Any]) -> tuple[str, str, int, str]:
    """Return name, address, size (0 if unknown) and hash of a file in a pylock."""
    url = str(entry.get("url") or entry.get("path") or "")
    url = unquote_url(url.removeprefix("file://")) if url.startswith("file://") else url
    name = str(entry.get("name") or unquote_url(url.partition("#")[0].rpartition("/")[2]))
    digest = (entry.get("hashes") or {}).get("sha256", "")
    size = entry.get("size")
    if "/" in name or name.startswith("."):
        raise ValueError(f"the index calls a file {name[:60]!r}, which is not a valid file name")
    return name, url, size if isinstance(size, int) else 0, f"sha256:{digest}"


def index_authorization(url: str, settings: UvSettings) -> str:
    """Return the login of the user's own index, for a file on the same host."""
    host = url.partition("://")[2].partition("/")[0]
    for known in (settings.env.get("UV_DEFAULT_INDEX") or "", *settings.extra):
        login, at, at_host = known.partition("://")[2].partition("/")[0].rpartition("@")
        if at and at_host == host:
            return f"Basic {b64encode(login.encode()).decode()}"
    return ""
