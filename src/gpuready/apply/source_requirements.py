"""Requirements of a framework that is on no index, read from its own files. Nothing is executed."""

from __future__ import annotations

from collections.abc import Iterator

from gpuready.apply.uv_config import parse_toml
from gpuready.catalog import packages
from gpuready.model import Contract, Record
from gpuready.system import AccessError, HostAccess, redact_text

MAX_INCLUDED_FILES = 50
_MAX_FILE_BYTES = 1 << 20
USUAL_FILES = ("requirements.txt", "requirements_common.txt", "requirements/common.txt")


def read_source_requirements(
    host: HostAccess, folder: str, contract: Contract, torch: str = ""
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requirements of a source folder and of the packages in it that these name, and notes. ValueError if it has none.

    ``torch``: the version that is planned; of several files the first that takes it counts.
    """
    status = host.stat_path(folder)
    if status is None or status["kind"] != "dir":
        raise ValueError(f"--source {folder} is not a folder: name the checkout of {contract.framework}")
    root, notes = host.resolve_path(folder), list[str]()
    name = _choose_requirement_file(host, root, contract, torch)
    if name:
        return _drop_implied(list(_requirements_of_file(host, root, name, notes))), tuple(notes)
    project = _requirements_of_project(host, root, "pyproject.toml", notes)
    if project is not None:
        return project, tuple(notes)
    wanted = ", ".join((*_requirement_file_names(contract), "pyproject.toml"))
    raise ValueError(f"--source {folder} has none of {wanted}: name the checkout of {contract.framework}")


def _drop_implied(lines: list[str]) -> tuple[str, ...]:
    """Drop what an exact pin of the same package fulfils: uv takes a yanked release only where the pin stands alone."""
    from packaging.requirements import Requirement

    found = {line: Requirement(line) for line in lines}
    always = [one for one in found.values() if not one.marker]  # a pin for another platform fulfils nothing here
    pins = {one.name: str(one.specifier)[2:] for one in always if str(one.specifier).startswith("==")}

    def is_implied(one: Requirement) -> bool:
        pin = "" if one.extras or one.marker or "==" in str(one.specifier) else pins.get(one.name, "")
        return bool(pin) and "*" not in pin and "," not in pin and one.specifier.contains(pin, prereleases=True)

    return tuple(line for line, one in found.items() if not is_implied(one))


def list_local_packages(host: HostAccess, folder: str, contract: Contract | None, torch: str = "") -> tuple[str, ...]:
    """Return the packages inside a checkout that its requirement file names, such as ROLL's ``./mcore_adapter``.

    Each is its folder, with its marker where it has one: ``/src/ROLL/mcore_adapter ; sys_platform == "linux"``.
    """
    root = host.resolve_path(folder) if folder else ""
    name = _choose_requirement_file(host, root, contract, torch) if folder and contract else ""
    lines = _iterate_lines(host, root, name, []) if name else ()
    found = [_local_package(host, root, words, file) for file, words in lines]
    inner = [one for one in found if one and one.folder != root]
    return tuple(dict.fromkeys(" ; ".join(filter(None, (one.folder, one.marker))) for one in inner))


def _choose_requirement_file(host: HostAccess, root: str, contract: Contract, torch: str) -> str:
    """Return the first requirement file that is there; of those that the contract names, the first that takes the planned torch."""
    names = [
        name for name in _requirement_file_names(contract) if _read_source_file(host, f"{root}/{name}") is not None
    ]
    named = [name for name in names if name not in USUAL_FILES]
    fitting = [name for name in named if _takes_torch(host, root, name, torch)] if torch and len(named) > 1 else []
    return next(iter([*fitting, *names]), "")


def _takes_torch(host: HostAccess, root: str, name: str, torch: str) -> bool:
    from packaging.requirements import Requirement

    found = [Requirement(line) for line in _requirements_of_file(host, root, name, [])]
    return all(
        one.specifier.contains(torch.partition("+")[0], prereleases=True) for one in found if one.name == "torch"
    )


def _requirement_file_names(contract: Contract) -> tuple[str, ...]:
    """The requirement files named in the contract's steps, then the usual ones."""
    steps = (step.run for step in contract.steps)
    names = [run[at + 1] for run in steps for at, word in enumerate(run[:-1]) if word == "-r"]
    return tuple(dict.fromkeys([*names, *USUAL_FILES]))


def _read_source_file(host: HostAccess, path: str) -> str | None:
    try:
        return host.read_text(path, _MAX_FILE_BYTES)
    except AccessError as error:
        raise ValueError(f"cannot read {path}: {error}") from None


def _requirements_of_file(host: HostAccess, root: str, name: str, notes: list[str]) -> Iterator[str]:
    for file, words in _iterate_lines(host, root, name, []):
        local = _local_package(host, root, words, file)
        if not local:
            yield from _requirement_of_line(words, file, notes)
        elif local.folder != root:  # the checkout itself, which this is about
            yield from _requirements_of_local_package(host, root, local, notes)


class LocalPackage(Record):
    """A package inside the checkout: ``./mcore_adapter[dev] ; sys_platform == "linux"``."""

    folder: str
    extras: tuple[str, ...] = ()
    marker: str = ""


def _requirements_of_local_package(host: HostAccess, root: str, local: LocalPackage, notes: list[str]) -> Iterator[str]:
    shown = local.folder[len(root) + 1 :]
    found = _requirements_of_project(host, local.folder, f"{shown}/pyproject.toml", notes, local.extras)
    if found is None:
        notes.append(f"{shown}: what it requires is known only when it is built, and is not installed")
    yield from (_add_marker(line, local.marker) for line in found or ())


def _add_marker(line: str, marker: str) -> str:
    """Return a requirement that counts only where a marker holds too."""
    from packaging.markers import Marker
    from packaging.requirements import Requirement

    if not marker:
        return line
    requirement = Requirement(line)
    requirement.marker = Marker(f"({requirement.marker}) and ({marker})" if requirement.marker else marker)
    return str(requirement)


def _local_package(host: HostAccess, root: str, words: str, file: str) -> LocalPackage | None:
    """Return the package of ``./mcore_adapter`` or ``-e ./mcore_adapter`` where it is inside the checkout; else nothing."""
    named, _, marker = words.removeprefix("-e ").removeprefix("--editable ").partition(";")
    path, _, extras = named.strip().removesuffix("]").partition("[")
    if not path.startswith("."):
        return None
    folder = host.resolve_path(f"{root}/{path.strip()}")
    is_inside = folder == root or folder.startswith(f"{root}/")
    files = [f"{folder}/{name}" for name in ("pyproject.toml", "setup.py")]
    if not is_inside or not any(host.stat_path(file) is not None for file in files):
        return None
    return LocalPackage(folder, tuple(extras.replace(",", " ").split()), _check_marker(marker.strip(), words, file))


def _check_marker(marker: str, words: str, file: str) -> str:
    from packaging.markers import InvalidMarker, Marker

    try:
        return str(Marker(marker)) if marker else ""
    except (InvalidMarker, RecursionError):
        raise ValueError(f"{file} has a line that is not a requirement: {words[:80]!r}") from None


def _iterate_lines(host: HostAccess, root: str, name: str, opened: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a requirement file and of those that it includes, each with the name of its file."""
    path = host.resolve_path(f"{root}/{name}")
    opened.append(path)
    if len(opened) > MAX_INCLUDED_FILES or not path.startswith(f"{root}/"):
        raise ValueError(f"{name} in {root} leads out of that folder or into itself: nothing is read from there")
    text = _read_source_file(host, path)
    if text is None:
        raise ValueError(f"{root}/{name} does not exist, and another requirement file names it")
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition(" #")[0].strip()
        if not words or words.startswith("#"):
            continue
        if words.startswith(("-r ", "--requirement ")):
            below = name.rpartition("/")[0]
            inner = words.split(None, 1)[1].strip()
            yield from _iterate_lines(host, root, f"{below}/{inner}" if below else inner, opened)
        else:
            yield name, words


def _requirement_of_line(words: str, name: str, notes: list[str], fate: str = "left to the steps") -> Iterator[str]:
    from packaging.requirements import InvalidRequirement, Requirement

    if words.startswith(("-", ".", "/")) or "://" in words:
        notes.append(f"{name}: {redact_text(words)[:120]} is {fate}: it is not a package of an index")
        return
    try:
        Requirement(words)
    except (InvalidRequirement, RecursionError):
        raise ValueError(f"{name} has a line that is not a requirement: {words[:80]!r}") from None
    yield words


def _requirements_of_project(
    host: HostAccess, folder: str, file: str, notes: list[str], extras: tuple[str, ...] = ()
) -> tuple[str, ...] | None:
    text = _read_source_file(host, f"{folder}/pyproject.toml")
    project = parse_toml(text or "").get("project")
    listed = project.get("dependencies") if isinstance(project, dict) else None
    if not isinstance(project, dict) or not isinstance(listed, list):
        return None
    lines = [*map(str, listed), *_requirements_of_extras(project, extras)]
    return tuple(line for one in lines for line in _requirement_of_line(one, file, notes, "not installed"))


def _requirements_of_extras(project: dict[str, object], extras: tuple[str, ...]) -> Iterator[str]:
    """Yield what extras of a project add, and the extras that these name: ``all = ["kite[dev,docs]"]``."""
    optional = project.get("optional-dependencies")
    rows = optional.items() if isinstance(optional, dict) else ()
    listed = {packages.canonical_package_name(name): lines for name, lines in rows if isinstance(lines, list)}
    own, wanted = packages.canonical_package_name(str(project.get("name", ""))), list(extras)
    while wanted:
        for line in map(str, listed.pop(packages.canonical_package_name(wanted.pop(0)), ())):
            name, bracket, rest = line.partition("[")
            if bracket and packages.canonical_package_name(name.strip()) == own:
                wanted += rest.partition("]")[0].replace(",", " ").split()
            else:
                yield line
