"""Extension modules that do not load beside the installed numpy.

Every module that uses numpy's C interface has the code that imports it from numpy's header. That of numpy 1 imports
``numpy.core._multiarray_umath``, which numpy 2 refuses. That of numpy 2 tries ``numpy._core`` first, and runs with both
unless the package itself refuses numpy 1.
"""

from __future__ import annotations

import os
import re

from gpuready.system import elf
from gpuready.system.files import open_regular
from gpuready.system.host_access import AccessError
from gpuready.system.imports.requirements import is_satisfied, parse_requirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuready.system.imports.distributions import Distribution
    from gpuready.system.imports.libraries import Loader

USES_NUMPY = b"module compiled against ABI version 0x"
KNOWS_NUMPY_TWO = b"numpy._core"
MAX_FILES = 24
MAX_BYTES = 96 << 20
"""How much of one distribution is read for a module that uses numpy; its modules are compiled together, so that one tells."""
REFUSES_NUMPY_ONE = {"pyarrow": ">=26"}
"""Distributions that refuse numpy 1 when they are imported, and do not require numpy: pyarrow 26 lib.pyx, apache/arrow#50769."""
TORCH_PREFIXES = ("libtorch", "libc10")


def list_refused_modules(
    copy: Distribution, modules: Sequence[str], files: Sequence[str], loader: Loader, numpy: str
) -> list[tuple[str, str]]:
    """Return the extension modules of a distribution that fail beside this numpy, each with what it wants instead."""
    if not is_satisfied(numpy, ">=2"):
        refuses = is_satisfied(copy.get_version(), REFUSES_NUMPY_ONE.get(copy.name, "<0"))
        return [(path, "it takes no numpy before 2") for path in modules] if refuses else []
    if not any(map(leaves_numpy_open, copy.list_requirements())):
        return []
    return [(path, "compiled for numpy 1") for path in list_modules_for_numpy_one(modules, files, loader)]


def leaves_numpy_open(requirement: str) -> bool:
    """Return whether a distribution requires numpy without a word of numpy 2: ``numpy>=1.26``, and not ``numpy>=2,<2.3``."""
    name, _, specifier, _ = parse_requirement(requirement)
    bounds = re.findall(r"(<=?|>=?|~=|==)(\d+)((?:\.\d+)?)", specifier)
    knows = [sign != "<" or minor not in ("", ".0") for sign, major, minor in bounds if int(major) == 2]
    return name == "numpy" and not any(knows) and all(int(major) <= 2 for _, major, _ in bounds)


def list_modules_for_numpy_one(modules: Sequence[str], files: Sequence[str], loader: Loader) -> list[str]:
    """Return those extension modules of a distribution that numpy 2 refuses; ``files`` are all of its libraries."""
    libraries = [path for path in files if path not in modules and "python" in os.path.basename(path)]
    if not _is_first_for_numpy_one([*libraries, *modules], loader):
        return []
    known = {path: is_for_numpy_one(path) for path in (*libraries, *modules)}
    loaded = {os.path.basename(path) for path in libraries if known[path]}
    return [path for path in modules if known[path] or not loaded.isdisjoint(_needed(path, loader))]


def _is_first_for_numpy_one(paths: Iterable[str], loader: Loader) -> bool:
    """Return what the first file tells that uses numpy, smaller ones first. What is linked to torch takes arrays from torch."""
    sizes = {path: os.path.getsize(path) for path in paths if os.path.exists(path)}
    budget = MAX_BYTES
    for path in sorted(sizes, key=lambda path: sizes[path])[:MAX_FILES]:
        if sizes[path] > budget:
            break
        if any(name.startswith(TORCH_PREFIXES) for name in _needed(path, loader)):
            continue
        budget -= sizes[path]
        found = is_for_numpy_one(path)
        if found is not None:
            return found
    return False


def is_for_numpy_one(path: str) -> bool | None:
    """Return whether a file was compiled with the headers of numpy 1; None if it does not use them, or cannot be read."""
    try:
        place = elf.locate_section(path, ".rodata")
        if place is None:
            return None
        with open(path, "rb", opener=open_regular) as file:
            file.seek(place[0])
            data = file.read(min(place[1], MAX_BYTES))
    except (OSError, AccessError):
        return None
    return KNOWS_NUMPY_TWO not in data if USES_NUMPY in data else None


def _needed(path: str, loader: Loader) -> tuple[str, ...]:
    header = loader.read_header(path)
    return () if isinstance(header, str) else tuple(header.get("needed") or ())
