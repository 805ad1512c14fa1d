"""Read what the stages of a Dockerfile state: variables, literal installs, and what was not looked at."""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Callable, Mapping

from gpuready import system
from gpuready.catalog import systems
from gpuready.containers import base_image, dockerfile, installs, run_lines
from gpuready.containers.dockerfile import UNKNOWN, BuildStage, BuildValues, DockerInstruction
from gpuready.containers.installs import Install, PackagePin
from gpuready.containers.run_lines import LiteralCommand
from gpuready.model import Record

ReadFile = Callable[[str], "str | None"]


MAX_STAGE_DEPTH = 40
MAX_INCLUDED_FILES = 50
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PEP_668 = "pip refuses to install into the Python of the distribution (PEP 668)"
IGNORED_INSTRUCTIONS = {
    "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD", "STOPSIGNAL", "USER", "VOLUME",
}  # fmt: skip
ENVIRONMENT_PATHS = ("python", "packages", "conda", "venv", "cuda", "/.local")
"""Words in the paths of COPY --from by which a Python, its packages or a toolkit may come along."""


class Toolkit(Record):
    """A CUDA toolkit of an image."""

    version: str
    folder: str
    line: int


class ImagePython:
    """One Python of an image, and the packages that literal commands install into it."""

    def __init__(self, path: str, version: str = "", kind: str = "", managed: bool | None = None, line: int = 0):
        self.path, self.version, self.kind, self.managed, self.line = path, version, kind, managed, line
        self.packages: dict[str, tuple[PackagePin, int]] = {}
        self.last_install = self.installs = 0
        self.is_resolved = True  # False where a command resolved by rules of its own, such as --no-deps


class ImageContents:
    """What is stated of an image after the instructions so far."""

    def __init__(self, base: base_image.BaseImage, line: int):
        self.base, self.line, self.folder, self.manager = base, line, "/", ""
        self.variables: dict[str, tuple[str, int]] = {}
        self.files: dict[str, str] = {}  # name of a copied file -> its path beside the Dockerfile
        self.toolkit = Toolkit(base.cuda, "/usr/local/cuda", line) if base.toolkit else None
        self.main = ImagePython(base.interpreter, base.python, base.kind, base.managed, line)
        self.environments = {base.interpreter.partition("/bin/")[0] or "/usr": self.main}
        self.unread: list[tuple[int, str]] = []
        self.doubted: set[str] = set()  # packages stated before something that was not looked at
        self.refused: list[tuple[str, int]] = []
        self.reads_shell = True
        if base.torch or (base.build == "own" and base.cuda):
            self.main.packages["torch"] = (installs.PackagePin("torch", base.torch or None, base.build), line)
        if base.brings:
            self.main.packages[base.brings] = (installs.PackagePin(base.brings, base.release_of_package), line)
        self.values = BuildValues()

    @property
    def default_path(self) -> str:
        """PATH as the base image sets it, as far as it is known."""
        folder = self.base.interpreter.rpartition("/")[0]
        return DEFAULT_PATH if not folder or folder in DEFAULT_PATH else f"{folder}:{DEFAULT_PATH}"

    def mark_unread(self, line: int, text: str) -> None:
        """Note what was not looked at. It may have changed any Python, so what was stated of them is in doubt."""
        shown = system.redact_text(" ".join(text.replace(UNKNOWN, "?").split()))
        self.unread.append((line, shown if len(shown) <= 60 else f"{shown[:57]}..."))
        for environment in self.environments.values():
            self.doubted |= set(environment.packages)
            environment.packages.clear()
            environment.version, environment.managed = "", None
        self.toolkit = None

    def find_environment(self, program: str, folder: str = "/") -> ImagePython:
        """Return the Python that ``/opt/venv/bin/pip``, ``python3.12`` or ``pip`` means."""
        if "/" in program:
            prefix = posixpath.normpath(posixpath.join(folder, program)).partition("/bin/")[0]
            return self.environments.setdefault(prefix, ImagePython(f"{prefix}/bin/python"))
        minor = program.lstrip("abcdefghijklmnopqrstuvwxyz")
        if "." in minor and not f"{self.main.version}.".startswith(f"{minor}."):
            named = ImagePython(f"/usr/bin/python{minor}" if self.base.system else "", minor, "system", line=self.line)
            return self.environments.setdefault(f"python{minor}", named)
        prefixes = [one.removesuffix("/bin") for one in self.values.get("PATH", "").split(":")]
        return next((self.environments[one] for one in prefixes if one in self.environments), self.main)

    def final_environment(self) -> ImagePython:
        """Return the Python that the image is for: the one on PATH, unless only another has packages."""
        on_path = self.find_environment("python3")
        used = [one for one in self.environments.values() if one.last_install]
        return on_path if on_path.last_install or not used else max(used, key=lambda one: one.last_install)


class StageReader:
    def __init__(self, read_file: ReadFile, folder: str, arch: str, build_args: Mapping[str, str]):
        self.read_file, self.folder, self.build_args = read_file, folder, dict(build_args)
        short = {"x86_64": "amd64", "aarch64": "arm64"}.get(arch, arch)
        self.platform_args = {"TARGETARCH": short, "TARGETOS": "linux", "TARGETPLATFORM": f"linux/{short}"}
        self.platform_args |= {"BUILDARCH": short, "BUILDPLATFORM": f"linux/{short}"}
        self.build_values = BuildValues(self.platform_args | self.build_args)
        self.read_stages: dict[int, ImageContents] = {}

    def read_stage(self, stages: list[BuildStage], index: int, depth: int = 0) -> ImageContents:
        if index not in self.read_stages:
            if depth > MAX_STAGE_DEPTH:
                raise ValueError(f"its stages stand on each other more than {MAX_STAGE_DEPTH} deep")
            self.read_stages[index] = self._read_steps(stages, index, depth)
        return self.read_stages[index]

    def _read_steps(self, stages: list[BuildStage], index: int, depth: int) -> ImageContents:
        stage = stages[index]
        base_index = next((i for i in range(index) if stages[i].name and stages[i].name == stage.base.lower()), None)
        if base_index is not None:
            image = copy.deepcopy(self.read_stage(stages, base_index, depth + 1))
        else:
            image = ImageContents(base_image.parse_image_name(stage.base.replace(UNKNOWN, "?")), stage.line)
        known = {"PATH": image.default_path} | self.platform_args | image.values
        image.values = BuildValues(known, self.build_values)
        for step in stage.steps:
            if step.word == "ARG":
                dockerfile.declare_argument(step, image.values, self.build_args, dict(stage.global_args))
            elif step.word == "ENV":
                _apply_env(step, image)
            elif step.word in ("COPY", "ADD"):
                self._apply_copy(step, image, stages, index, depth)
            elif step.word == "WORKDIR":
                named = dockerfile.expand_variables(step.text.strip("\"'"), image.values)
                image.folder = posixpath.join(image.folder, named)
            elif step.word == "SHELL":
                image.reads_shell = any(word in step.text for word in ("bash", "/sh", "dash"))
            elif step.word == "RUN":
                self._apply_run(step, image)
            elif step.word not in IGNORED_INSTRUCTIONS:
                raise ValueError(f"line {step.line}: {step.word[:20]!r} is not a Dockerfile instruction")
        return image

    def _apply_copy(
        self, step: DockerInstruction, image: ImageContents, stages: list[BuildStage], index: int, depth: int
    ) -> None:
        words = run_lines.parse_exec_form(step.text) or step.text.split()
        words = [dockerfile.expand_variables(word, image.values) for word in words]
        origin = next((word[7:].lower() for word in words if word.startswith("--from=")), "")
        paths = [word for word in words if not word.startswith(("--", "<<"))]
        other = next((i for i in range(index) if origin and origin in (stages[i].name, str(i))), None)
        if other is not None:
            self._copy_environment(step, image, self.read_stage(stages, other, depth + 1), paths)
        elif any(path.endswith("pip.conf") for path in paths):
            image.mark_unread(step.line, f"{step.word} {step.text}")  # it may allow what pip refuses
        elif not origin:
            image.files.update({path.rpartition("/")[2]: path for path in paths[:-1]})

    def _copy_environment(
        self, step: DockerInstruction, image: ImageContents, other: ImageContents, paths: list[str]
    ) -> None:
        """Apply ``COPY --from=builder /opt/venv /opt/venv``; another part of a Python is not looked at."""
        for source in paths[:-1]:
            found = other.environments.get(source.rstrip("/"))
            target = posixpath.join(image.folder, paths[-1]).rstrip("/")
            if found is not None and found.kind == "venv":
                image.environments[target] = copied = copy.deepcopy(found)
                copied.path = f"{target}/bin/python"
                image.unread, image.doubted = image.unread + other.unread, image.doubted | other.doubted
            elif any(word in source for word in ENVIRONMENT_PATHS) or source in ("/", "/usr", "/usr/local", "/opt"):
                image.mark_unread(step.line, f"COPY {step.text}")

    def _apply_run(self, step: DockerInstruction, image: ImageContents) -> None:
        text = run_lines.strip_run_flags(step.text)
        flags = step.text.removesuffix(text)
        image.files.update({path.rpartition("/")[2]: path for path in re.findall(r"\bsource=([^\s,]+)", flags)})
        commands = run_lines.split_commands(text, image.values) if image.reads_shell else None
        if commands is None:
            image.mark_unread(step.line, text)
        folder = image.folder
        for command in commands or ():
            if command.program == "cd":
                folder = posixpath.join(folder, *command.words[1:2])
                continue
            environment = {**image.values, **dict(command.variables)}
            install = installs.parse_install(command, environment)
            if install is not None:
                self._apply_install(install, command, image, folder, step.line, environment)
            elif not run_lines.is_harmless(command):
                image.mark_unread(step.line, " ".join(command.words))

    def _apply_install(
        self,
        install: Install,
        command: LiteralCommand,
        image: ImageContents,
        folder: str,
        line: int,
        environment: Mapping[str, str],
    ) -> None:
        moved = "/" if folder != image.folder else ""  # after cd, a name is not one of the Dockerfile's folder
        opened: list[str] = []
        requirements = [self._read_requirements(moved + name, install.build, image, opened) for name in install.files]
        if not all(one.is_literal for one in (install, *requirements)):
            image.mark_unread(line, " ".join(command.words))
        if install.toolkit:
            image.toolkit = Toolkit(install.toolkit, f"/usr/local/cuda-{install.toolkit}", line)
        if install.installer == "system":
            _add_system_python(install, command, image, line)
        elif install.installer == "venv":
            _add_venv(install, image, folder, line)
        else:
            pins = [pin for one in (install, *requirements) for pin in one.pins]
            _install_packages(install, pins, image, _find_target(install, image, folder, environment), line)

    def _read_requirements(self, name: str, build: str, image: ImageContents, opened: list[str]) -> Install:
        """Return the pins of a file copied from beside the Dockerfile, and of those it includes; never one outside its folder."""
        source = image.files.get(name.rpartition("/")[2], "")
        if not source and {"", "."} & set(image.files) and not name.startswith("/"):
            source = name  # COPY . .
        is_inside = UNKNOWN not in source and ".." not in source.split("/") and not source.startswith("/")
        path = f"{self.folder}/{source.removeprefix('./')}" if self.folder else source
        opened.append(path)
        text = self.read_file(path) if source and is_inside and len(opened) <= MAX_INCLUDED_FILES else None
        if text is None:
            return installs.Install("pip", is_literal=False)
        found = installs.parse_requirements_file(text, build)
        more = [self._read_requirements(one, found.build, image, opened) for one in found.files]
        pins = found.pins + tuple(pin for one in more for pin in one.pins)
        return found.replace(pins=pins, is_literal=found.is_literal and all(one.is_literal for one in more))


def _apply_env(step: DockerInstruction, image: ImageContents) -> None:
    for name, value in dockerfile.parse_assignments(step.text, image.values):
        if value is not None:
            image.values[name] = value
            image.variables[name] = (value, step.line)


def _add_system_python(install: Install, command: LiteralCommand, image: ImageContents, line: int) -> None:
    """Apply ``apt-get install python3 python3-pip`` and ``dnf install python3.12``."""
    base, own = image.base, image.main
    image.manager = image.manager or run_lines.SYSTEM_MANAGERS[command.program]
    version = systems.system_python(base.system, base.release) or ""
    if install.python and not base.interpreter and install.python in ("system", version) and not own.version:
        own.path, own.kind, own.line = "/usr/bin/python3", "system", line
        own.version, own.managed = version, systems.manages_python(base.system, base.release)


def _add_venv(install: Install, image: ImageContents, folder: str, line: int) -> None:
    """Apply ``python3 -m venv /opt/venv`` and ``uv venv --python 3.12``."""
    prefix = posixpath.normpath(posixpath.join(folder, install.target))
    parent = image.find_environment("python3" if install.program == "uv" else install.program, folder)
    made = ImagePython(f"{prefix}/bin/python", install.python or parent.version, "venv", False, line)
    made.packages = dict(parent.packages) if install.inherits else {}
    image.environments[prefix] = made


def _find_target(install: Install, image: ImageContents, folder: str, environment: Mapping[str, str]) -> ImagePython:
    """Return the Python that a command installs into."""
    if install.installer != "uv":
        return image.find_environment(install.program or "python3", folder)
    if install.target:
        named = install.target if "/" in install.target else f"python{install.target.removeprefix('python')}"
        return image.find_environment(named if "/bin/" in named or "/" not in named else f"{named}/bin/python", folder)
    active = environment.get("VIRTUAL_ENV", "") or posixpath.join(folder, ".venv")
    if not install.system and (active in image.environments or "VIRTUAL_ENV" in environment):
        return image.find_environment(f"{active}/bin/python")
    return image.find_environment("python3")


def _install_packages(
    install: Install, pins: list[PackagePin], image: ImageContents, environment: ImagePython, line: int
) -> None:
    if not image.unread and environment.managed is True and not install.allowed:
        image.refused.append((PEP_668, line))
    environment.last_install, environment.installs = line, environment.installs + 1
    environment.is_resolved &= not install.own_rules
    if install.python:
        environment.version, environment.line = install.python, line
    for pin in pins:
        installs.record_pin(environment.packages, pin, line)
    for name in install.gone:
        environment.packages.pop(name, None)
