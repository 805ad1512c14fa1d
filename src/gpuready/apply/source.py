"""Requirements of a framework that is on no index, read from its own files. Nothing is executed."""

from __future__ import annotations

from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.model import Contract
    from gpuready.system import Door

DEEPEST = 4
_LARGEST = 1 << 20


def requirements(door: Door, folder: str, contract: Contract) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requirements of a source folder, and notes. ValueError if it has none."""
    found = door.stat(folder)
    if found is None or found["kind"] != "dir":
        raise ValueError(f"--source {folder} is no folder: name the checkout of {contract.framework}")
    root = door.real(folder)
    notes: list[str] = []
    for name in _named(contract):
        if _text(door, f"{root}/{name}") is not None:
            return tuple(_of_file(door, root, name, notes, 0)), tuple(notes)
    project = _of_project(door, root)
    if project is not None:
        return project, ()
    wanted = ", ".join((*_named(contract), "pyproject.toml"))
    raise ValueError(f"--source {folder} has none of {wanted}: name the checkout of {contract.framework}")


def _named(contract: Contract) -> tuple[str, ...]:
    """The requirement files named in the contract's steps, then requirements.txt."""
    steps = (step.run for step in contract.steps)
    named = [run[at + 1] for run in steps for at, word in enumerate(run[:-1]) if word == "-r"]
    return tuple(dict.fromkeys([*named, "requirements.txt"]))


def _text(door: Door, path: str) -> str | None:
    try:
        return door.read(path, _LARGEST)
    except Blind as blind:
        raise ValueError(f"cannot read {path}: {blind}") from None


def _of_file(door: Door, root: str, name: str, notes: list[str], depth: int) -> Iterator[str]:
    path = door.real(f"{root}/{name}")
    if depth > DEEPEST or not path.startswith(f"{root}/"):
        raise ValueError(
            f"{name} in {root} leads out of that folder or into itself: nothing is read from there"
        )
    text = _text(door, path)
    if text is None:
        raise ValueError(f"{root}/{name} does not exist, and another requirement file names it")
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition(" #")[0].strip()
        if not words or words.startswith("#"):
            continue
        if words.startswith(("-r ", "--requirement ")):
            below = name.rpartition("/")[0]
            inner = words.split(None, 1)[1].strip()
            yield from _of_file(door, root, f"{below}/{inner}" if below else inner, notes, depth + 1)
        else:
            yield from _of_line(words, name, notes)


def _of_line(words: str, name: str, notes: list[str]) -> Iterator[str]:
    from packaging.requirements import InvalidRequirement, Requirement

    from gpuready.system import redact

    if words.startswith(("-", ".", "/")) or "://" in words:
        notes.append(f"{name}: {redact(words)[:120]} is left to the steps: it is no package of an index")
        return
    try:
        Requirement(words)
    except InvalidRequirement:
        raise ValueError(f"{name} has a line that is no requirement: {words[:80]!r}") from None
    yield words


def _of_project(door: Door, root: str) -> tuple[str, ...] | None:
    from gpuready.apply.pipconf import _toml

    text = _text(door, f"{root}/pyproject.toml")
    project = _toml(text or "").get("project")
    listed = project.get("dependencies") if isinstance(project, dict) else None
    if not isinstance(listed, list):
        return None
    return tuple(line for one in listed for line in _of_line(str(one), "pyproject.toml", []))
