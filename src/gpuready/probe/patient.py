"""The target environment: the Python environment that is checked. Only its files are read, nothing is imported."""

from __future__ import annotations

from gpuready.model import Noun
from gpuready.probe.sight import digits, glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.system import Door

OWN = "the Python that runs gpuready"
HINT = "give a Python interpreter, a virtual environment or a conda prefix"
ASK = "import sys; sys.stdout.write(sys.prefix + '\\n' + sys.executable + '\\n' + sys.version.split()[0])"
"""Run by a launcher script, whose path says nothing; with -I and -S, so no site hooks run."""


class Patient(Noun):
    """One Python environment. ``source`` says what chose it; ``gap`` why its version is unknown."""

    prefix: str
    path: str
    kind: str  # venv, conda, system
    version: str | None
    site: tuple[str, ...]
    source: str
    version_source: str = ""
    gap: str = ""


def patient(door: Door, python: str | None = None) -> Patient:
    """Return the named environment, else the active one, else the one that runs gpuready.

    ValueError, in one sentence, if a named one is not a Python 3.
    """
    if python is not None:
        return _named(door, python)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = (glimpse(door.env, name) or "").rstrip("/")
        path = glimpse(_interpreter, door, prefix) if prefix else None
        if path:
            return _made(door, prefix, path, name)
    try:
        own = door.interpreter()
    except Blind as blind:
        return Patient("", "", "", None, (), OWN, OWN, str(blind))
    return _made(door, own["prefix"], own["executable"], OWN, own["version"])


def _named(door: Door, python: str) -> Patient:
    path = _absolute(door, python)
    try:
        status = door.stat(path)
    except Blind as blind:
        raise ValueError(f"--python {python} cannot be seen: {blind}") from None
    if status is None:
        raise ValueError(f"--python {python}: there is no such file or folder; {HINT}")
    if status["kind"] == "link":
        raise ValueError(
            f"--python {python} is a link to nothing: the Python it was made from is gone; {HINT}"
        )
    if status["kind"] == "dir":
        inside = _interpreter(door, path)
        if inside is None:
            raise ValueError(f"--python {python} is a folder without bin/python; {HINT}")
        return _python3(_made(door, path, inside, "--python"), python)
    if status["kind"] != "file" or not status["mode"] & 0o111:
        raise ValueError(f"--python {python} is not an executable file; {HINT}")
    return _python3(_of_file(door, path, python), python)


def _absolute(door: Door, python: str) -> str:
    path = python.rstrip("/") or "/"
    if path.startswith("~/"):
        path = f"{door.env('HOME') or ''}{path[1:]}"
    if path.startswith("/"):
        return path
    here = f"{door.cwd()}/{path}"
    return here if "/" in path or door.stat(here) else door.which(path) or here


def _python3(found: Patient, python: str) -> Patient:
    if found.version is None:
        raise ValueError(f"--python {python} does not say which Python it is: {found.gap}; {HINT}")
    if found.version.startswith("2."):
        raise ValueError(f"--python {python} is Python {found.version}; name one of Python 3")
    return found


def _of_file(door: Door, path: str, python: str) -> Patient:
    """The environment of an interpreter: by the pyvenv.cfg beside it, else by its real path."""
    if (door.read(path, 2) or "") == "#!":
        return _asked(door, path, python)
    for prefix in (path.rpartition("/")[0].rpartition("/")[0], path.rpartition("/")[0]):
        if door.stat(f"{prefix}/pyvenv.cfg"):
            return _made(door, prefix, path, "--python")
    real = door.real(path)
    return _made(door, real.rpartition("/")[0].rpartition("/")[0] or "/", path, "--python")


def _asked(door: Door, path: str, python: str) -> Patient:
    """Run a launcher (pyenv's, a wrapper) to find out what it launches."""
    ran = door.run([path, "-I", "-S", "-c", ASK])
    lines = ran.out.splitlines()
    version = digits(lines[2]) if len(lines) > 2 else None
    if ran.rc != 0 or version is None:
        said = (ran.err or ran.out).strip().splitlines()
        why = ran.end or (said[0][:120] if said else f"it ended with {ran.rc}")
        raise ValueError(f"--python {python} is a script that does not start a Python 3: {why}; {HINT}")
    # Without site hooks a virtual environment reports its base Python; pyvenv.cfg identifies it.
    own = lines[1].rpartition("/")[0].rpartition("/")[0]
    prefix = own if glimpse(door.stat, f"{own}/pyvenv.cfg") else lines[0]
    return _made(door, prefix, lines[1], "--python", version)


def _interpreter(door: Door, prefix: str) -> str | None:
    """Return the interpreter of a prefix, unless it is missing or a dangling link."""
    for name in ("python", "python3"):
        status = door.stat(f"{prefix}/bin/{name}")
        if status and status["kind"] == "file":
            return f"{prefix}/bin/{name}"
    return None


# -- properties of an environment ---------------------------------------------------------------------


def _made(door: Door, prefix: str, path: str, source: str, version: str | None = None) -> Patient:
    settings = config(glimpse(door.read, f"{prefix}/pyvenv.cfg") or "")
    conda = None if settings else glimpse(door.list, f"{prefix}/conda-meta")
    kind = "venv" if settings else "conda" if conda is not None else "system"
    told, where, gap = (
        (version, source, "") if version else _version(door, prefix, path, settings, conda or ())
    )
    site = _site(door, prefix, told, kind, settings)
    return Patient(prefix, path, kind, told, site, source, where, gap)


def config(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}


def _version(
    door: Door, prefix: str, path: str, settings: dict[str, str], conda: Iterable[str]
) -> tuple[str | None, str, str]:
    """Return the version, its source, and why it is unknown."""
    written = settings.get("version") or settings.get("version_info") or ""
    if written[:1].isdigit():
        return ".".join((digits(written) or "").split(".")[:3]), f"{prefix}/pyvenv.cfg", ""
    for name in conda:
        words = name.removesuffix(".json").split("-")
        if words[0] == "python" and len(words) == 3 and words[1][:1].isdigit():
            return words[1], f"{prefix}/conda-meta/{name}", ""
    ran = door.run([path, "-V"])
    said = (ran.out or ran.err).strip()  # Python 2 writes it to stderr
    if said.startswith("Python ") and (version := digits(said[7:])):
        return version, f"{path} -V", ""
    return None, f"{path} -V", ran.end or f"{path} -V ended with {ran.rc}"


def _site(
    door: Door, prefix: str, version: str | None, kind: str, settings: dict[str, str]
) -> tuple[str, ...]:
    """Return the import folders in order; an unknown version is taken from their names."""
    minors = [".".join(version.split(".")[:2])] if version else _minors(door, prefix)
    folders = [f"{prefix}/{lib}/python{minor}/site-packages" for minor in minors for lib in ("lib", "lib64")]
    shared = settings.get("include-system-site-packages", "").lower() == "true"
    if kind == "system":
        folders = [*_user(door, minors), *_debian(prefix, minors), *folders]
    elif kind == "conda":
        folders = [*_user(door, minors), *folders]
    elif shared:
        base = settings.get("home", "").rpartition("/")[0] or "/usr"
        theirs = [f"{base}/{lib}/python{minor}/site-packages" for minor in minors for lib in ("lib", "lib64")]
        folders += [*_user(door, minors), *_debian(base, minors), *theirs]
    return _existing(door, folders)


def _minors(door: Door, prefix: str) -> list[str]:
    names = glimpse(door.list, f"{prefix}/lib") or ()
    return [name[6:] for name in names if name.startswith("python3.")]


def _user(door: Door, minors: list[str]) -> list[str]:
    home = glimpse(door.env, "HOME")
    if not home or glimpse(door.env, "PYTHONNOUSERSITE"):
        return []
    base = glimpse(door.env, "PYTHONUSERBASE") or f"{home}/.local"
    return [f"{base}/lib/python{minor}/site-packages" for minor in minors]


def _debian(prefix: str, minors: list[str]) -> list[str]:
    if prefix not in ("/usr", "/"):
        return []
    local = [f"/usr/local/lib/python{minor}/dist-packages" for minor in minors]
    return [*local, "/usr/lib/python3/dist-packages"]


def _existing(door: Door, folders: list[str]) -> tuple[str, ...]:
    """Existing folders, once each (lib64 is often a link to lib); unreadable ones are kept."""
    found: dict[str, str] = {}
    for folder in folders:
        if glimpse(door.stat, folder, otherwise=True):
            found.setdefault(glimpse(door.real, folder, otherwise=folder), folder)
    return tuple(found.values())
