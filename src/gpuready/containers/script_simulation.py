"""What the commands of a RUN script change in a simulated image: its Pythons, their packages, its toolkit. Nothing is executed."""

from __future__ import annotations

import shlex
from collections import ChainMap

from gpuready.catalog import systems
from gpuready.containers import install_commands
from gpuready.containers.dockerfile import UNKNOWN
from gpuready.containers.python_installs import PythonInstall
from gpuready.containers.shell_commands import parse_shell_commands
from gpuready.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuready.containers.build_simulation import SimulatedImage
    from gpuready.containers.install_commands import InstallEffects
    from gpuready.containers.shell_commands import ShellCommand

    InstallFile = Callable[[str, str, PythonInstall], None]

MAX_SHELL_DEPTH = 3
CONDA_PROGRAMS = ("conda", "mamba", "micromamba")
CONDA_RUN = tuple((program, "run") for program in CONDA_PROGRAMS)
PEP_668 = "pip refuses to install into the Python of the distribution (PEP 668)"
NO_VENV = "uv finds no virtual environment, and --system is not given"


class Toolkit(Record):
    """A CUDA toolkit of an image."""

    version: str
    folder: str
    line: int


class ScriptRunner:
    """One RUN script: its folder and active environment end with it, what it installs stays in the image."""

    def __init__(self, built: SimulatedImage, line: int, install_file: InstallFile):
        self.built, self.line, self.install_file = built, line, install_file
        self.folder, self.active = built.folder, ""
        self.last_words: tuple[str, ...] = ()

    def run_script(self, script: str, depth: int = 0) -> None:
        refused_before = len(self.built.refused)
        for command in parse_shell_commands(script, self.built.values):
            inner = _inner_shell_script(command.words)
            if inner is not None and depth < MAX_SHELL_DEPTH:
                self.run_script(inner, depth + 1)
            elif command.words[:2] in CONDA_RUN and depth < MAX_SHELL_DEPTH:
                self._run_in_conda(command, depth)
            elif not self._change_shell(command) and not self._change_programs(command):
                self._install(command)
            self.last_words = command.words
            if command.end == "||":  # what failed before it does not end the build
                del self.built.refused[refused_before:]
            elif command.end != "&&":
                refused_before = len(self.built.refused)

    def _run_in_conda(self, command: ShellCommand, depth: int) -> None:
        """Apply ``conda run -n name pip install …`` in that environment."""
        rest, active = list(command.words[2:]), self.active
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option in ("-n", "--name", "-p", "--prefix") and rest:
                self.active = self._conda_folder(rest.pop(0))
        self.run_script(shlex.join(rest), depth + 1)
        self.active = active

    def _change_shell(self, command: ShellCommand) -> bool:
        """Apply ``cd``, ``. venv/bin/activate`` and ``conda activate name``."""
        name, *rest = command.words
        if name == "cd":
            self.folder = join_path(self.folder, rest[0]) if rest else "/root"
        elif name in (".", "source") and rest[:1] == ["activate"]:
            self.active = self._conda_folder(rest[1] if len(rest) > 1 else "base")
        elif name in (".", "source") and rest and rest[0].endswith("/bin/activate"):
            self.active = join_path(self.folder, rest[0]).removesuffix("/activate")
        elif name in CONDA_PROGRAMS and rest[:1] == ["activate"]:
            self.active = self._conda_folder(rest[1] if len(rest) > 1 else "base")
        else:
            return False
        return True

    def _change_programs(self, command: ShellCommand) -> bool:
        """Apply links between Pythons, and Pythons that come from elsewhere than a package manager."""
        name, *rest = command.words
        plain = [word for word in rest if not word.startswith("-")]
        programs = self.built.pythons
        if name == "ln" and len(plain) == 2:
            programs.link_program(join_path(self.folder, plain[1]), plain[0])
        elif name.endswith("update-alternatives") and "--install" in rest and len(plain) >= 3:
            programs.link_program(plain[0], plain[2])
        elif name.endswith("update-alternatives") and "--set" in rest and len(plain) == 2:
            programs.link_program(f"/usr/bin/{plain[0]}", plain[1])
        elif any("EXTERNALLY-MANAGED" in word for word in plain):
            programs.allow_installs()
        elif _configures_pip(command.words):
            self.built.values["PIP_BREAK_SYSTEM_PACKAGES"] = "1"
        elif _is_conda_installer(command.words):
            self._add_conda(_installer_folder(rest) or "/root/miniconda3")
        elif name == "make" and {"install", "altinstall"} & set(plain) and "/Python-" in self.folder:
            self._add_built_python(is_alternative="altinstall" in plain)
        elif self._runs_get_pip(command.words):
            self._add_pip(name, command)
        else:
            return False
        return True

    def _add_built_python(self, is_alternative: bool) -> None:
        """Register a Python that is built from its source; ``make altinstall`` leaves python3 and pip as they are."""
        version = self.folder.rpartition("/Python-")[2].partition("/")[0]
        minor = ".".join(version.split(".")[:2])
        name = f"python{minor}" if is_alternative else "python3"
        python = PythonInstall(f"/usr/local/bin/{name}", version, "system", False, self.line)
        names = (f"python{minor}", f"pip{minor}") if is_alternative else ()
        self.built.pythons.add_python("/usr/local/bin", python, names)

    def _runs_get_pip(self, words: tuple[str, ...]) -> bool:
        """Return whether it is ``python3.12 get-pip.py``, or ``curl …/get-pip.py | python3.12``."""
        if not words[0].rpartition("/")[2].startswith("python"):
            return False
        piped = len(words) == 1 or words[1:] == ("-",)
        return any("get-pip" in word for word in (self.last_words if piped else words[1:]))

    def _add_pip(self, program: str, command: ShellCommand) -> None:
        python = self.built.pythons.find_program(program, self._path_folders(command))
        if python is not None:
            python.managed = False if python.managed is None else python.managed
            self.built.pythons.add_python("/usr/local/bin", python, ("pip", "pip3"))

    def _add_conda(self, folder: str) -> PythonInstall:
        python = PythonInstall(f"{folder}/bin/python", "", "conda", False, self.line)
        self.built.conda = folder
        return self.built.pythons.add_python(f"{folder}/bin", python)

    def _conda_folder(self, name: str) -> str:
        """Return the bin folder of a conda environment by its name or path."""
        if name.startswith("/"):
            return f"{name}/bin"
        root = self.built.conda
        return "" if not root else f"{root}/bin" if name in ("base", "root") else f"{root}/envs/{name}/bin"

    def _path_folders(self, command: ShellCommand) -> list[str]:
        active = [self.active] if self.active else []
        return active + [folder for folder in command.path.split(":") if UNKNOWN not in folder]

    def _install(self, command: ShellCommand) -> None:
        environment = ChainMap(dict(command.assigned), self.built.values)
        effects = install_commands.parse_install_command(command, environment)
        if effects.toolkit:
            by_conda = effects.installer.startswith("conda") and self.built.conda
            self.built.toolkit = Toolkit(effects.toolkit, by_conda or f"/usr/local/cuda-{effects.toolkit}", self.line)
        manager = install_commands.SYSTEM_MANAGERS.get(command.words[0].rpartition("/")[2])
        self.built.manager = self.built.manager or manager or ""
        if effects.installer == "system":
            self._add_system_python(effects.python)
        elif effects.installer == "toolchain":
            self.built.uv_python = effects.python
        elif effects.installer == "venv":
            self._add_venv(effects, command)
        elif effects.installer:
            self._install_packages(effects, command, environment)

    def _add_system_python(self, stated: str) -> None:
        """Register the Pythons of the distribution: ``system``, ``3.12``, or ``system 3.12``."""
        base, programs = self.built.base, self.built.pythons
        own_version = systems.system_python(base.system, base.release) or ""
        words = stated.split()
        exact = next((word for word in words if word != "system"), "")
        if base.release.partition(".")[0] == "7" and exact and "system" in words:
            exact = own_version  # release 7 has no other, and yum goes on without it
        if exact and exact != own_version:
            other = PythonInstall(f"/usr/bin/python{exact}", exact, "system", self._manages_python(), self.line)
            names = [f"python{exact}", f"pip{exact}"]
            if "/usr/bin/python3" not in programs.programs and base.release.partition(".")[0] in ("7", "8"):
                names += ["python3", "pip3"]  # Red Hat's alternatives
            programs.add_python("/usr/bin", other, names)
        if ("system" in words or exact == own_version) and words and "/usr/bin/python3" not in programs.programs:
            own = PythonInstall("/usr/bin/python3", own_version, "system", self._manages_python(), self.line)
            minor = [f"python{own_version}", f"pip{own_version}"] if own_version else []
            programs.add_python("/usr/bin", own, ["python3", "pip", "pip3", *minor])
        elif "system" in words and exact and exact != own_version and own_version:
            programs.add_python("/usr/bin", programs.programs["/usr/bin/python3"], ["pip", "pip3"])

    def _manages_python(self) -> bool | None:
        return systems.manages_python(self.built.base.system, self.built.base.release)

    def _add_venv(self, effects: InstallEffects, command: ShellCommand) -> None:
        folder = join_path(self.folder, effects.target)
        if not effects.target or UNKNOWN in folder:
            return
        folders = self._path_folders(command)
        programs = self.built.pythons
        parent = programs.find_program("python3" if effects.program == "uv" else effects.program, folders)
        version = effects.python or (self.built.uv_python if effects.program == "uv" else "")
        version = version or (parent.version if parent is not None else "")
        python = PythonInstall(f"{folder}/bin/python", version, "venv", False, self.line)
        if effects.inherits and parent is not None:
            python.packages = dict(parent.packages)
        programs.add_python(f"{folder}/bin", python)

    def _install_packages(
        self, effects: InstallEffects, command: ShellCommand, environment: ChainMap[str, str]
    ) -> None:
        found = self._find_target(effects, command, environment)
        python = found or self.built.unknown_python
        if found is None and command.sure and self._lacks_venv(effects, environment):
            self.built.refused.append((NO_VENV, self.line))
        elif python.managed is True and not effects.allowed and command.sure:
            self.built.refused.append((PEP_668, self.line))
        python.last_install = self.line
        if effects.installer.startswith("conda") and effects.python:
            python.version, python.line = effects.python, self.line
        for pin in effects.pins:
            install_commands.record_pin(python.packages, pin, self.line)
        for name in effects.gone:
            python.packages.pop(name, None)
        for name in effects.files:
            self.install_file(name, effects.build, python)

    def _lacks_venv(self, effects: InstallEffects, environment: ChainMap[str, str]) -> bool:
        """Return whether uv has no environment to install into; what an image of others may set is not known."""
        base = self.built.base
        plain_base = bool(base.system) and not base.torch and base.kind != "conda"
        named = effects.target or effects.system or effects.gone or {"VIRTUAL_ENV", "UV_PYTHON"} & set(environment)
        known = named or self.active or "UV_SYSTEM_PYTHON" in environment
        return effects.installer == "uv" and plain_base and not known

    def _find_target(
        self, effects: InstallEffects, command: ShellCommand, environment: ChainMap[str, str]
    ) -> PythonInstall | None:
        """Return the Python that a command installs into; None if that is not known."""
        folders, programs = self._path_folders(command), self.built.pythons
        if effects.installer.startswith("conda"):
            return self._find_conda_target(effects)
        if effects.installer == "uv project":
            named = environment.get("UV_PROJECT_ENVIRONMENT", ".venv")
            return self._venv_at(join_path(self.folder, named), self.built.uv_python)
        if effects.installer == "uv":
            return self._find_uv_target(effects, folders, environment)
        return programs.find_program(effects.program, folders) or (
            programs.find_program("python3", folders)
            if "/" not in effects.program and effects.program[-1:] != "n"
            else None
        )

    def _find_uv_target(
        self, effects: InstallEffects, folders: list[str], environment: ChainMap[str, str]
    ) -> PythonInstall | None:
        programs = self.built.pythons
        asked = effects.target or environment.get("UV_PYTHON", "")
        if asked and UNKNOWN not in asked:
            named = asked if "/" in asked else f"python{asked.removeprefix('python')}"
            if "/bin/python" not in named and "/" in named:
                named = f"{join_path(self.folder, named)}/bin/python"
            return programs.find_program(named, folders)
        if effects.system or environment.get("UV_SYSTEM_PYTHON", "0").lower() not in ("", "0", "false"):
            return programs.find_program("python3", folders) or programs.find_program("python", folders)
        active = self.active or (f"{environment['VIRTUAL_ENV']}/bin" if "VIRTUAL_ENV" in environment else "")
        for folder in (active, f"{self.folder.rstrip('/')}/.venv/bin"):
            if folder and (python := programs.programs.get(f"{folder}/python")):
                return python
        found = programs.find_program("python3", folders) or programs.find_program("python", folders)
        return found if found is not None and found.kind in ("venv", "conda") else None

    def _find_conda_target(self, effects: InstallEffects) -> PythonInstall | None:
        folder = self._conda_folder(effects.target) if effects.target else self.active or self._conda_folder("base")
        if not folder or UNKNOWN in folder:
            self.built.unknown_python.kind = "conda"
            return None
        python = self.built.pythons.programs.get(f"{folder}/python")
        if python is None or effects.installer == "conda new":
            python = PythonInstall(f"{folder}/python", "", "conda", False, self.line)
            self.built.pythons.add_python(folder, python)
        return python

    def _venv_at(self, folder: str, version: str) -> PythonInstall:
        known = self.built.pythons.programs.get(f"{folder}/bin/python")
        made = known or PythonInstall(f"{folder}/bin/python", version, "venv", False, self.line)
        return made if known is not None else self.built.pythons.add_python(f"{folder}/bin", made)


def join_path(folder: str, path: str) -> str:
    """Join a path as a shell would, without looking at the disk."""
    import posixpath

    return posixpath.normpath(posixpath.join(folder, path.replace("~", "/root", 1) if path.startswith("~") else path))


def _configures_pip(words: tuple[str, ...]) -> bool:
    """Return whether a command lets pip install into the system's Python from then on: pip config set, a line for pip.conf."""
    return "install" not in words and any("break-system-packages" in word for word in words)


def _is_conda_installer(words: tuple[str, ...]) -> bool:
    """Return whether it is ``bash Miniforge3-Linux-x86_64.sh -b``, or any script with the options of that: ``/tmp/m.sh -bfp /opt/conda``."""
    scripts = [word.rpartition("/")[2].lower() for word in words[:3] if word.endswith(".sh")]
    options = "".join(word for word in words if word.startswith("-") and not word.startswith("--"))
    is_named = any("conda" in script or "forge" in script for script in scripts)
    return bool(scripts) and "b" in options and (is_named or bool(_installer_folder(words)))


def _installer_folder(words: Sequence[str]) -> str:
    """Return the folder behind ``-p``, or behind options that end in it."""
    places = [at for at, word in enumerate(words[:-1]) if word[:1] == "-" and word[1:].isalpha() and word[-1] == "p"]
    return words[places[0] + 1] if places else ""


def _inner_shell_script(words: tuple[str, ...]) -> str | None:
    """Return the script passed to a shell: ``bash -lc 'pip install …'``."""
    if words and words[0].rpartition("/")[2] in ("sh", "bash", "dash", "zsh"):
        for at, word in enumerate(words[1:-1], 1):
            if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
                return words[at + 1]
    return None
