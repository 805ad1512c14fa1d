"""The target environment: the Python environment that is checked. Only its files are read, nothing is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from gpuready.model import Record
from gpuready.model.versions import compare_versions
from gpuready.probe.fact_helpers import leading_version, read_if_present
from gpuready.system import AccessError, HostAccess
from gpuready.system.host_access import MAX_PTH_LINES

PYTHON_HINT = "give a Python interpreter, a virtual environment or a conda prefix"
RUN_HINT = "name the environment itself with --python, or let `gpuready check --run-python` start it"
LAUNCHER_SCRIPT = "import sys; sys.stdout.write(sys.prefix + '\\n' + sys.executable + '\\n' + sys.version.split()[0])"
"""Run by a launcher script, whose path says nothing; with -I and -S, so no site hooks run."""


LAUNCHERS = ("mise", "rtx", "rye")
"""Programs that python3 may be a link to, and which start the Python of the current folder."""


MAX_SCRIPT_BYTES = 4096

MADE_FOR_KEY, MACHINE_KEY = "gpuready-made-for", "gpuready-machine"
"""The key of pyvenv.cfg that says what an environment was made for, where that is the CPU."""


class UnstartedLauncher(ValueError):
    """What a launcher starts is unknown, since nothing of the environment may be started."""


class TargetEnvironment(Record):
    """One Python environment. ``gap`` says why its version is unknown, or why there is no environment.

    ``source`` is where it was found; ``chosen_by`` says the same in words for people. ``made_for`` is what the installer
    noted in pyvenv.cfg, ``machine`` the architecture that it noted, where it installed for another one. ``site`` begins with
    ``python_path``, the folders of PYTHONPATH. ``base`` is the prefix of the Python that a virtual environment was made from,
    ``made_with`` the version of that Python where it is another one by now, which sees none of the packages.
    """

    prefix: str
    path: str
    kind: str  # venv, conda, system
    version: str | None
    site: tuple[str, ...]
    source: str
    version_source: str = ""
    gap: str = ""
    chosen_by: str = "--python"
    made_for: str = ""
    python_path: tuple[str, ...] = ()
    base: str = ""
    machine: str = ""
    made_with: str = ""


def find_named_environment(host: HostAccess, python: str) -> TargetEnvironment:
    path = find_named_path(host, python)
    try:
        status = host.stat_path(path)
    except AccessError as error:
        raise ValueError(f"--python {python} cannot be seen: {error}") from None
    if status is None:
        raise ValueError(f"--python {python}: there is no such file or folder; {PYTHON_HINT}")
    if status["kind"] == "link":
        raise ValueError(f"--python {python} is a link to nothing: the Python it was made from is gone; {PYTHON_HINT}")
    if status["kind"] == "dir":
        inside = find_interpreter(host, path)
        if inside is None:
            raise ValueError(f"--python {python} is a folder without bin/python; {PYTHON_HINT}")
        return _require_python3(describe_environment(host, path, inside, "--python"), python)
    if status["kind"] != "file" or not status["mode"] & 0o111:
        raise ValueError(f"--python {python} is not an executable file; {PYTHON_HINT}")
    try:
        return _require_python3(environment_of_interpreter(host, path, python), python)
    except UnstartedLauncher as unknown:
        raise ValueError(f"--python {python}: {unknown}; {RUN_HINT}") from None


def find_named_path(host: HostAccess, python: str) -> str:
    """Return the path that ``--python`` means: a file or folder, also from ~ or here, else a program on PATH."""
    path = python.rstrip("/") or "/"
    if path.startswith("~/"):
        path = f"{host.get_env_var('HOME') or ''}{path[1:]}"
    if path.startswith("/"):
        return path
    here = f"{host.get_cwd()}/{path}"
    return here if "/" in path or host.stat_path(here) else host.find_program(path) or here


def _require_python3(environment: TargetEnvironment, python: str) -> TargetEnvironment:
    if environment.version is None:
        raise ValueError(f"--python {python} does not say which Python it is: {environment.gap}; {PYTHON_HINT}")
    if environment.version.startswith("2."):
        raise ValueError(f"--python {python} is Python {environment.version}; name one of Python 3")
    return environment


def environment_of_interpreter(host: HostAccess, path: str, python: str, source: str = "--python") -> TargetEnvironment:
    """The environment of an interpreter: by the pyvenv.cfg beside it, else by its real path."""
    real = host.resolve_path(path)
    if (host.read_text(path, 2) or "") == "#!" or real.rpartition("/")[2] in LAUNCHERS:
        return _launched_environment(host, path, python, source)
    if not _may_be_python(host, path, real):
        raise ValueError(f"--python {python}: {path} is a program, and no Python; {PYTHON_HINT}")
    for prefix in (path.rpartition("/")[0].rpartition("/")[0], path.rpartition("/")[0]):
        if host.stat_path(f"{prefix}/pyvenv.cfg"):
            return describe_environment(host, prefix, path, source)
    return describe_environment(host, real.rpartition("/")[0].rpartition("/")[0] or "/", path, source)


def _may_be_python(host: HostAccess, path: str, real: str) -> bool:
    """Whether a program is named after Python (python3.12, pypy3, graalpy, .python3-wrapped) or linked to its library."""
    names = [one.rpartition("/")[2].lower() for one in (path, real)]
    if any(name.startswith("py") or "python" in name or "graalpy" in name for name in names):
        return True
    return any(name.startswith("libpython") for name in _linked_libraries(host, real))


def _launched_environment(host: HostAccess, path: str, python: str, source: str) -> TargetEnvironment:
    """The environment of what a launcher starts: by the path that its script executes, else by running it."""
    started = _find_executed_python(host, path)
    if started and started != path:
        return environment_of_interpreter(host, started, python, source)
    if not host.may_start_python:
        raise UnstartedLauncher(f"{path} is a script or a launcher, and only starting it tells which Python it starts")
    return _ask_launcher(host, path, python, source)


def _find_executed_python(host: HostAccess, path: str) -> str | None:
    """Return ``/opt/python/bin/python3.11`` of a wrapper such as ``exec /opt/python/bin/python3.11 "$@"``."""
    text = read_if_present(host.read_text, path, MAX_SCRIPT_BYTES) or ""
    lines = [line.split() for line in text.splitlines()[1:] if line.strip() and not line.lstrip().startswith("#")]
    if not text.startswith("#!") or len(lines) != 1 or lines[0][:1] != ["exec"] or len(lines[0]) < 2:
        return None
    started = lines[0][1].strip("\"'")
    is_program = started.startswith("/") and read_if_present(host.read_text, started, 2) not in (None, "#!")
    return started if is_program and started.rpartition("/")[2].startswith("python") else None


def _ask_launcher(host: HostAccess, path: str, python: str, source: str) -> TargetEnvironment:
    """Run a launcher (pyenv's, a wrapper) to find out what it launches."""
    ran = host.run([path, "-I", "-S", "-c", LAUNCHER_SCRIPT])
    lines = ran.out.splitlines()
    version = leading_version(lines[2]) if len(lines) > 2 else None
    if ran.rc != 0 or version is None:
        output = (ran.err or ran.out).strip().splitlines()
        why = ran.end or (output[0][:120] if output else f"it ended with {ran.rc}")
        raise ValueError(f"--python {python} is a script that does not start a Python 3: {why}; {PYTHON_HINT}")
    # Without site hooks a virtual environment reports its base Python; pyvenv.cfg identifies it.
    executable_prefix = lines[1].rpartition("/")[0].rpartition("/")[0]
    prefix = executable_prefix if read_if_present(host.stat_path, f"{executable_prefix}/pyvenv.cfg") else lines[0]
    return describe_environment(host, prefix, lines[1], source, version)


def find_interpreter(host: HostAccess, prefix: str) -> str | None:
    """Return the interpreter of a prefix, unless it is missing or a dangling link."""
    for name in ("python", "python3"):
        status = host.stat_path(f"{prefix}/bin/{name}")
        if status and status["kind"] == "file":
            return f"{prefix}/bin/{name}"
    return None


# -- properties of an environment ---------------------------------------------------------------------


def describe_environment(
    host: HostAccess, prefix: str, path: str, source: str, version: str | None = None, may_run: bool = True
) -> TargetEnvironment:
    """Describe the environment of a prefix. Without ``may_run`` no host asks its interpreter for its version."""
    settings = parse_pyvenv_config(read_if_present(host.read_text, f"{prefix}/pyvenv.cfg") or "")
    conda = None if settings else read_if_present(host.list_directory, f"{prefix}/conda-meta")
    kind = "venv" if settings else "conda" if conda is not None else "system"
    known_version, where, gap = (
        (version, source, "") if version else _find_python_version(host, prefix, path, settings, conda or (), may_run)
    )
    python_path = _list_python_path(host)
    folders = _find_site_folders(host, prefix, known_version, kind, settings)
    site = _existing_folders(host, [*python_path, *folders, *_list_pth_folders(host, folders)])
    made_for, made_with = settings.get(MADE_FOR_KEY, ""), _noted_version(settings)
    base = settings.get("home", "").rpartition("/")[0] or prefix
    return TargetEnvironment(
        prefix,
        path,
        kind,
        known_version,
        site,
        source,
        where,
        gap,
        made_for=made_for,
        machine=settings.get(MACHINE_KEY, ""),
        python_path=python_path,
        base=base,
        made_with=made_with if known_version and _minor(known_version) != _minor(made_with) else "",
    )


def skips_current_folder(host: HostAccess, target: TargetEnvironment) -> bool:
    """Whether PYTHONSAFEPATH keeps the folder of a script, and the current one, off the path; Python heeds it from 3.11 on."""
    knows_it = bool(target.version) and compare_versions(target.version or "", "3.11") >= 0
    return knows_it and bool(read_if_present(host.get_env_var, "PYTHONSAFEPATH"))


def _list_python_path(host: HostAccess) -> tuple[str, ...]:
    """Folders of PYTHONPATH, which Python searches before its own."""
    words = (read_if_present(host.get_env_var, "PYTHONPATH") or "").split(":")
    return _existing_folders(host, [word.rstrip("/") for word in words if word.startswith("/")]) if any(words) else ()


def _list_pth_folders(host: HostAccess, folders: Iterable[str]) -> list[str]:
    """Folders that plain lines of .pth files add; a line that begins with ``import`` is code, and is not run."""
    found = islice(_list_pth_lines(host, folders), MAX_PTH_LINES)
    lines = [(at, line) for at, line in found if line and not line.startswith(("#", "import ", "import\t"))]
    return [(line if line.startswith("/") else f"{at}/{line.removeprefix('./')}").rstrip("/") for at, line in lines]


def _list_pth_lines(host: HostAccess, folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for name in read_if_present(host.list_directory, folder) or ():
            if name.endswith(".pth") and not name.startswith("."):
                text = read_if_present(host.read_text, f"{folder}/{name}") or ""
                yield from ((folder, line.strip()) for line in text.splitlines())


def parse_pyvenv_config(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}


def _find_python_version(
    host: HostAccess, prefix: str, path: str, settings: dict[str, str], conda: Iterable[str], may_run: bool
) -> tuple[str | None, str, str]:
    """Return the version, its source, and why it is unknown."""
    configured = _noted_version(settings)
    if configured and not _is_of_other_minor(host, prefix, path, configured):
        return configured, f"{prefix}/pyvenv.cfg", ""
    for name in conda:
        words = name.removesuffix(".json").split("-")
        if words[0] == "python" and len(words) == 3 and words[1][:1].isdigit():
            return words[1], f"{prefix}/conda-meta/{name}", ""
    own = read_if_present(host.get_interpreter, default={})
    if own and is_same_file(host, own["executable"], path):
        return own["version"], path, ""
    exact, where = read_exact_version(host, prefix, path)
    if exact:
        return exact, where, ""
    asked = _ask_version(host, path) if may_run and host.may_start_python else (None, "", "")
    minor, where = read_minor_version(host, prefix, path) if asked[0] is None else ("", "")
    if minor:
        return minor, where, ""
    return asked if asked[1] else (None, f"{prefix}/lib", f"no file of {prefix} has its version")


def _noted_version(settings: dict[str, str]) -> str:
    """The version of the Python that made a virtual environment, as pyvenv.cfg has it: ``3.11.7.final.0`` -> ``3.11.7``."""
    configured = settings.get("version") or settings.get("version_info") or ""
    return ".".join((leading_version(configured) or "").split(".")[:3]) if configured[:1].isdigit() else ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _is_of_other_minor(host: HostAccess, prefix: str, path: str, version: str) -> bool:
    """Whether the program is another Python than pyvenv.cfg has: a link such as /usr/bin/python3 leads to a newer one by now."""
    real = read_if_present(host.resolve_path, path, default=path)
    base, is_python = _prefix_of(real), "python" in real.rpartition("/")[2]
    named = read_minor_version(host, base, path)[0] if is_python and base != prefix else read_named_minor(real)
    return bool(named) and named != _minor(version)


def _ask_version(host: HostAccess, path: str) -> tuple[str | None, str, str]:
    ran = host.run([path, "-V"])
    output = (ran.out or ran.err).strip()  # Python 2 writes it to stderr
    if output.startswith("Python ") and (version := leading_version(output[7:])):
        return version, f"{path} -V", ""
    return None, f"{path} -V", ran.end or f"{path} -V ended with {ran.rc}"


def is_same_file(host: HostAccess, one: str, other: str) -> bool:
    real = read_if_present(host.resolve_path, one)
    return bool(real) and real == read_if_present(host.resolve_path, other)


def _find_site_folders(
    host: HostAccess, prefix: str, version: str | None, kind: str, settings: dict[str, str]
) -> tuple[str, ...]:
    """Return the import folders in order; an unknown version is taken from their names."""
    minors = [".".join(version.split(".")[:2])] if version else list_python_minors(host, prefix)
    folders = [f"{prefix}/{lib}/python{minor}/site-packages" for minor in minors for lib in ("lib", "lib64")]
    shared = settings.get("include-system-site-packages", "true").lower() == "true"  # as Python takes it
    if kind == "system":
        folders = [*_user_site_folders(host, minors), *_debian_site_folders(prefix, minors), *folders]
    elif kind == "conda":
        folders = [*_user_site_folders(host, minors), *folders]
    elif shared:
        base = settings.get("home", "").rpartition("/")[0] or "/usr"
        theirs = [f"{base}/{lib}/python{minor}/site-packages" for minor in minors for lib in ("lib", "lib64")]
        folders += [*_user_site_folders(host, minors), *_debian_site_folders(base, minors), *theirs]
    return _existing_folders(host, folders)


def _user_site_folders(host: HostAccess, minors: list[str]) -> list[str]:
    home = read_if_present(host.get_env_var, "HOME")
    if not home or read_if_present(host.get_env_var, "PYTHONNOUSERSITE"):
        return []
    base = read_if_present(host.get_env_var, "PYTHONUSERBASE") or f"{home}/.local"
    return [f"{base}/lib/python{minor}/site-packages" for minor in minors]


def _debian_site_folders(prefix: str, minors: list[str]) -> list[str]:
    if prefix not in ("/usr", "/"):
        return []
    local = [f"/usr/local/lib/python{minor}/dist-packages" for minor in minors]
    return [*local, "/usr/lib/python3/dist-packages"]


def _existing_folders(host: HostAccess, folders: list[str]) -> tuple[str, ...]:
    """Existing folders, once each (lib64 is often a link to lib); unreadable ones are kept."""
    folder_by_real_path: dict[str, str] = {}
    for folder in folders:
        if read_if_present(host.stat_path, folder, default=True):
            folder_by_real_path.setdefault(read_if_present(host.resolve_path, folder, default=folder), folder)
    return tuple(folder_by_real_path.values())


LETTERS = "abcdefghijklmnopqrstuvwxyz-"


def read_exact_version(host: HostAccess, prefix: str, path: str) -> tuple[str, str]:
    """Return the version with its patch level, and the file that has it; two empty texts where no file has."""
    real = read_if_present(host.resolve_path, path, default=path)
    minor = read_minor_version(host, prefix, path)[0]
    for base in dict.fromkeys((prefix, _prefix_of(real))) if minor else ():
        header = f"{base}/include/python{minor}/patchlevel.h"
        # #define PY_VERSION              "3.11.7"
        text = read_if_present(host.read_text, header) or ""
        version = leading_version(text.partition("define PY_VERSION ")[2].lstrip(' \t"'))
        if version and _is_of_minor(version, minor):
            return version, header
    for file in _code_files(host, real) if minor else ():
        texts = read_if_present(host.find_elf_strings, file, ".rodata", (f"{minor}.",)) or ()
        found = {text for text in texts if leading_version(text) == text and _is_of_minor(text, minor)}
        if len(found) == 1:
            return found.pop(), f"the version string in {file}"
    return "", ""


def read_minor_version(host: HostAccess, prefix: str, path: str) -> tuple[str, str]:
    """Return ``3.11`` by the name of the program, of its library or of ``lib/python3.11``, and which of them it was."""
    real = read_if_present(host.resolve_path, path, default=path)
    for file in (real, *(name for name in _linked_libraries(host, real) if name.startswith("libpython"))):
        minor = read_named_minor(file)
        if minor:
            return minor, real
    for base in dict.fromkeys((_prefix_of(real), prefix)):
        minors = list_python_minors(host, base)
        if len(minors) == 1:
            return minors[0], f"{base}/lib/python{minors[0]}"
    return "", ""


def read_named_minor(path: str) -> str:
    """``3.11`` of /usr/bin/python3.11 or libpython3.11.so; empty where the name does not tell."""
    return _leading_minor(path.rpartition("/")[2].lstrip(LETTERS))


def list_python_minors(host: HostAccess, prefix: str) -> list[str]:
    """List the versions that have a folder of packages in a prefix, such as ``lib/python3.11``."""
    names = read_if_present(host.list_directory, f"{prefix}/lib") or ()
    return [name[6:] for name in names if name.startswith("python3.")]


def _prefix_of(program: str) -> str:
    return program.rpartition("/")[0].rpartition("/")[0]


def _leading_minor(text: str) -> str:
    parts = (leading_version(text) or "").split(".")
    return ".".join(parts[:2]) if len(parts) > 1 and parts[0] in ("2", "3") else ""


def _is_of_minor(version: str, minor: str) -> bool:
    return version.startswith(f"{minor}.") and len(version.split(".")) == 3


def _linked_libraries(host: HostAccess, real: str) -> list[str]:
    return [str(name) for name in (read_if_present(host.read_elf_headers, real) or {}).get("needed", ())]


def _code_files(host: HostAccess, real: str) -> Iterator[str]:
    """The shared library with the interpreter's code where it is linked to one, else the program itself."""
    shared = [name for name in _linked_libraries(host, real) if name.startswith("libpython")]
    yield from (f"{_prefix_of(real)}/lib/{name}" for name in shared)
    if not shared:
        yield real
