"""Simulate a Dockerfile build: what the last stage contains after every instruction. Nothing is executed."""

from __future__ import annotations

from gpuready.catalog import systems
from gpuready.containers import base_image, dockerfile, install_commands
from gpuready.containers.dockerfile import UNKNOWN, BuildValues
from gpuready.containers.shell_commands import parse_shell_commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuready.containers.dockerfile import BuildStage, DockerInstruction

    ReadFile = Callable[[str], "str | None"]

ENVIRONMENT_PATHS = ("venv", "site-packages", "/usr/local", "/opt/conda", "/opt/python", "/app", "/workspace", "/root")
"""Copying one of these from another stage also copies its packages."""

MAX_STAGE_DEPTH = 40


class SimulatedImage:
    """The contents of an image after the instructions so far."""

    def __init__(self, base: base_image.BaseImage, line: int):
        self.base, self.line = base, line
        self.values = BuildValues()
        self.variables: dict[str, tuple[str, int]] = {}
        self.packages: dict[str, tuple[install_commands.PackagePin, int]] = {}
        self.python: tuple[str, int] = (base.python, line)
        self.toolkit: tuple[str, int] = ("", line)
        self.kind: tuple[str, int] = (base.kind, line)
        self.files: dict[str, str] = {}
        if base.torch:
            pin = install_commands.PackagePin("torch", base.torch, base.build)
            self.packages["torch"] = (pin, line)

    def copy_image(self) -> SimulatedImage:
        other = SimulatedImage(self.base, self.line)
        for name, value in vars(self).items():
            setattr(other, name, dict(value) if isinstance(value, dict) else value)
        return other

    def merge_stage(self, other: SimulatedImage) -> None:
        """Copy the environment of another stage."""
        self.packages |= other.packages
        self.python = other.python if other.python[0] else self.python
        self.kind = other.kind if other.kind[0] else self.kind


class DockerfileSimulator:
    def __init__(self, read_file: ReadFile, folder: str, arch: str, build_args: Mapping[str, str]):
        self.read_file, self.folder, self.build_args = read_file, folder, dict(build_args)
        short = {"x86_64": "amd64", "aarch64": "arm64"}.get(arch, arch)
        self.platform_args = {"TARGETARCH": short, "TARGETOS": "linux", "TARGETPLATFORM": f"linux/{short}"}
        self.platform_args |= {"BUILDARCH": short, "BUILDPLATFORM": f"linux/{short}"}
        self.build_values = BuildValues(self.platform_args | self.build_args)
        self.built_stages: dict[int, SimulatedImage] = {}

    def build_stage(self, stages: list[BuildStage], index: int, depth: int = 0) -> SimulatedImage:
        if index not in self.built_stages:
            if depth > MAX_STAGE_DEPTH:
                raise ValueError(f"its stages stand on each other more than {MAX_STAGE_DEPTH} deep")
            self.built_stages[index] = self._run_stage(stages, index, depth)
        return self.built_stages[index]

    def _run_stage(self, stages: list[BuildStage], index: int, depth: int) -> SimulatedImage:
        stage = stages[index]
        base_index = next((i for i in range(index) if stages[i].name and stages[i].name == stage.base.lower()), None)
        if base_index is not None:
            built = self.build_stage(stages, base_index, depth + 1).copy_image()
        else:
            built = SimulatedImage(base_image.parse_image_name(stage.base.replace(UNKNOWN, "?")), stage.line)
        set_before = {name: value for name, (value, _) in built.variables.items()}
        built.values = BuildValues(self.platform_args | set_before, self.build_values)
        global_args: dict[str, str] = {}
        for step in stage.steps:
            if step.word == "GLOBALS":
                global_args = dict(step.bodies)
            elif step.word == "ARG":
                dockerfile.declare_argument(step, built.values, self.build_args, global_args)
            elif step.word == "ENV":
                self._apply_env(step, built)
            elif step.word in ("COPY", "ADD"):
                self._apply_copy(step, built, stages, index, depth)
            elif step.word == "RUN":
                self._apply_run(step, built)
        return built

    def _apply_env(self, step: DockerInstruction, built: SimulatedImage) -> None:
        for name, value in dockerfile.parse_assignments(step.text, built.values):
            if value is not None:
                built.values[name] = value
                built.variables[name] = (value, step.line)

    def _apply_copy(
        self, step: DockerInstruction, built: SimulatedImage, stages: list[BuildStage], index: int, depth: int
    ) -> None:
        words = [
            dockerfile.expand_variables(word, built.values) for word in _parse_exec_form(step.text) or step.text.split()
        ]
        flags = dict(w[2:].partition("=")[::2] for w in words if w.startswith("--"))
        paths = [w for w in words if not w.startswith(("--", "<<"))]
        origin = flags.get("from", "").lower()
        for i in range(index):
            if origin and (stages[i].name == origin or origin == str(i)):
                if any(part in path for path in paths for part in ENVIRONMENT_PATHS):
                    built.merge_stage(self.build_stage(stages, i, depth + 1))
                return
        if step.bodies and paths:
            built.files[paths[-1]] = step.bodies[-1][1]
        elif not origin:
            built.files.update({f"copied {path.rpartition('/')[2]}": path for path in paths[:-1]})

    def _apply_run(self, step: DockerInstruction, built: SimulatedImage) -> None:
        text, bound = _strip_run_flags(step.text)
        for path in bound:
            built.files[f"copied {path.rpartition('/')[2]}"] = path
        exec_form = _parse_exec_form(text)
        if exec_form:
            import shlex

            script = shlex.join(exec_form)  # no shell expands the words of the JSON form
        elif step.bodies and text.lstrip().startswith("<<"):
            script = step.bodies[0][1]
        else:
            script = text
        self._run_script(script, built, step.line)

    def _run_script(self, script: str, built: SimulatedImage, line: int, depth: int = 0) -> None:
        for command in parse_shell_commands(script, built.values):
            inner = _inner_shell_script(command.words)
            if inner is not None and depth < 3:
                self._run_script(inner, built, line, depth + 1)
                continue
            effects = install_commands.parse_install_command(command, built.values)
            for pin in effects.pins:
                install_commands.record_pin(built.packages, pin, line)
            for name in effects.gone:
                built.packages.pop(name, None)
            for name in effects.files:
                self._install_requirements(name, effects.build, built, line)
            _record_effects(built, effects, line)

    def _install_requirements(self, name: str, build: str, built: SimulatedImage, line: int, depth: int = 0) -> None:
        text = self._read_copied_file(name, built)
        if text is None or depth > 4:
            return
        pins, more = install_commands.parse_requirements_file(text, build)
        for pin in pins:
            install_commands.record_pin(built.packages, pin, line)
        for other in more:
            self._install_requirements(other, build, built, line, depth + 1)

    def _read_copied_file(self, name: str, built: SimulatedImage) -> str | None:
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
        return self.read_file(f"{self.folder}/{source.removeprefix('./')}" if self.folder else source)


def _record_effects(built: SimulatedImage, effects: install_commands.InstallEffects, line: int) -> None:
    """Record the Python, toolkit and environment kind that a command installs."""
    if effects.toolkit:
        built.toolkit = (effects.toolkit, line)
    if effects.kind:
        built.kind = (effects.kind, line)
    version = effects.python
    if version.startswith("system "):
        version = version.removeprefix("system ")
        if built.python[0]:
            return  # a virtual environment or the image's own Python takes precedence
        default_python = systems.system_python(built.base.system, built.base.release)
        version = (default_python or "") if version == "3" else version
    if version:
        built.python = (version, line)


def _strip_run_flags(text: str) -> tuple[str, list[str]]:
    """Strip --mount and --network from RUN; also return the files bind-mounted from the context."""
    bound: list[str] = []
    while text.startswith("--"):
        flag, _, text = text.partition(" ")
        fields = dict(part.partition("=")[::2] for part in flag.partition("=")[2].split(","))
        if fields.get("type") == "bind" and "from" not in fields and "source" in fields:
            bound.append(fields["source"])
        text = text.lstrip()
    return text, bound


def _parse_exec_form(text: str) -> list[str]:
    """Parse the JSON form ``["pip", "install", "x"]``; empty if it is not one."""
    if not text.startswith("["):
        return []
    import json

    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return decoded if isinstance(decoded, list) and all(isinstance(word, str) for word in decoded) else []


def _inner_shell_script(words: tuple[str, ...]) -> str | None:
    """Return the script passed to a shell: ``bash -lc 'pip install …'``."""
    if words and words[0].rpartition("/")[2] in ("sh", "bash", "dash", "zsh"):
        for at, word in enumerate(words[1:-1], 1):
            if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
                return words[at + 1]
    return None
