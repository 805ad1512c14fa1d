"""Requirements of a framework that is on no index, read from its own files. Nothing is executed."""

from __future__ import annotations

from gpuready.system import AccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.model import Contract
    from gpuready.system import HostAccess

MAX_INCLUDE_DEPTH = 4
_MAX_FILE_BYTES = 1 << 20


def read_source_requirements(
    host: HostAccess, folder: str, contract: Contract
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requirements of a source folder and of the packages in it that these name, and notes. ValueError if it has none."""
    status = host.stat_path(folder)
    if status is None or status["kind"] != "dir":
        raise ValueError(f"--source {folder} is not a folder: name the checkout of {contract.framework}")
    root, notes = host.resolve_path(folder), list[str]()
    for name in _requirement_file_names(contract):
        if _read_source_file(host, f"{root}/{name}") is not None:
            return _drop_implied(list(_requirements_of_file(host, root, name, notes, 0))), tuple(notes)
    project = _requirements_of_project(host, root)
    if project is not None:
        return project, ()
    wanted = ", ".join((*_requirement_file_names(contract), "pyproject.toml"))
    raise ValueError(f"--source {folder} has none of {wanted}: name the checkout of {contract.framework}")


def _drop_implied(lines: list[str]) -> tuple[str, ...]:
    """Drop what an exact pin of the same package fulfils: uv takes a yanked release only where the pin stands alone."""
    from packaging.requirements import Requirement

    found = {line: Requirement(line) for line in lines}
    pins = {one.name: str(one.specifier)[2:] for one in found.values() if str(one.specifier).startswith("==")}

    def is_implied(one: Requirement) -> bool:
        pin = "" if one.extras or one.marker or "==" in str(one.specifier) else pins.get(one.name, "")
        return bool(pin) and "*" not in pin and "," not in pin and one.specifier.contains(pin, prereleases=True)

    return tuple(line for line, one in found.items() if not is_implied(one))


def list_local_packages(host: HostAccess, folder: str, contract: Contract | None) -> tuple[str, ...]:
    """Return the folders of packages inside a checkout that its requirement file names, such as ROLL's ``./mcore_adapter``."""
    root = host.resolve_path(folder) if folder else ""
    for name in _requirement_file_names(contract) if folder and contract else ():
        if _read_source_file(host, f"{root}/{name}") is not None:
            lines = _iterate_lines(host, root, name, 0)
            found = [_local_package(host, root, words) for _, words in lines]
            return tuple(dict.fromkeys(one for one in found if one and one != root))
    return ()


def _requirement_file_names(contract: Contract) -> tuple[str, ...]:
    """The requirement files named in the contract's steps, then the usual ones."""
    steps = (step.run for step in contract.steps)
    names = [run[at + 1] for run in steps for at, word in enumerate(run[:-1]) if word == "-r"]
    return tuple(dict.fromkeys([*names, "requirements.txt", "requirements_common.txt", "requirements/common.txt"]))


def _read_source_file(host: HostAccess, path: str) -> str | None:
    try:
        return host.read_text(path, _MAX_FILE_BYTES)
    except AccessError as error:
        raise ValueError(f"cannot read {path}: {error}") from None


def _requirements_of_file(host: HostAccess, root: str, name: str, notes: list[str], depth: int) -> Iterator[str]:
    for file, words in _iterate_lines(host, root, name, depth):
        local = _local_package(host, root, words)
        if not local:
            yield from _requirement_of_line(words, file, notes)
        elif local != root:  # the checkout itself, which this is about
            yield from _requirements_of_local_package(host, root, local, notes)


def _requirements_of_local_package(host: HostAccess, root: str, folder: str, notes: list[str]) -> tuple[str, ...]:
    found = _requirements_of_project(host, folder)
    if found is None:
        notes.append(
            f"{folder[len(root) + 1 :]}: what it requires is known only when it is built, and is not installed"
        )
    return found or ()


def _local_package(host: HostAccess, root: str, words: str) -> str:
    """Return the folder of ``./mcore_adapter`` or ``-e ./mcore_adapter`` where it is a package inside the checkout; else nothing."""
    path = words.removeprefix("-e ").removeprefix("--editable ").strip().partition("[")[0].partition(";")[0].strip()
    if not path.startswith("."):
        return ""
    folder = host.resolve_path(f"{root}/{path}")
    is_inside = folder == root or folder.startswith(f"{root}/")
    files = [f"{folder}/{name}" for name in ("pyproject.toml", "setup.py")]
    return folder if is_inside and any(host.stat_path(file) is not None for file in files) else ""


def _iterate_lines(host: HostAccess, root: str, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the lines of a requirement file and of those that it includes, each with the name of its file."""
    path = host.resolve_path(f"{root}/{name}")
    if depth > MAX_INCLUDE_DEPTH or not path.startswith(f"{root}/"):
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
            yield from _iterate_lines(host, root, f"{below}/{inner}" if below else inner, depth + 1)
        else:
            yield name, words


def _requirement_of_line(words: str, name: str, notes: list[str]) -> Iterator[str]:
    from packaging.requirements import InvalidRequirement, Requirement

    from gpuready.system import redact_text

    if words.startswith(("-", ".", "/")) or "://" in words:
        notes.append(f"{name}: {redact_text(words)[:120]} is left to the steps: it is not a package of an index")
        return
    try:
        Requirement(words)
    except InvalidRequirement:
        raise ValueError(f"{name} has a line that is not a requirement: {words[:80]!r}") from None
    yield words


def _requirements_of_project(host: HostAccess, root: str) -> tuple[str, ...] | None:
    from gpuready.apply.uv_config import parse_toml

    text = _read_source_file(host, f"{root}/pyproject.toml")
    project = parse_toml(text or "").get("project")
    listed = project.get("dependencies") if isinstance(project, dict) else None
    if not isinstance(listed, list):
        return None
    return tuple(line for one in listed for line in _requirement_of_line(str(one), "pyproject.toml", []))
