"""The checkout of a framework that is on no index: a folder, or a git address that is fetched into one."""

import tarfile
import zipfile
from hashlib import sha256

from gpuready.apply.uv_config import parse_toml
from gpuready.system import HostAccess, durable_files, file_contents
from gpuready.system.archive_members import list_tar_members
from gpuready.system.own_folders import make_cache_folder
from gpuready.system.process.runner import unredacted_variables

FETCH_DEADLINE = 600.0
_IGNORED_FOLDERS = ("/.git/", "/__pycache__/", "/build/", ".egg-info/")


def is_git_address(source: str) -> bool:
    """Whether ``--source`` is an address for git: ``https://host/ROLL.git``, ``git+ssh://…``, ``git@host:ROLL``."""
    return "://" in source or source.startswith("git@")


def open_checkout(host: HostAccess, source: str) -> str:
    """Return the folder of a checkout; a git address, with ``@REVISION`` at its end if one is meant, is fetched into the cache.

    It is fetched each time: a branch moves, and a fetch that was broken off leaves nothing that could be taken for a whole one.
    """
    if not is_git_address(source):
        return host.resolve_path(source)
    address, revision = split_revision(source.removeprefix("git+"))
    folder = f"{make_cache_folder(unredacted_variables(host), 'sources')}/{sha256(source.encode()).hexdigest()[:16]}"
    _run_git(host, ("git", "init", "--quiet", folder), source)
    _run_git(host, ("git", "-C", folder, "fetch", "--quiet", "--depth", "1", "--", address, revision or "HEAD"), source)
    _run_git(host, ("git", "-C", folder, "reset", "--quiet", "--hard", "FETCH_HEAD"), source)
    return folder


def split_revision(address: str) -> tuple[str, str]:
    """``https://host/ROLL.git@v0.3`` -> the address and ``v0.3``."""
    before, at, revision = address.rpartition("@")
    return (before, revision) if at and "/" not in revision and "/" in before else (address, "")


def _run_git(host: HostAccess, words: tuple[str, ...], source: str) -> None:
    ran = host.run(words, deadline=FETCH_DEADLINE)
    if ran.rc != 0:
        lines = [line for line in ran.err.splitlines() if line.strip()]
        why = ran.end or (lines[-1].strip() if lines else f"exit {ran.rc}")
        raise ValueError(f"--source {source} cannot be fetched: {why[:300]}; clone it by hand and name the folder")


def add_left_out(folder: str, site: str) -> list[str]:
    """Copy the modules of a checkout's packages that its build did not install; return their folders: ``roll/pipeline/sft``.

    setuptools' ``find_packages`` leaves out a folder without ``__init__.py``, which Python imports from a checkout.
    """
    left: dict[str, list[str]] = {}
    for path in durable_files.walk_files(folder):
        inside = path[len(folder) :].lstrip("/")
        at, _, name = inside.rpartition("/")
        is_module = name.endswith(".py") and "/" in at and not _is_ignored(inside)
        if is_module and not file_contents.list_names_or_empty(f"{site}/{at}") and _is_in_package(site, at):
            left.setdefault(at, []).append(name)
    for at, names in left.items():
        _make_folders(site, at)
        for name in names:
            text = file_contents.read_text_file(f"{folder}/{at}/{name}")
            if text is not None:
                durable_files.replace_file(f"{site}/{at}/{name}", text)
    return sorted(left)


def _is_in_package(site: str, at: str) -> bool:
    """Whether a folder lies in an installed package, and is none of its tests."""
    return (
        "tests" not in at.split("/")
        and file_contents.file_size(f"{site}/{at.partition('/')[0]}/__init__.py") is not None
    )


def _make_folders(site: str, at: str) -> None:
    for depth in range(1, at.count("/") + 2):
        durable_files.make_folder(f"{site}/{'/'.join(at.split('/')[:depth])}")


def hash_checkout(folder: str) -> str:
    """Return the first letters of a hash over the files of a checkout, without what git and builds leave there."""
    digest = sha256()
    for path in sorted(durable_files.walk_files(folder)):
        if not _is_ignored(path[len(folder) :].lstrip("/")):
            digest.update(f"{path[len(folder) :]} {file_contents.hash_file_contents(path)}\n".encode())
    return digest.hexdigest()[:12]


def _is_ignored(inside: str) -> bool:
    """Whether git, Python or a build made a file; its path is the one inside of the checkout, which may itself lie in a folder build/."""
    return any(part in f"/{inside}" for part in _IGNORED_FOLDERS)


LEGACY_BACKEND = ("setuptools>=40.8.0", "wheel")
"""What PEP 517 takes where pyproject.toml names nothing; wheel is asked for by old setup.py files."""

_MAX_PROJECT_BYTES = 1 << 20


def read_build_requirements(path: str) -> tuple[str, ...]:
    """Return the build requirements of a source archive: those of its pyproject.toml, and setuptools where it names none."""
    system = parse_toml(_read_project_file(path)).get("build-system")
    requires = system.get("requires") if isinstance(system, dict) else None
    named = tuple(one for one in requires if isinstance(one, str)) if isinstance(requires, list) else ()
    return named or LEGACY_BACKEND


def _read_project_file(path: str) -> str:
    """Return pyproject.toml of the archive's top folder; empty where it has none."""
    if path.endswith(".zip"):
        return _read_from_zip(path)
    with tarfile.open(path, "r:gz") as archive:
        for member in list_tar_members(archive):
            if member.isfile() and _is_project_file(member.name) and member.size <= _MAX_PROJECT_BYTES:
                file = archive.extractfile(member)
                return file.read().decode("utf-8", "replace") if file else ""
    return ""


def _read_from_zip(path: str) -> str:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if _is_project_file(member.filename) and member.file_size <= _MAX_PROJECT_BYTES:
                return archive.read(member).decode("utf-8", "replace")
    return ""


def _is_project_file(name: str) -> bool:
    return name.removeprefix("./").count("/") == 1 and name.endswith("/pyproject.toml")
