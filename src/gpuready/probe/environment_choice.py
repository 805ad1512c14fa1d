"""Which Python environment is examined: the user's, never the one that gpuready was installed into for itself."""

from collections.abc import Iterator

from gpuready.probe.fact_helpers import read_if_present
from gpuready.probe.target_environment import (
    RUN_HINT,
    TargetEnvironment,
    UnstartedLauncher,
    describe_environment,
    environment_of_interpreter,
    find_interpreter,
    find_named_environment,
    is_same_file,
    parse_pyvenv_config,
)
from gpuready.system import AccessError, HostAccess

NO_ENVIRONMENT = (
    "no Python environment found to examine: none is active, this folder has none, and PATH has no python3 but "
    "gpuready's own; name one with --python PATH, or make one with `gpuready install FRAMEWORK -e DIR`"
)
NOTHING_FOUND = TargetEnvironment("", "", "", None, (), "PATH", "PATH", NO_ENVIRONMENT, "")
TOOL_RECEIPTS = ("uv-receipt.toml", "pipx_metadata.json")
"""Files in an environment that `uv tool install` or pipx made for one program."""
UV_CACHE_BUCKETS = ("archive-v", "builds-v")
"""Folders of uv's cache in which `uvx` and `uv run --with` make environments."""
POETRY = 'poetry keeps this project\'s environment and it is not active: --python "$(poetry env info --executable)"'
HATCH = 'hatch keeps this project\'s environment and it is not active: --python "$(hatch env find)"'


def choose_environment(host: HostAccess, python: str | None = None) -> TargetEnvironment:
    """Return the named environment, else the first that the user works in; one without a prefix where there is none.

    What was passed over because its Python is gone stands in ``chosen_by``, or in the gap where nothing was found.
    ValueError, in one sentence, if a named one is not a Python 3.
    """
    if python is not None:
        return find_named_environment(host, python)
    broken: dict[str, str] = {}
    try:
        chosen = next(_list_environments(host, broken), NOTHING_FOUND)
    except AccessError as error:
        return NOTHING_FOUND.replace(gap=str(error))
    if not broken:
        return chosen
    passed_over = f"no working Python in {' or '.join(broken.values())}"
    if not chosen.prefix:
        return chosen.replace(gap=f"{passed_over}; {chosen.gap}")
    return chosen.replace(chosen_by=f"{chosen.chosen_by}; {passed_over}")


def has_chosen_environment(host: HostAccess) -> bool:
    """Whether an environment is active or this folder has one: the user's word for what he works in."""
    own, found = OwnEnvironment(host), read_if_present(choose_environment, host) or NOTHING_FOUND
    why = found.chosen_by.partition(";")[0]
    is_chosen = why.startswith("active ") or why.endswith((".venv", " project"))
    return is_chosen and not own.is_ours_alone(found)


def choose_interpreter(host: HostAccess, python: str | None = None) -> str:
    """Return the interpreter of that environment, to run something in it; ValueError where there is none."""
    chosen = choose_environment(host, python)
    if not chosen.path:
        raise ValueError(chosen.gap)
    return chosen.path


def _list_environments(host: HostAccess, broken: dict[str, str]) -> Iterator[TargetEnvironment]:
    """Yield candidates in order, and note in ``broken`` those whose Python is gone. An active conda base is the default of many shells: a project's environment precedes."""
    own = OwnEnvironment(host)
    if own.is_library and not own.is_tool:
        yield from own.describe("this Python process")
    is_base = read_if_present(host.get_env_var, "CONDA_DEFAULT_ENV") == "base"
    yield from _active_environment(host, own, broken, "VIRTUAL_ENV", "active venv")
    if not is_base:
        yield from _active_environment(host, own, broken, "CONDA_PREFIX", "active conda environment")
    yield from _project_environment(host, broken)
    if is_base:
        yield from _active_environment(host, own, broken, "CONDA_PREFIX", "active conda environment")
    if not own.is_tool and own.has_torch():
        yield from own.describe("gpuready is installed in it")
    yield from _environments_on_path(host, own)


class OwnEnvironment:
    """The environment that gpuready runs in."""

    def __init__(self, host: HostAccess):
        self.host = host
        self.interpreter = read_if_present(host.get_interpreter, default={})
        self.prefix = self.interpreter.get("prefix", "")
        self.is_library = self.interpreter.get("role") == "library"
        self.is_tool = is_tool_environment(host, self.prefix)
        self._described: TargetEnvironment | None = None

    def is_same(self, prefix: str) -> bool:
        return prefix == self.prefix or is_same_file(self.host, prefix, self.prefix)

    def describe(self, chosen_by: str) -> Iterator[TargetEnvironment]:
        if self.prefix and self._described is None:
            running = self.interpreter
            self._described = describe_environment(
                self.host, self.prefix, running["executable"], "the Python that runs gpuready", running["version"]
            )
        if self._described is not None:
            yield self._described.replace(chosen_by=chosen_by)

    def has_torch(self) -> bool:
        """Whether somebody works in it: gpuready needs no torch for itself."""
        sites = next((found.site for found in self.describe("")), ())
        return any("torch" in (read_if_present(self.host.list_directory, site) or ()) for site in sites)

    def is_ours_alone(self, found: TargetEnvironment) -> bool:
        """Whether this is a virtual environment that was made for gpuready."""
        if is_tool_environment(self.host, found.prefix):
            return True
        return found.kind == "venv" and self.is_same(found.prefix) and not self.has_torch()


def is_tool_environment(host: HostAccess, prefix: str) -> bool:
    """Whether uv or pipx made it to run one program: uvx, uv run --with, uv tool install, pipx."""
    bucket = prefix.rpartition("/")[0].rpartition("/")[2]
    if bucket.startswith(UV_CACHE_BUCKETS) and bucket[-1:].isdigit():
        return True
    return any(read_if_present(host.stat_path, f"{prefix}/{name}") for name in TOOL_RECEIPTS)


def _active_environment(
    host: HostAccess, own: OwnEnvironment, broken: dict[str, str], variable: str, chosen_by: str
) -> Iterator[TargetEnvironment]:
    prefix = (read_if_present(host.get_env_var, variable) or "").rstrip("/")
    if not prefix:
        return
    # `uv run --with` activates an environment of its own, and names there the user's: extends-environment = /p/.venv
    config = parse_pyvenv_config(read_if_present(host.read_text, f"{prefix}/pyvenv.cfg") or "")
    prefix = config.get("extends-environment", prefix)
    path = read_if_present(find_interpreter, host, prefix)
    if not path:
        broken.setdefault(prefix, f"{prefix} ({variable})")
    elif not (own.is_tool and own.is_same(prefix)):
        yield describe_environment(host, prefix, path, variable).replace(chosen_by=chosen_by)


def _project_environment(host: HostAccess, broken: dict[str, str]) -> Iterator[TargetEnvironment]:
    """The environment of the project in the current folder. Its files may be a stranger's: nothing of them is run."""
    here = read_if_present(host.get_cwd) or ""
    for folder in _project_folders(host, here):
        if read_if_present(host.stat_path, f"{folder}/src/gpuready/__init__.py"):
            return  # gpuready's own sources: the environments beside them are for its development
        for prefix, chosen_by in _project_prefixes(host, folder, here):
            path = read_if_present(find_interpreter, host, prefix)
            if path:
                yield describe_environment(host, prefix, path, prefix, may_run=False).replace(chosen_by=chosen_by)
            elif read_if_present(host.stat_path, f"{prefix}/pyvenv.cfg"):
                broken.setdefault(prefix, chosen_by if "/" in chosen_by else prefix)
        if read_if_present(host.stat_path, f"{folder}/poetry.lock"):
            yield NOTHING_FOUND.replace(gap=POETRY)
        elif "[tool.hatch.envs" in (read_if_present(host.read_text, f"{folder}/pyproject.toml") or ""):
            yield NOTHING_FOUND.replace(gap=HATCH)


def _project_folders(host: HostAccess, here: str) -> list[str]:
    """The current folder, and those above it up to the top of its git repository."""
    folders = [here] if here.startswith("/") else []
    home = read_if_present(host.get_env_var, "HOME")
    folder = here
    while folder not in ("", home):
        if folder not in folders:
            folders.append(folder)
        if read_if_present(host.stat_path, f"{folder}/.git"):
            return folders
        folder = folder.rpartition("/")[0]
    return folders[:1]


def _project_prefixes(host: HostAccess, folder: str, here: str) -> Iterator[tuple[str, str]]:
    described = read_if_present(host.stat_path, f"{folder}/pyproject.toml")
    configured = read_if_present(host.get_env_var, "UV_PROJECT_ENVIRONMENT") if described else ""
    if configured:
        yield (configured if configured.startswith("/") else f"{folder}/{configured}").rstrip("/"), "uv project"
    yield f"{folder}/.venv", "./.venv" if folder == here else f"{folder}/.venv"
    yield f"{folder}/.pixi/envs/default", "pixi project"


# -- PATH ---------------------------------------------------------------------------------------------


def _environments_on_path(host: HostAccess, own: OwnEnvironment) -> Iterator[TargetEnvironment]:
    for folder in dict.fromkeys((host.get_env_var("PATH") or "").split(":")):
        path = f"{folder.rstrip('/')}/python3"
        status = read_if_present(host.stat_path, path) if folder.startswith("/") else None
        if not status or status["kind"] != "file" or not status["mode"] & 0o111:
            continue
        path = _pyenv_interpreter(host, folder) or path
        try:
            found = environment_of_interpreter(host, path, path, "PATH")
        except UnstartedLauncher as unknown:
            yield NOTHING_FOUND.replace(gap=f"python3 on PATH: {unknown}; {RUN_HINT}")
            return
        except (AccessError, ValueError):
            continue  # a launcher that starts no Python 3
        if not own.is_ours_alone(found):
            yield found.replace(chosen_by="python3 on PATH")


def _pyenv_interpreter(host: HostAccess, shims: str) -> str | None:
    """What pyenv's shim would start, by the files that pyenv reads: running its script takes longer than a check."""
    root = shims.rstrip("/").removesuffix("/shims")
    if root == shims.rstrip("/") or not read_if_present(host.stat_path, f"{root}/versions"):
        return None
    for version in _pyenv_versions(host, root):
        path = f"{root}/versions/{version}/bin/python3"
        if "/" not in version and read_if_present(host.stat_path, path):
            return path
    return None


def _pyenv_versions(host: HostAccess, root: str) -> list[str]:
    """PYENV_VERSION, else .python-version of this folder or one above it, else pyenv's own version file."""
    configured = (read_if_present(host.get_env_var, "PYENV_VERSION") or "").replace(":", "\n")
    folder = read_if_present(host.get_cwd) or ""
    while folder and not configured:
        configured = read_if_present(host.read_text, f"{folder}/.python-version") or ""
        folder = folder.rpartition("/")[0]
    return (configured or read_if_present(host.read_text, f"{root}/version") or "").split()
