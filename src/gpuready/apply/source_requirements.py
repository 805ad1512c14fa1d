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
    """Return the requirements of a source folder, and notes. ValueError if it has none."""
    status = host.stat_path(folder)
    if status is None or status["kind"] != "dir":
        raise ValueError(f"--source {folder} is not a folder: name the checkout of {contract.framework}")
    root = host.resolve_path(folder)
    notes: list[str] = []
    for name in _requirement_file_names(contract):
        if _read_source_file(host, f"{root}/{name}") is not None:
            return tuple(_requirements_of_file(host, root, name, notes, 0)), tuple(notes)
    project = _requirements_of_project(host, root)
    if project is not None:
        return project, ()
    wanted = ", ".join((*_requirement_file_names(contract), "pyproject.toml"))
    raise ValueError(f"--source {folder} has none of {wanted}: name the checkout of {contract.framework}")


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
            yield from _requirements_of_file(host, root, f"{below}/{inner}" if below else inner, notes, depth + 1)
        else:
            yield from _requirement_of_line(words, name, notes)


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
