"""Simulate a Dockerfile build: what the last stage contains after every instruction. Nothing is executed."""

from __future__ import annotations

from gpuready.catalog import systems
from gpuready.probe import dockerfile, image, installs
from gpuready.probe.commands import commands
from gpuready.probe.dockerfile import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuready.probe.dockerfile import Instruction, Stage

    Read = Callable[[str], "str | None"]

ENVIRONMENTS = (
    "venv",
    "site-packages",
    "/usr/local",
    "/opt/conda",
    "/opt/python",
    "/app",
    "/workspace",
    "/root",
)
"""Copying one of these from another stage also copies its packages."""

DEEPEST = 40


class Built:
    """The contents of an image after the instructions so far."""

    def __init__(self, base: image.Image, line: int):
        self.base, self.line = base, line
        self.values: dict[str, str] = {}
        self.variables: dict[str, tuple[str, int]] = {}
        self.packages: dict[str, tuple[installs.Pin, int]] = {}
        self.python: tuple[str, int] = (base.python, line)
        self.toolkit: tuple[str, int] = ("", line)
        self.kind: tuple[str, int] = (base.kind, line)
        self.files: dict[str, str] = {}
        if base.torch:
            pin = installs.Pin("torch", base.torch, base.build)
            self.packages["torch"] = (pin, line)

    def copy(self) -> Built:
        other = Built(self.base, self.line)
        for name, value in vars(self).items():
            setattr(other, name, dict(value) if isinstance(value, dict) else value)
        return other

    def takes(self, other: Built) -> None:
        """Copy the environment of another stage."""
        self.packages |= other.packages
        self.python = other.python if other.python[0] else self.python
        self.kind = other.kind if other.kind[0] else self.kind


class Builder:
    def __init__(self, read: Read, folder: str, arch: str, given: Mapping[str, str]):
        self.read, self.folder, self.given = read, folder, dict(given)
        short = {"x86_64": "amd64", "aarch64": "arm64"}.get(arch, arch)
        self.automatic = {"TARGETARCH": short, "TARGETOS": "linux", "TARGETPLATFORM": f"linux/{short}"}
        self.automatic |= {"BUILDARCH": short, "BUILDPLATFORM": f"linux/{short}"}
        self.done: dict[int, Built] = {}

    def build(self, stages: list[Stage], index: int, depth: int = 0) -> Built:
        if index not in self.done:
            if depth > DEEPEST:
                raise ValueError(f"its stages stand on each other more than {DEEPEST} deep")
            self.done[index] = self._stage(stages, index, depth)
        return self.done[index]

    def _stage(self, stages: list[Stage], index: int, depth: int) -> Built:
        stage = stages[index]
        below = next(
            (i for i in range(index) if stages[i].name and stages[i].name == stage.base.lower()), None
        )
        if below is not None:
            built = self.build(stages, below, depth + 1).copy()
        else:
            built = Built(image.read(stage.base.replace(UNKNOWN, "?")), stage.line)
        built.values = dict(self.automatic) | {name: value for name, (value, _) in built.variables.items()}
        outside: dict[str, str] = {}
        for step in stage.steps:
            if step.word == "GLOBALS":
                outside = dict(step.bodies)
            elif step.word == "ARG":
                dockerfile.declare(step, built.values, self.given, outside)
            elif step.word == "ENV":
                self._env(step, built)
            elif step.word in ("COPY", "ADD"):
                self._copy(step, built, stages, index, depth)
            elif step.word == "RUN":
                self._run(step, built)
        return built

    def _env(self, step: Instruction, built: Built) -> None:
        for name, value in dockerfile.assignments(step.text, built.values):
            if value is not None:
                built.values[name] = value
                built.variables[name] = (value, step.line)

    def _copy(self, step: Instruction, built: Built, stages: list[Stage], index: int, depth: int) -> None:
        words = [dockerfile.expand(word, built.values) for word in _exec(step.text) or step.text.split()]
        flags = dict(w[2:].partition("=")[::2] for w in words if w.startswith("--"))
        paths = [w for w in words if not w.startswith(("--", "<<"))]
        origin = flags.get("from", "").lower()
        for i in range(index):
            if origin and (stages[i].name == origin or origin == str(i)):
                if any(part in path for path in paths for part in ENVIRONMENTS):
                    built.takes(self.build(stages, i, depth + 1))
                return
        if step.bodies and paths:
            built.files[paths[-1]] = step.bodies[-1][1]
        elif not origin:
            built.files.update({f"copied {path.rpartition('/')[2]}": path for path in paths[:-1]})

    def _run(self, step: Instruction, built: Built) -> None:
        text, bound = _without_flags(step.text)
        for path in bound:
            built.files[f"copied {path.rpartition('/')[2]}"] = path
        exec_form = _exec(text)
        if exec_form:
            script = _script(exec_form)
        elif step.bodies and text.lstrip().startswith("<<"):
            script = step.bodies[0][1]
        else:
            script = text
        self._script(script, built, step.line)

    def _script(self, script: str, built: Built, line: int, depth: int = 0) -> None:
        for command in commands(script, built.values):
            inner = _inner(command.words)
            if inner is not None and depth < 3:
                self._script(inner, built, line, depth + 1)
                continue
            found = installs.read(command, built.values)
            for pin in found.pins:
                installs.settle(built.packages, pin, line)
            for name in found.gone:
                built.packages.pop(name, None)
            for name in found.files:
                self._requirements(name, found.build, built, line)
            _note(built, found, line)

    def _requirements(self, name: str, build: str, built: Built, line: int, depth: int = 0) -> None:
        text = self._file(name, built)
        if text is None or depth > 4:
            return
        pins, more = installs.in_file(text, build)
        for pin in pins:
            installs.settle(built.packages, pin, line)
        for other in more:
            self._requirements(other, build, built, line, depth + 1)

    def _file(self, name: str, built: Built) -> str | None:
        """A file written by the Dockerfile, or copied from beside it; never one outside its folder."""
        last = name.rpartition("/")[2]
        for path, text in built.files.items():
            if not path.startswith("copied ") and (path == name or path.rpartition("/")[2] == last):
                return text
        source = built.files.get(f"copied {last}", name if not name.startswith("/") else last)
        if UNKNOWN in source or ".." in source.split("/") or source.startswith("/"):
            source = last
        if not last or last in (".", "..") or UNKNOWN in last:
            return None
        return self.read(f"{self.folder}/{source.removeprefix('./')}" if self.folder else source)


def _note(built: Built, found: installs.Found, line: int) -> None:
    """Record the Python, toolkit and environment kind that a command installs."""
    if found.toolkit:
        built.toolkit = (found.toolkit, line)
    if found.kind:
        built.kind = (found.kind, line)
    version = found.python
    if version.startswith("system "):
        version = version.removeprefix("system ")
        if built.python[0]:
            return  # a virtual environment or the image's own Python takes precedence
        own = systems.python(built.base.system, built.base.release)
        version = (own or "") if version == "3" else version
    if version:
        built.python = (version, line)


def _without_flags(text: str) -> tuple[str, list[str]]:
    """Strip --mount and --network from RUN; also return the files bind-mounted from the context."""
    bound: list[str] = []
    while text.startswith("--"):
        flag, _, text = text.partition(" ")
        fields = dict(part.partition("=")[::2] for part in flag.partition("=")[2].split(","))
        if fields.get("type") == "bind" and "from" not in fields and "source" in fields:
            bound.append(fields["source"])
        text = text.lstrip()
    return text, bound


def _exec(text: str) -> list[str]:
    """Parse the JSON form ``["pip", "install", "x"]``; empty if it is not one."""
    if not text.startswith("["):
        return []
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return (
        [str(word) for word in found]
        if isinstance(found, list) and all(isinstance(w, str) for w in found)
        else []
    )


def _script(words: list[str]) -> str:
    """Quote the words of the JSON form as a script: no shell has expanded them."""
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def _inner(words: tuple[str, ...]) -> str | None:
    """Return the script passed to a shell: ``bash -lc 'pip install …'``."""
    if words and words[0].rpartition("/")[2] in ("sh", "bash", "dash", "zsh"):
        for at, word in enumerate(words[1:-1], 1):
            if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
                return words[at + 1]
    return None
