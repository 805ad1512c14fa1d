"""Simulate a Dockerfile build: what the last stage contains after every instruction. Nothing is executed."""

from __future__ import annotations

from gpuready.containers import base_image, dockerfile, install_commands
from gpuready.containers.dockerfile import UNKNOWN, BuildValues
from gpuready.containers.python_installs import DEFAULT_PATH, PythonInstall, PythonPrograms
from gpuready.containers.script_simulation import ScriptRunner, Toolkit, join_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuready.containers.dockerfile import BuildStage, DockerInstruction

    ReadFile = Callable[[str], "str | None"]

MAX_STAGE_DEPTH = 40


INSTRUCTIONS = {
    "GLOBALS", "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD",
    "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


class SimulatedImage:
    """The contents of an image after the instructions so far."""

    def __init__(self, base: base_image.BaseImage, line: int):
        self.base, self.line, self.folder = base, line, "/"
        self.values = BuildValues()
        self.variables: dict[str, tuple[str, int]] = {}
        self.toolkit = Toolkit(base.cuda, "/usr/local/cuda", line) if base.toolkit else None
        self.files: dict[str, str] = {}
        self.pythons = PythonPrograms()
        self.unknown_python = PythonInstall("", base.python if base.python and not base.interpreter else "", base.kind)
        self.conda = base.interpreter.partition("/envs/")[0].removesuffix("/bin/python") if base.kind == "conda" else ""
        self.manager, self.uv_python = "", ""
        self.refused: list[tuple[str, int]] = []
        self._add_base_python()

    def _add_base_python(self) -> None:
        """Register the Python of the base image, with the torch and the framework that it brings."""
        base = self.base
        if base.interpreter:
            python = PythonInstall(base.interpreter, base.python, base.kind, base.managed, self.line)
            self.pythons.add_python(base.interpreter.rpartition("/")[0], python)
        else:
            python = self.unknown_python
            python.line = self.line
            self.pythons.unplaced = python if base.python or not base.system else None
        if base.torch or (base.build == "own" and base.cuda):
            python.packages["torch"] = (install_commands.PackagePin("torch", base.torch or None, base.build), self.line)
        if base.brings:
            pin = install_commands.PackagePin(base.brings, base.release_of_package)
            python.packages[base.brings] = (pin, self.line)

    @property
    def default_path(self) -> str:
        """PATH as the base image sets it, as far as it is known."""
        folder = self.base.interpreter.rpartition("/")[0]
        return DEFAULT_PATH if not folder or folder in DEFAULT_PATH else f"{folder}:{DEFAULT_PATH}"

    def copy_image(self) -> SimulatedImage:
        other = SimulatedImage(self.base, self.line)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, (dict, list)) else value)
        other.pythons = self.pythons.copy_programs()
        other.unknown_python = other.pythons.unplaced or self.unknown_python.copy_install("")
        return other

    def copy_folder(self, other: SimulatedImage, source: str, target: str) -> None:
        """Copy the Pythons, conda and the toolkit below a folder of another stage."""
        self.pythons.copy_folder(other.pythons, source, target)
        if other.conda and f"{other.conda}/".startswith(f"{source.rstrip('/')}/"):
            self.conda = target.rstrip("/") + other.conda[len(source.rstrip("/")) :]
        if other.toolkit is not None and f"{other.toolkit.folder}/".startswith(f"{source.rstrip('/')}/"):
            self.toolkit = other.toolkit

    def find_environment(self) -> PythonInstall:
        """Return the Python that the image is for: the one on PATH, unless only another has packages."""
        folders = self.values.get("PATH", self.default_path).split(":")
        on_path = self.pythons.find_program("python3", folders) or self.pythons.find_program("python", folders)
        if on_path is not None and (on_path.last_install or on_path.packages):
            return on_path
        used = [python for python in (*self.pythons.list_pythons(), self.unknown_python) if python.last_install]
        return max(used, key=lambda python: python.last_install) if used else on_path or self.unknown_python


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
        set_before = dict(built.values)  # the ARGs of a parent stage too
        built.values = BuildValues({"PATH": built.default_path} | self.platform_args | set_before, self.build_values)
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
            elif step.word == "WORKDIR":
                built.folder = join_path(
                    built.folder, dockerfile.expand_variables(step.text.strip("\"'"), built.values)
                )
            elif step.word == "RUN":
                self._apply_run(step, built)
            elif step.word not in INSTRUCTIONS:
                raise ValueError(f"line {step.line}: {step.word[:20]!r} is not a Dockerfile instruction")
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
                other = self.build_stage(stages, i, depth + 1)
                for source in paths[:-1]:
                    built.copy_folder(other, source, join_path(built.folder, paths[-1]))
                return
        if any(path.endswith("pip.conf") for path in paths):
            built.values["PIP_BREAK_SYSTEM_PACKAGES"] = UNKNOWN  # its setting may be in the file
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

        def install_file(name: str, build: str, python: PythonInstall) -> None:
            self._install_requirements(name, build, built, python, step.line)

        ScriptRunner(built, step.line, install_file).run_script(script)

    def _install_requirements(
        self, name: str, build: str, built: SimulatedImage, python: PythonInstall, line: int, depth: int = 0
    ) -> None:
        text = self._read_copied_file(name, built)
        if text is None or depth > 4:
            return
        pins, more = install_commands.parse_requirements_file(text, build)
        for pin in pins:
            install_commands.record_pin(python.packages, pin, line)
        for other in more:
            self._install_requirements(other, build, built, python, line, depth + 1)

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
