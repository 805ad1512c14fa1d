"""Extension modules that do not load beside the installed numpy.

Every module that uses numpy's C interface has the code that imports it from numpy's header. That of numpy 1 imports
``numpy.core._multiarray_umath``, which numpy 2 refuses. That of numpy 2 tries ``numpy._core`` first, and runs with both
unless the module was compiled for a newer interface, whose version its message has, or the package itself refuses numpy 1.
"""

import os
import re
from collections.abc import Iterable, Sequence

from gpuready.model.metadata import parse_requirement
from gpuready.model.versions import is_satisfied
from gpuready.system import elf
from gpuready.system.host_access import AccessError
from gpuready.system.imports.distributions import Distribution
from gpuready.system.imports.libraries import Loader
from gpuready.system.imports.watched_files import get_size, note_path, open_regular, path_exists

USES_NUMPY = b"module compiled against ABI version 0x"
KNOWS_NUMPY_TWO = b"numpy._core"
OLDEST_NUMPY = re.compile(rb"C-API version 0x%x \(NumPy (\d{1,3}\.\d{1,3})")
"""``module was compiled against NumPy C-API version 0x%x (NumPy 2.0) but the running NumPy has``, since the headers of numpy 2."""
MAX_FILES = 24
MAX_BYTES = 96 << 20
"""How much of one distribution is read for a module that uses numpy; its modules are compiled together, so that one tells."""
REFUSES_NUMPY_ONE = {"pyarrow": ">=26"}
"""Distributions that refuse numpy 1 when they are imported, and do not require numpy: pyarrow 26 lib.pyx, apache/arrow#50769."""
TORCH_PREFIXES = ("libtorch", "libc10")


def list_refused_modules(
    copy: Distribution, modules: Sequence[str], files: Sequence[str], loader: Loader, numpy: str
) -> list[tuple[str, str]]:
    """Return the extension modules of a distribution that fail beside this numpy, each with the numpy that it takes: ``>=2``, ``<2``."""
    if not is_satisfied(numpy, ">=2"):
        oldest = _find_oldest_numpy(copy, modules, files, loader)
        refuses = bool(oldest) and not is_satisfied(numpy, f">={oldest}")
        return [(path, f">={oldest}") for path in modules] if refuses else []
    if not any(map(leaves_numpy_open, copy.list_requirements())):
        return []
    return [(path, "<2") for path in list_modules_for_numpy_one(modules, files, loader)]


def _find_oldest_numpy(copy: Distribution, modules: Sequence[str], files: Sequence[str], loader: Loader) -> str:
    """The oldest numpy that a distribution takes: as its code says, or as its modules were compiled; empty if neither tells."""
    if is_satisfied(copy.get_version(), REFUSES_NUMPY_ONE.get(copy.name, "<0")):
        return "2"
    if not any(parse_requirement(text)[0] == "numpy" for text in copy.list_requirements()):
        return ""
    first = _read_first_user(_list_libraries(modules, files), modules, loader)
    match = OLDEST_NUMPY.search(first)
    return match[1].decode() if match else ""


def leaves_numpy_open(requirement: str) -> bool:
    """Return whether a distribution requires numpy without a word of numpy 2: ``numpy>=1.26``, and not ``numpy>=2,<2.3``."""
    name, _, specifier, _ = parse_requirement(requirement)
    bounds = re.findall(r"(<=?|>=?|~=|==)(\d+)((?:\.\d+)?)", specifier)
    knows = [sign != "<" or minor not in ("", ".0") for sign, major, minor in bounds if int(major) == 2]
    return name == "numpy" and not any(knows) and all(int(major) <= 2 for _, major, _ in bounds)


def list_modules_for_numpy_one(modules: Sequence[str], files: Sequence[str], loader: Loader) -> list[str]:
    """Return those extension modules of a distribution that numpy 2 refuses; ``files`` are all of its libraries."""
    libraries = _list_libraries(modules, files)
    first = _read_first_user(libraries, modules, loader)
    if not first or KNOWS_NUMPY_TWO in first:
        return []
    known = {path: is_for_numpy_one(path) for path in (*libraries, *modules)}
    loaded = {os.path.basename(path) for path in libraries if known[path]}
    return [path for path in modules if known[path] or not loaded.isdisjoint(_needed(path, loader))]


def _list_libraries(modules: Sequence[str], files: Sequence[str]) -> list[str]:
    """The libraries of a distribution that may have the code for numpy of all its modules: ``libarrow_python.so``."""
    return [path for path in files if path not in modules and "python" in os.path.basename(path)]


def _read_first_user(libraries: Iterable[str], modules: Iterable[str], loader: Loader) -> bytes:
    """The texts of the first file that uses numpy, smaller ones first. What is linked to torch takes arrays from torch."""
    sizes = {path: get_size(path) for path in (*libraries, *modules) if path_exists(path)}
    budget = MAX_BYTES
    for path in sorted(sizes, key=lambda path: sizes[path])[:MAX_FILES]:
        if sizes[path] > budget:
            break
        if any(name.startswith(TORCH_PREFIXES) for name in _needed(path, loader)):
            continue
        budget -= sizes[path]
        if data := _read_texts_of_user(path):
            return data
    return b""


def is_for_numpy_one(path: str) -> bool:
    """Return whether a file uses numpy, and was compiled with the headers of numpy 1."""
    data = _read_texts_of_user(path)
    return bool(data) and KNOWS_NUMPY_TWO not in data


def _read_texts_of_user(path: str) -> bytes:
    """The constant texts of a file that uses numpy; empty if it does not, or cannot be read."""
    try:
        note_path(path)
        place = elf.locate_section(path, ".rodata")
        if place is None:
            return b""
        with open(path, "rb", opener=open_regular) as file:
            file.seek(place[0])
            data = file.read(min(place[1], MAX_BYTES))
    except (OSError, AccessError):
        return b""
    return data if USES_NUMPY in data else b""


def _needed(path: str, loader: Loader) -> tuple[str, ...]:
    header = loader.read_header(path)
    return tuple(header.get("needed") or ()) if isinstance(header, dict) else ()
