"""Why the files of an environment do not tell whether it imports: what nobody recorded, and what was touched since."""

from collections.abc import Iterable, Iterator

from gpuready.system.host_access import MAX_PTH_LINES
from gpuready.system.imports.hidden_modules import SearchedEnvironment
from gpuready.system.imports.search_path import KNOWN_HOOKS
from gpuready.system.imports.watched_files import get_write_time

MAX_REASONS = 20
STARTUP_MODULES = ("sitecustomize", "usercustomize")
LIBRARY_MODULES = ("_bz2", "_ctypes", "_hashlib", "_lzma", "_ssl")
"""Of the standard library, what needs a library of the system; all else of Python is built anyhow."""
TOUCHED_SECONDS = 3600.0
"""How much later than most of its neighbours a file of the standard library was written, if somebody edited it."""


def list_reasons(survey: SearchedEnvironment, names: Iterable[str]) -> list[str]:
    """``numpy/version.py: written after it was installed``: what only an import can judge."""
    unchecked = {name: survey.unchecked[name] for name in names if name in survey.unchecked}
    found = [*survey.reasons.items(), *unchecked.items(), *_list_startup_code(survey)]
    found += [*_list_touched_stdlib(survey), *_list_unbuilt_stdlib(survey)]
    found += [(name, "torch imports it") for name, [copy, *_] in survey.copies.items() if copy.is_torch_backend()]
    found += [(name, "set in the environment") for name in survey.request.get("variables") or ()]
    return [f"{what}: {why}" for what, why in dict(found).items()][:MAX_REASONS]


def _list_startup_code(survey: SearchedEnvironment) -> Iterator[tuple[str, str]]:
    """Code that runs whenever this Python starts and that no package brought: ``sitecustomize.py``, lines of .pth files."""
    hooks = [path for path in dict.fromkeys(survey.path.hooks) if path.rpartition("/")[2] not in KNOWN_HOOKS]
    recorded = _list_recorded_hooks(survey) if hooks else set()
    yield from ((path, "it runs code when Python starts") for path in hooks if path not in recorded)
    yield from ((path, f"not read beyond {MAX_PTH_LINES} lines of all .pth files") for path in survey.path.unread)
    for folder in survey.path.folders:
        for name in STARTUP_MODULES:
            if path := survey.shadows.find_module_file(folder, name):
                yield path, "it runs whenever Python starts"


def _list_recorded_hooks(survey: SearchedEnvironment) -> set[str]:
    copies = [copy for copies in survey.copies.values() for copy in copies]
    return {f"{copy.site}/{name}" for copy in copies for name in copy.list_hooks()}


def _list_touched_stdlib(survey: SearchedEnvironment) -> Iterator[tuple[str, str]]:
    """Modules of the standard library that were written long after the others, or of which only the byte-code is left."""
    stdlib = str(survey.request.get("stdlib") or "")
    names = [name for name in survey.path.list_folder(stdlib) if name.endswith(".py") and not name.startswith("_sysc")]
    times = {name: get_write_time(f"{stdlib}/{name}") for name in names} if "os.py" in names else {}
    compiled = survey.path.list_folder(f"{stdlib}/__pycache__") if times else ()
    gone = {name.partition(".")[0] for name in compiled} - {name.removesuffix(".py") for name in names}
    yield from ((f"{stdlib}/{name}.py", "its source is gone") for name in sorted(gone) if not name.startswith("_sysc"))
    usual = sorted(times.values())[len(times) // 2] if times else 0.0
    for name, time in times.items():
        if time > usual + TOUCHED_SECONDS:
            yield f"{stdlib}/{name}", "written after Python was installed"


def _list_unbuilt_stdlib(survey: SearchedEnvironment) -> Iterator[tuple[str, str]]:
    """Modules that a Python lacks which was built where their library was missing; one with all of them inside has no folder."""
    folder = f"{survey.request.get('stdlib') or ''}/lib-dynload"
    built = {name.partition(".")[0] for name in survey.path.list_folder(folder)}
    yield from (
        (f"{folder}/{name}", "Python was built without it") for name in LIBRARY_MODULES if built and name not in built
    )
