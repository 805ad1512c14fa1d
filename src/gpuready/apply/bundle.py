"""The offline bundle: every wheel of a lock in one folder, for a machine without network."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from gpuready.apply import uv, uv_output
from gpuready.apply.index_release import ask_for_files, index_authorization, parse_file_entry
from gpuready.apply.install_steps import format_lock_requirements
from gpuready.apply.resolution_request import FOLDER_INDEX, ResolutionRequest, python_minor_version
from gpuready.apply.source_checkout import read_build_requirements
from gpuready.apply.uv_config import split_index_login
from gpuready.apply.wheel_search import find_folder_wheels
from gpuready.catalog import indexes
from gpuready.catalog.packages import canonical_package_name
from gpuready.model import SCHEMA
from gpuready.model.plan import LockedPackage, Plan
from gpuready.model.versions import major_minor
from gpuready.model.visible_text import escape_lines
from gpuready.system import AccessError, HostAccess, save_atomically
from gpuready.system.download import download_file, ensure_folder, publish_folder, sha256_of_file

LOCK_FILE, REQUIREMENTS_FILE, README_FILE = "gpuready.lock", "requirements.txt", "README.txt"


def write_bundle(
    host: HostAccess,
    plan: Plan,
    path: str,
    *,
    find_links: tuple[str, ...] = (),
    offline: bool = False,
    use_project_config: bool = False,
    note: Callable[..., None] = lambda *_: None,
) -> tuple[str, ...]:
    """Fill a folder atomically; return notes about it.

    An interrupted call can be resumed: intact files are kept. ValueError or AccessError, in a sentence, if it
    cannot be done.
    """
    if not plan.lock:
        raise ValueError(f"there is nothing to bundle: the plan is {plan.resolved or 'not resolved'}")
    path = path if path.startswith("/") else f"{host.get_cwd()}/{path}"
    path = path.rstrip("/")
    lock = format_lock_file(plan)
    if host.list_directory(path):
        if host.read_text(f"{path}/{LOCK_FILE}", 64 << 20) == lock:
            return (f"{path} has this bundle already",)
        raise ValueError(f"{path} is there and holds something else: name another folder, or remove it")
    parent, _, name = path.rpartition("/")
    draft = f"{parent}/.{name}.part"
    ensure_folder(draft)
    settings = uv.make_uv_settings(host, find_links, offline, use_project_config)
    notes = list(_fetch_files(host, plan, draft, settings, note))
    _fetch_build_requirements(host, plan, draft, settings)
    save_atomically(f"{draft}/{LOCK_FILE}", lock, private=False)
    save_atomically(f"{draft}/{REQUIREMENTS_FILE}", format_lock_requirements(plan.lock), private=False)
    save_atomically(f"{draft}/{README_FILE}", _format_readme(plan, name, notes), private=False)
    publish_folder(draft, path)
    return tuple(notes)


def format_lock_file(plan: Plan) -> str:
    """Format the lock as a file."""
    body = {"schema": SCHEMA, "kind": "lock"} | plan.replace(indexes={}).to_json()
    return json.dumps(body, indent=1) + "\n"


def _fetch_files(
    host: HostAccess, plan: Plan, draft: str, settings: uv.UvSettings, note: Callable[..., None]
) -> Iterator[str]:
    files = locate_files(host, plan, settings)
    _require_free_space(host, draft, sum(size for _, _, size in files.values()))
    for at, row in enumerate(plan.lock):
        file, url, _ = files[row.name]
        note(f"fetching {file}", at, len(plan.lock))
        if not file.endswith(".whl"):
            yield f"{row.name} {row.version} has no wheel for this target: {file} is its source, to be built there (--allow-build)"
        path = f"{draft}/{file}"
        if sha256_of_file(path) in row.hashes:
            continue
        cafile = settings.env.get("SSL_CERT_FILE") or ""
        try:
            download_file(url, path, row.hashes, index_authorization(url, settings), cafile)
        except AccessError as error:
            raise ValueError(f"{file} cannot be fetched: {error}; what is there is kept, so run it again") from None


def _require_free_space(host: HostAccess, path: str, size: int) -> None:
    disk = host.get_disk_space(path)
    if disk is not None and disk["free"] < size:
        raise ValueError(f"the bundle needs {size >> 20} MiB, and {path} has room for {disk['free'] >> 20}")


def locate_files(host: HostAccess, plan: Plan, settings: uv.UvSettings) -> dict[str, tuple[str, str, int]]:
    """Find the file of each row for the plan's target: name, address, and size (0 if unknown)."""
    ranks = rank_target_tags(plan.python, plan.platform)
    request, env = _lock_request(host, plan, settings)
    answer = _ask_pylock(host, plan, request, settings, env, ("--no-deps",))
    listed = {canonical_package_name(package["name"]): package for package in answer}
    files = {}
    for row in plan.lock:
        if row.name not in listed:
            raise ValueError(f"uv says nothing of where {row.name} {row.version} is: make the plan again")
        files[row.name] = _choose_file(row, listed[row.name], ranks)
    return files


def _ask_pylock(
    host: HostAccess,
    plan: Plan,
    request: ResolutionRequest,
    settings: uv.UvSettings,
    env: dict[str, str | None],
    flags: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Ask uv under the rules of the resolution; ValueError where it finds no files."""
    flags = (*flags, *request.uv_flags(bool(plan.options.get("allow-build")), annotate=False))
    found = ask_for_files(host, request, flags, settings, env=env)
    if isinstance(found, list):
        return found
    names = {url: name for name, url in request.addresses.items()}
    failure = uv_output.parse_uv_failure(found.err or found.end, plan.framework, names)
    why = getattr(failure, "why", "") or getattr(failure, "says", "")
    raise ValueError(f"the files of the lock cannot be found: {why}")


def _fetch_build_requirements(host: HostAccess, plan: Plan, draft: str, settings: uv.UvSettings) -> None:
    """Fetch what the sources in a bundle are built with, such as setuptools: offline nothing else brings it."""
    archives = [name for name in host.list_directory(draft) or () if name.endswith((".tar.gz", ".zip"))]
    requires = sorted({one for name in archives for one in read_build_requirements(f"{draft}/{name}")})
    if not requires:
        return
    minor = python_minor_version(plan.python)
    request = ResolutionRequest(tuple(requires), {}, {}, (), minor, plan.platform)
    ranks = rank_target_tags(plan.python, plan.platform)
    for package in _ask_pylock(host, plan, request, settings, {}):
        files = [parse_file_entry(one) for one in package.get("wheels", ()) if isinstance(one, dict)]
        hashes = tuple(digest for *_, digest in files)
        row = LockedPackage(package["name"], str(package.get("version", "")), hashes)
        name, url, _ = _choose_file(row, package, ranks)
        if sha256_of_file(f"{draft}/{name}") not in hashes:
            cafile = settings.env.get("SSL_CERT_FILE") or ""
            download_file(url, f"{draft}/{name}", hashes, index_authorization(url, settings), cafile)


def _lock_request(
    host: HostAccess, plan: Plan, settings: uv.UvSettings
) -> tuple[ResolutionRequest, dict[str, str | None]]:
    """Return the lock as a request: each row exactly, from the index it came from."""
    sources: dict[str, str] = {}
    addresses: dict[str, str] = {}
    env: dict[str, str | None] = {}
    for row in plan.lock:
        if row.index in indexes.list_indexes():
            sources[row.name], addresses[row.index] = row.index, indexes.index_url(row.index)
        elif row.index.startswith("pip-") and int(row.index[4:]) < len(settings.extra):
            address, login = split_index_login(settings.extra[int(row.index[4:])], row.index.upper().replace("-", "_"))
            sources[row.name], addresses[row.index] = row.index, address
            env |= login
    for at, (name, path) in enumerate(find_folder_wheels(host, plan, settings.folders).items()):
        sources[name], addresses[f"{FOLDER_INDEX}-{at}"] = f"{FOLDER_INDEX}-{at}", path
    exact = tuple(f"{row.name}=={row.version}" for row in plan.lock)
    return ResolutionRequest(exact, sources, addresses, (), python_minor_version(plan.python), plan.platform), env


def _choose_file(row: LockedPackage, listed: dict[str, Any], ranks: dict[str, int]) -> tuple[str, str, int]:
    """Return the best wheel for the target with a hash in the lock; the source if there is no wheel."""
    wheels = [parse_file_entry(one) for one in listed.get("wheels", ()) if isinstance(one, dict)]
    fitting = [
        (rank, one) for one in wheels if one[3] in row.hashes and (rank := _rank_wheel(one[0], ranks)) is not None
    ]
    if fitting:
        name, url, size, _ = min(fitting)[1]
        return name, url, size
    for kind in ("sdist", "archive"):
        if isinstance(listed.get(kind), dict):
            name, url, size, digest = parse_file_entry(listed[kind])
            if digest in row.hashes:
                return name, url, size
    raise ValueError(f"{row.name} {row.version} has no file for this target with a hash of the lock: plan again")


def rank_target_tags(python: str, platform: str) -> dict[str, int]:
    """Map every wheel tag that a target accepts to its rank, best first."""
    from packaging import tags

    version = major_minor(python)
    platforms = list(list_target_platforms(platform))
    listed = [*tags.cpython_tags(version, platforms=platforms), *tags.compatible_tags(version, platforms=platforms)]
    return {str(tag): at for at, tag in enumerate(listed)}


def list_target_platforms(platform: str) -> Iterator[str]:
    """Expand ``x86_64-manylinux_2_28`` to manylinux_2_28_x86_64 and all older, then linux_x86_64."""
    machine, _, kind = platform.partition("-")
    if kind == "pc-windows-msvc":
        yield "win_amd64" if machine == "x86_64" else "win_arm64"
        return
    if kind == "apple-darwin":
        names = ("arm64", "universal2") if machine == "aarch64" else ("x86_64", "universal2")
        yield from (f"macosx_{major}_0_{name}" for major in range(15, 10, -1) for name in names)
        return
    newest = int(kind.rpartition("_")[2]) if kind.startswith("manylinux_2_") else 17
    for minor in range(newest, 4, -1):
        yield f"manylinux_2_{minor}_{machine}"
        for old, name in ((17, "manylinux2014"), (12, "manylinux2010"), (5, "manylinux1")):
            if minor == old:
                yield f"{name}_{machine}"
    yield f"linux_{machine}"


def _rank_wheel(file: str, ranks: dict[str, int]) -> int | None:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        tags = parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return None
    return min((ranks[str(tag)] for tag in tags if str(tag) in ranks), default=None)


def _format_readme(plan: Plan, name: str, notes: list[str]) -> str:
    built = [f"  {k.package} {k.version}: {k.why}" for k in plan.kernels if k.how != "index"]
    build = " --allow-build" if notes else ""  # every note is of a package without a wheel
    lines = [
        f"{plan.framework} {plan.version} for Python {plan.python} on {plan.platform}: {len(plan.lock)} packages.",
        "",
        "On the machine without network:",
        "",
        f"  gpuready install --lock {name}/{LOCK_FILE} --find-links {name} --offline{build} -e ENV",
        "",
        "or, in an environment that is there:",
        "",
        f"  uv pip install --offline --no-index --find-links {name} --require-hashes -r {name}/{REQUIREMENTS_FILE}",
    ]
    lines += ["", "Not in this folder:", *built] if built else []
    return escape_lines("\n".join([*lines, *(["", *notes] if notes else []), ""]))
