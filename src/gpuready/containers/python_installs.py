"""The Pythons of a simulated image: which one a program name means, and what is installed in each."""

from __future__ import annotations

from gpuready.model import versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.containers.install_commands import PackagePin

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class PythonInstall:
    """One Python: its interpreter, and the packages that the build puts into it."""

    def __init__(self, path: str, version: str = "", kind: str = "", managed: bool | None = None, line: int = 0):
        self.path, self.version, self.kind, self.managed, self.line = path, version, kind, managed, line
        self.packages: dict[str, tuple[PackagePin, int]] = {}
        self.last_install = 0  # the line of the last command that installed into it

    def copy_install(self, path: str) -> PythonInstall:
        other = PythonInstall(path, self.version, self.kind, self.managed, self.line)
        other.packages, other.last_install = dict(self.packages), self.last_install
        return other


class PythonPrograms:
    """The programs of an image that are a Python or its pip, by path."""

    def __init__(self) -> None:
        self.programs: dict[str, PythonInstall] = {}
        self.unplaced: PythonInstall | None = None  # of the base image, which does not say where it is

    def add_python(self, folder: str, python: PythonInstall, names: Iterable[str] = ()) -> PythonInstall:
        """Register a Python's programs in a bin folder: by default all names of python and pip."""
        minor = ".".join(python.version.split(".")[:2])
        numbered = [f"python{minor}", f"pip{minor}"] if minor.count(".") == 1 else []
        for name in names or ("python", "python3", "pip", "pip3", *numbered):
            self.programs[f"{folder}/{name}"] = python
        return python

    def link_program(self, link: str, target: str) -> None:
        """Apply ``ln -s target link``: both mean the same Python from here on."""
        target = target if "/" in target else f"{link.rpartition('/')[0]}/{target}"
        if python := self.programs.get(target):
            self.programs[link] = python

    def find_program(self, name: str, folders: list[str]) -> PythonInstall | None:
        """Return the Python that a program belongs to, by its path or by PATH; None if that is not known."""
        if "/" in name:
            return self.programs.get(name) or self._python_at(name)
        for folder in folders:
            if folder in DEFAULT_PATH.split(":") and self.unplaced is not None and "." not in name:
                return self.unplaced
            if python := self.programs.get(f"{folder}/{name}"):
                return python
        return self.unplaced

    def _python_at(self, program: str) -> PythonInstall | None:
        """A Python that only its path tells of: /opt/python/cp312-cp312/bin/pip."""
        folder = program.rpartition("/")[0]
        if not folder.endswith("/bin") or folder in DEFAULT_PATH.split(":"):
            return None
        return self.add_python(folder, PythonInstall(f"{folder}/python", version_in_path(folder), "", False))

    def list_pythons(self) -> list[PythonInstall]:
        placed = list(dict.fromkeys(self.programs.values()))
        return placed if self.unplaced is None else [self.unplaced, *placed]

    def copy_programs(self) -> PythonPrograms:
        other = PythonPrograms()
        copies = {python: python.copy_install(python.path) for python in self.list_pythons()}
        other.programs = {path: copies[python] for path, python in self.programs.items()}
        other.unplaced = copies[self.unplaced] if self.unplaced is not None else None
        return other

    def copy_folder(self, other: PythonPrograms, source: str, target: str) -> None:
        """Apply ``COPY --from``: the Pythons below a folder of another stage, or only their packages."""
        source, target = source.rstrip("/"), target.rstrip("/")
        for python in other.list_pythons():
            prefix = python.path.rpartition("/bin/")[0]
            if f"{prefix}/".startswith(f"{source}/") and prefix:
                self._take_python(other, python, prefix, target + prefix[len(source) :])
            elif source.startswith((f"{prefix}/lib", f"{prefix}/local/lib")) or source.endswith("/.local"):
                self._take_packages(python)

    def _take_python(self, other: PythonPrograms, python: PythonInstall, prefix: str, target: str) -> None:
        copied = python.copy_install(f"{target}/bin/{python.path.rpartition('/')[2]}")
        for program, owner in other.programs.items():
            if owner is python and program.startswith(f"{prefix}/bin/"):
                self.programs[target + program[len(prefix) :]] = copied

    def _take_packages(self, python: PythonInstall) -> None:
        own = self.programs.get(python.path) or self.unplaced
        if own is not None:
            own.packages |= python.packages
            own.last_install = max(own.last_install, python.last_install)

    def allow_installs(self) -> None:
        """Apply the removal of EXTERNALLY-MANAGED."""
        for python in self.list_pythons():
            python.managed = False


def version_in_path(path: str) -> str:
    """Return 3.12 of ``/opt/python/cp312-cp312/bin`` and ``/opt/conda/envs/py_3.12/bin``; empty if it names none."""
    import re

    if tag := re.search(r"/cp3(\d{1,2})-", path):
        return f"3.{tag[1]}"
    named = re.search(r"py(?:thon)?[_-]?(3\.\d{1,2})", path)
    return named[1] if named and versions.parse_plain_release(named[1]) is not None else ""
